#!/usr/bin/env python3
"""examples/run_ranks.sh on a terminal: Ctrl-C and signals end all ranks; wrong arguments give an error."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

SCRIPT = sys.argv[1]
RANKS = 3
LONG_S = 60  # nothing here takes this long, on any machine

QUIET = 'echo rank $$ is up; exec sleep 600'
DEAF = 'trap "" TERM; echo rank $$ is up; while :; do sleep 1; done'


def alive(pid):
    """False also for a zombie, a dead process that its parent has not collected."""
    try:
        with open(f'/proc/{pid}/stat') as stat:
            return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError:
        return False


def start(body):
    """The script on a terminal of its own. Returns its pid, the terminal, and the ranks' pids."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv('/bin/bash', ['bash', SCRIPT, str(RANKS), 'bash', '-c', body])
    text, ranks, until = '', [], time.monotonic() + LONG_S
    while len(ranks) < RANKS:
        if time.monotonic() > until:
            sys.exit(f'the ranks did not start: {text!r}')
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096).decode()
        ranks = [int(found) for found in re.findall(r'rank (\d+) is up', text)]
    return pid, terminal, ranks


def check_ends(what, body, end, status):
    pid, terminal, ranks = start(body)
    end(pid, terminal)
    until = time.monotonic() + LONG_S
    ended, how = os.waitpid(pid, os.WNOHANG)
    while ended == 0 and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                os.read(terminal, 4096)
            except OSError:
                time.sleep(0.1)
        ended, how = os.waitpid(pid, os.WNOHANG)
    left = [rank for rank in ranks if alive(rank)]
    for rank in left:
        os.kill(rank, signal.SIGKILL)
    if ended == 0:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(terminal)
    if ended == 0 or left:
        sys.exit(f'{what}: the script {"ended" if ended else "went on"}, ranks left: {len(left)}')
    if os.waitstatus_to_exitcode(how) != status:
        sys.exit(f'{what}: exit status {os.waitstatus_to_exitcode(how)}, not {status}')


def check_usage(*arguments):
    run = subprocess.run(['bash', SCRIPT, *arguments], capture_output=True, text=True, timeout=LONG_S, check=False)
    if run.returncode != 2 or 'Usage:' not in run.stderr:
        sys.exit(f'{arguments}: exit status {run.returncode}, {run.stderr!r}')


def main():
    for arguments in ((), ('2',), ('none', 'true'), ('0', 'true'), ('-1', 'true')):
        check_usage(*arguments)
    check_ends('Ctrl-C', QUIET, lambda pid, terminal: os.write(terminal, b'\x03'), 130)
    check_ends('SIGTERM', QUIET, lambda pid, terminal: os.kill(pid, signal.SIGTERM), 143)
    check_ends('SIGINT', QUIET, lambda pid, terminal: os.kill(pid, signal.SIGINT), 130)
    check_ends('Ctrl-C, ranks that ignore SIGTERM', DEAF, lambda pid, terminal: os.write(terminal, b'\x03'), 130)


if __name__ == '__main__':
    main()
