#!/usr/bin/env python3
"""tutti run on a terminal: labels, output line by line, prompts, input for rank 0, Ctrl-C, a shell's jobs.
Usage: run_terminal_test.py TUTTI"""
import os
import pty
import select
import signal
import sys
import time

TUTTI = sys.argv[1]
LONG_S = 60  # nothing here takes this long, on any machine

# Without flushing after each line: a terminal does not need that.
TALK = '''
import os, sys, time
rank = os.environ["TUTTI_RANK"]
print("rank", rank, "out", sys.stdout.isatty(), "err", sys.stderr.isatty())
if rank == "0":
    print("read", input("name? "))
time.sleep(600)
'''


class Run:
    """A command on a terminal of its own."""

    def __init__(self, *command):
        self.text = ''
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ['PS1'] = 'shell$ '
            os.execv(command[0], command)

    def expect(self, *wanted):
        until = time.monotonic() + LONG_S
        while not all(text in self.text for text in wanted):
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                sys.exit(f'not all of {wanted} in {self.text!r}')
            if select.select([self.terminal], [], [], 1)[0]:
                self.text += os.read(self.terminal, 4096).decode()

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect_after(self, typed, *wanted):
        self.text = ''
        self.type(typed)
        self.expect(*wanted)

    def expect_end(self, status):
        until = time.monotonic() + LONG_S
        ended = 0
        while ended == 0:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                sys.exit(f'does not end: {self.text!r}')
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.terminal, 4096).decode()
                except OSError:
                    time.sleep(0.1)
            ended, how = os.waitpid(self.pid, os.WNOHANG)
        try:
            while more := os.read(self.terminal, 4096):
                self.text += more.decode()
        except OSError:
            pass  # all of it is read
        os.close(self.terminal)
        if os.waitstatus_to_exitcode(how) != status:
            sys.exit(f'exit status {os.waitstatus_to_exitcode(how)}, not {status}: {self.text!r}')


def main():
    run = Run(TUTTI, 'run', '-n', '2', sys.executable, '-c', TALK)
    run.expect('[0] rank 0 out True err True\r\n', '[1] rank 1 out True err True\r\n', '[0] name? ')
    run.type('Ada\n')
    run.expect('read Ada\r\n')
    run.type('\x03')
    run.expect_end(130)

    run = Run(TUTTI, 'run', '-n', '2', '--no-label', 'cat')
    run.type('to rank 0\n')
    run.expect('to rank 0\r\nto rank 0\r\n')
    run.type('\x04')  # ends the input, and with it the ranks
    run.expect_end(0)
    if '[' in run.text:
        sys.exit(f'labels in spite of --no-label: {run.text!r}')

    # The last output arrives, and labels belong to lines.
    run = Run(TUTTI, 'run', '-n', '3', '--', 'bash', '-c', 'for i in {1..200}; do echo line $i; done; printf rest')
    run.expect_end(0)
    for rank in range(3):
        for line in [f'line {i}\r\n' for i in range(1, 201)] + ['rest']:
            if run.text.count(f'[{rank}] {line}') != 1:
                sys.exit(f'rank {rank}, {line!r}: not once in {run.text!r}')

    # A message reports a rank that waits for the terminal itself.
    run = Run(TUTTI, 'run', '-n', '2', '--', 'bash', '-c', 'read -r line </dev/tty')
    run.expect('rank 0 was stopped by signal 21', 'rank 1 was stopped by signal 21')
    run.type('\x03')
    run.expect_end(130)

    # In the background it leaves the terminal's input to the shell.
    run = Run('/bin/bash', '--norc', '-i')
    run.expect('shell$ ')
    run.type(f"{TUTTI} run -n 2 -- bash -c 'echo u\"\"p; exec cat' &\n")
    run.expect('[0] up', '[1] up')
    run.type('echo the shell has re"ad"\n')
    run.expect('the shell has read')
    run.expect_after('fg\n', 'exec cat')
    run.type('for the rank\n')
    run.expect('[0] for the rank')
    run.expect_after('\x1a', 'Stopped', 'shell$ ')
    run.expect_after('fg\n', 'exec cat')
    run.type('more\n')
    run.expect('[0] more')
    run.expect_after('\x03', 'shell$ ')
    run.type('echo status=$?; exit 0\n')
    run.expect('status=130')
    run.expect_end(0)


if __name__ == '__main__':
    main()
