#!/usr/bin/env python3
"""Runs jobs in which one rank comes late for a reason, and compares the reason that `tutti diagnose` gives.

Usage: lateness_test.py TUTTI RANK_PROGRAM [CASES [FIRST_SEED [links]]]

Each case has a seed, from which its number of ranks, its late rank, its cause, its sizes and its times follow. With
`links`, one of four has a slow link between network namespaces instead of a late rank.
"""
import json
import os
import random
import subprocess
import sys
import time

tutti, program = sys.argv[1:3]
# Without a number of cases, each must be right, with a longer delay if need be: the machine may be busy.
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 9
COUNTS = len(sys.argv) > 3
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 1
LINKS = "links" in sys.argv[5:]
LIMIT_S = 100
OPERATIONS = 17
HOG = [sys.executable, "-c", "while True: pass"]
# Of a rank alone, and of the others: a slow link leads from the first to the second.
ALONE, OTHERS = f"tutti{os.getpid()}a", f"tutti{os.getpid()}b"


def do(command):
    return subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def make_slow_link():
    """Whether this machine permits it."""
    for command in (f"ip netns add {ALONE}", f"ip netns add {OTHERS}",
                    f"ip -n {ALONE} link add joint type veth peer name joint netns {OTHERS}",
                    f"ip -n {ALONE} addr add 10.234.9.1/24 dev joint", f"ip -n {OTHERS} addr add 10.234.9.2/24 dev joint",
                    f"ip -n {ALONE} link set lo up", f"ip -n {OTHERS} link set lo up",
                    f"ip -n {ALONE} link set joint up", f"ip -n {OTHERS} link set joint up",
                    f"tc -n {ALONE} qdisc add dev joint root tbf rate 100mbit burst 64k latency 200ms"):
        try:
            done = do(command)
        except FileNotFoundError:
            print("no slow links: there is no ip or tc command")
            return False
        if done.returncode != 0:
            print(f"no slow links: {command}: {done.stdout.strip()}")
            return False
    return True


def pinned(processor):
    return lambda: os.sched_setaffinity(0, {processor})


class Case:
    def __init__(self, seed, causes):
        chance = random.Random(seed)
        self.seed = seed
        self.cause = causes[seed % len(causes)]
        self.size = 2 if self.cause == "processor" else chance.randint(2, 4)
        self.late = chance.randrange(self.size)
        self.count = chance.choice([300_000, 600_000] if self.cause == "link" else [1, 2, 100, 10_000, 300_000])
        self.ms = chance.randint(20, 40)

    def __str__(self):
        return f"seed {self.seed}: rank {self.late} of {self.size} {self.cause}, {self.count} floats, {self.ms} ms"

    def start(self, rank, ms):
        """A rank with its own processor, as far as there are some."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        environment |= {"TUTTI_ROOT": f"127.0.0.1:{self.port}", "TUTTI_WORLD_SIZE": str(self.size),
                        "TUTTI_RANK": str(rank), "TUTTI_TIMEOUT_MS": str(LIMIT_S * 1000), "TUTTI_AFFINITY": "keep"}
        command = [program, str(self.late), self.cause, str(ms), str(self.count), str(OPERATIONS)]
        if self.cause == "link":
            address = "10.234.9.1" if self.late == 0 else "10.234.9.2"
            environment |= {"TUTTI_ROOT": f"{address}:{self.port}", "TUTTI_TRANSPORTS": "tcp"}
            command = ["ip", "netns", "exec", ALONE if rank == self.late else OTHERS] + command
        processors = sorted(os.sched_getaffinity(0))
        place = pinned(processors[rank % len(processors)]) if self.cause == "processor" else None
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
                                preexec_fn=place)

    def run(self, factor):
        """The findings about lateness. The rank is later by `factor`."""
        self.port = random.randrange(20000, 32000)
        started = []
        try:
            for rank in range(self.size):
                started.append(self.start(rank, self.ms * factor))
            ranks = started[:]
            if self.cause == "processor":
                processors = sorted(os.sched_getaffinity(0))
                for _ in range(factor):
                    started.append(subprocess.Popen(HOG, preexec_fn=pinned(processors[self.late % len(processors)])))
            for process in ranks:
                assert process.stdout.readline() == b"done\n", f"{self}: a rank has failed"
            told = subprocess.run([tutti, "diagnose", "--json", *(str(process.pid) for process in ranks)], text=True,
                                  stdout=subprocess.PIPE, check=False, timeout=LIMIT_S).stdout
            for process in ranks:
                process.communicate(b"\n", timeout=LIMIT_S)
                assert process.returncode == 0, f"{self}: a rank has failed"
        finally:
            for process in started:
                process.kill()
                process.communicate()
        return [finding for communicator in json.loads(told)["communicators"] if communicator["ranks"] == self.size
                for finding in communicator["findings"] if finding["kind"] == "late"]

    def is_right(self, findings):
        if self.cause == "link":
            return any(f["cause"] == "link" and f"the link from rank {self.late} to" in f["text"] for f in findings)
        return [(f["ranks"], f["cause"]) for f in findings] == [([self.late], self.cause)]


def main():
    causes = ["computes", "sleeps", "processor"] + (["link"] if LINKS and make_slow_link() else [])
    right = 0
    begun = time.monotonic()
    for seed in range(FIRST, FIRST + CASES):
        case = Case(seed, causes)
        # On a busy machine, other ranks come late as well: then this one must be later.
        for factor in (1, 3, 10):
            findings = case.run(factor)
            is_right = case.is_right(findings)
            if is_right or (COUNTS and any(case.late in finding["ranks"] for finding in findings)):
                break
            print(f"{case}: {findings or 'it was not late often enough'}", flush=True)
        right += is_right
        for finding in findings:
            print(f"{'' if is_right else 'WRONG: '}{case}: {finding['text']} [{finding['cause']}]", flush=True)
    print(f"{right} of {CASES} right in {time.monotonic() - begun:.1f} s")
    return 0 if right >= 0.95 * CASES - 1e-9 else 1


try:
    status = main()
finally:
    for namespace in (ALONE, OTHERS):
        do(f"ip netns del {namespace}")
sys.exit(status)
