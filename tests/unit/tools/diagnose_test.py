#!/usr/bin/env python3
"""Runs jobs that stand still, and compares what `tutti diagnose` says of them.

Usage: diagnose_test.py TUTTI RANK_PROGRAM
"""
import collections
import html.parser
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

tutti, program = sys.argv[1:]
RANKS = 3
LIMIT_S = 100


class Job:
    """Ranks of which one does not come; they end with the block. `missing`: ranks that do not start."""

    def __init__(self, rank, how, missing=(), **settings):
        port = random.randrange(20000, 32000)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        environment |= {"TUTTI_ROOT": f"127.0.0.1:{port}", "TUTTI_WORLD_SIZE": str(RANKS),
                        "TUTTI_TIMEOUT_MS": str(LIMIT_S * 1000)} | settings
        self.ranks = [subprocess.Popen([program, str(rank), how], stdin=subprocess.PIPE,
                                       env=environment | {"TUTTI_RANK": str(r)}) for r in range(RANKS)
                      if r not in missing]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()

    def diagnose(self, *arguments):
        return subprocess.run([tutti, "diagnose", "--after", "1", *arguments, *(str(p.pid) for p in self.ranks)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def findings(self, enough, stuck=True):
        """The findings as soon as enough(findings by kind) is true, and the text that a person reads."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            asked = self.diagnose("--json")
            # While the ranks join, they have no communicator yet.
            if asked.returncode in (0, 1):
                found = json.loads(asked.stdout)
                of_job = [c for c in found["communicators"] if c["ranks"] == RANKS]
                by_kind = {}
                for finding in of_job[0]["findings"] if of_job else []:
                    by_kind.setdefault(finding["kind"], []).append(finding["text"])
                assert found["stuck"] == (asked.returncode == 1), asked
                if found["stuck"] >= stuck and by_kind and enough(by_kind):
                    told = self.diagnose()
                    assert told.returncode == 1 or not stuck, told.stdout
                    return by_kind, told.stdout
            time.sleep(0.1)
        raise SystemExit(f"not found within {LIMIT_S} s: {asked.stdout}{asked.stderr}")

    def name(self, rank):
        host = os.uname().nodename
        return f"rank {rank} ({os.path.basename(program)[:15]}, pid {self.ranks[rank].pid} on {host})"


def counted_ranks(text):
    """Of "it has failed on ranks 0, 2-3: ..."."""
    spans = text.split(":")[0].split(" on ")[1].split(" ", 1)[1].split(", ")
    return sum(int(span.split("-")[-1]) - int(span.split("-")[0]) + 1 for span in spans)


def looks_at(name):
    return lambda found: found.get("conclusion") == [f"look at {name}"] and "waits" in found


# A rank that computes, or hangs, outside of tutti.
with Job(2, "late") as job:
    found, told = job.findings(looks_at(job.name(2)))
    assert len(found["behind"]) == 1, found
    assert found["behind"][0].startswith("rank 2 has not called operation 6; its last was operation 5, all_reduce("), found
    assert found["operation"][0].startswith("ranks 0, 1 have been in operation 6, all_reduce(count 100, float, sum)"), found
    assert f"=> look at {job.name(2)}" in told, told
    # It comes, and the job ends.
    job.ranks[2].stdin.write(b"\n")
    job.ranks[2].stdin.flush()
    assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]
    gone = job.diagnose()
    assert gone.returncode == 2 and "there is no process" in gone.stderr, gone

# A rank that waits in another communicator.
with Job(1, "elsewhere") as job:
    found, told = job.findings(lambda found: "behind" in found and "held up" in found["behind"][0])
    assert found["behind"][0].startswith("rank 1 has not called operation 8; its last was operation 7, split, "), found
    assert found["behind"][0].endswith("; it is held up in another communicator"), found

# A rank whose reduction is queued behind a function of the program.
with Job(1, "stream") as job:
    found, told = job.findings(lambda found: "behind" in found and "of its stream" in found["behind"][0])
    assert found["behind"][0].startswith("rank 1 has queued operation 6, which has waited "), found
    assert " for earlier work of its stream; its last was operation 5, all_reduce(" in found["behind"][0], found
    job.ranks[1].stdin.write(b"\n")
    job.ranks[1].stdin.flush()
    assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]

# A rank that is stopped: it can still be read.
with Job(1, "stop") as job:
    found, told = job.findings(looks_at(job.name(1)))
    assert found["stopped"] == [f"the process of {job.name(1)} is stopped; "
                                f"kill -CONT {job.ranks[1].pid} continues it"], found
    os.kill(job.ranks[1].pid, signal.SIGCONT)
    assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]

# Each rank waits for a message of the next one.
with Job(0, "receive") as job:
    found, told = job.findings(lambda found: found.get("conclusion") == ["ranks 0-2 wait for each other"])
    assert found["operation"] == [f"rank {rank} is in a receive of 400 bytes from rank {(rank + 1) % RANKS}"
                                  for rank in range(RANKS)], found

# A rank that agrees alone.
with Job(1, "agree") as job:
    found, told = job.findings(lambda found: found.get("conclusion") == [f"look at {job.name(0)}, {job.name(2)}"])
    assert any(text.startswith("rank 1 has been in tuttiCommAgree, for ") for text in found["operation"]), found

# Ranks that call different operations: the communicator has failed.
with Job(1, "count") as job:
    found, told = job.findings(lambda found: sum(counted_ranks(text) for text in found.get("failed", [])) == RANKS,
                               stuck=False)
    assert any("count 50" in text and "count 100" in text for text in found["different calls"]), found

# A rank that does not start.
with Job(1, "late", missing=[2]) as job:
    found, told = job.findings(lambda found: found.get("conclusion") == ["look at rank 2, which was not found here"])
    assert len(found["operation"]) == 1, found
    assert found["operation"][0].startswith("ranks 0, 1 have been in tuttiCommInitEnv, for "), found
    assert found["not read"] == ["rank 2 was not found here: on another host, in another container or of another user, "
                                  "or it has not started, or died"], found

# Afterwards the reason is in the files of the ranks that have started.
with tempfile.TemporaryDirectory() as folder:
    with Job(1, "late", missing=[2], TUTTI_FLIGHT_RECORDER=folder, TUTTI_INIT_TIMEOUT_MS="1000") as job:
        assert [process.wait(LIMIT_S) for process in job.ranks] == [1, 1]
    told = subprocess.run([tutti, "diagnose", folder], text=True, stdout=subprocess.PIPE, check=False).stdout
    assert "it has failed on rank" in told and "rank 2" in told and "have been in tuttiCommInitEnv" in told, told

# A rank that is slow: the job goes on.
with Job(2, "slow") as job:
    found, told = job.findings(lambda found: "late" in found, stuck=False)
    assert len(found["late"]) == 1 and found["late"][0].startswith(f"{job.name(2)} began "), found

# The table of ranks: it has lines of this job, with rates from the second table on.
with Job(1, "slow") as job:
    job.findings(lambda found: "operation" in found, stuck=False)
    limit = time.monotonic() + LIMIT_S
    joining = True  # a rank that was still joining in the first table has no rate in the second
    while joining:
        top = subprocess.run([tutti, "top", "-n", "2", "-d", "0.5"], text=True, stdout=subprocess.PIPE, check=True)
        first, second = top.stdout.split("communicator", 2)[1:]
        lines = {process.pid: [line.split() for line in second.splitlines() if f" {process.pid} " in line]
                 for process in job.ranks}
        joining = any(line[4] == "-" for of_rank in lines.values() for line in of_rank) and time.monotonic() < limit
    for pid, line in lines.items():
        assert len(line) == 1 and "all_reduce(count" in " ".join(line[0]), top.stdout
        assert float(line[0][4].rstrip("k")) > 0, top.stdout
        assert f" {pid} " in first, top.stdout

class Tags(html.parser.HTMLParser):
    """Counts elements, and finds those that are not closed."""

    def __init__(self):
        super().__init__()
        self.count = collections.Counter()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.count[tag] += 1
        if tag in ("svg", "div", "table", "ul", "h1", "h2", "h3", "body", "html", "head", "style", "p", "code"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag, (tag, self.open)


def recorded(folder, *more):
    return subprocess.run([tutti, "diagnose", folder, "--after", "1", *more], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)


with tempfile.TemporaryDirectory() as folder:
    # Killed while a rank does not come: the folder tells what could be seen.
    with Job(2, "late", TUTTI_FLIGHT_RECORDER=folder) as job:
        job.findings(looks_at(job.name(2)))
        living = recorded(folder)
        assert living.returncode == 1 and f"=> look at {job.name(2)}" in living.stdout, living
        for process in job.ranks:
            process.send_signal(signal.SIGUSR2)
        time.sleep(0.1)
        assert [process.poll() for process in job.ranks] == [None] * RANKS
    assert len(os.listdir(folder)) == RANKS, os.listdir(folder)
    dead = recorded(folder)
    assert dead.returncode == 1 and f"=> look at {job.name(2)}" in dead.stdout, dead
    assert "rank 2 has not called operation 6; its last was operation 5, all_reduce(" in dead.stdout, dead
    found = json.loads(recorded(folder, "--json").stdout)
    assert all(process["ended"] for process in found["processes"]) and len(found["processes"]) == RANKS, found

    # The same as a page.
    page = os.path.join(folder, "report.html")
    assert subprocess.run([tutti, "report", folder, "--after", "1", "-o", page], check=False).returncode == 0
    with open(page, encoding="utf-8") as file:
        text = file.read()
    tags = Tags()
    tags.feed(text)
    assert not tags.open, tags.open
    assert f"Look at {job.name(2)}." in text, text
    assert "http" not in text and "<script" not in text, text
    assert tags.count["circle"] == RANKS and tags.count["line"] >= 2, tags.count
    assert tags.count["rect"] >= 5 * RANKS, tags.count  # the operations of the timeline

with tempfile.TemporaryDirectory() as folder:
    # A job without failures leaves nothing.
    with Job(2, "late", TUTTI_FLIGHT_RECORDER=folder) as job:
        job.findings(looks_at(job.name(2)))
        job.ranks[2].stdin.write(b"\n")
        job.ranks[2].stdin.flush()
        assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]
    assert not os.listdir(folder), os.listdir(folder)
    nothing = recorded(folder)
    assert nothing.returncode == 0 and nothing.stdout == "no communicator has failed there\n", nothing
    # A rank that dies: the others name it, and their files stay after they have ended by themselves.
    with Job(2, "late", TUTTI_FLIGHT_RECORDER=folder) as job:
        job.findings(looks_at(job.name(2)))
        job.ranks[2].kill()
        for process in job.ranks[:2]:
            process.stdin.close()
        assert [process.wait(LIMIT_S) for process in job.ranks] == [1, 1, -signal.SIGKILL]
    dead = recorded(folder)
    assert dead.returncode == 1 and "3 ranks: has failed" in dead.stdout, dead
    assert f"=> look at {job.name(2)}" in dead.stdout, dead
    assert "ranks 0, 1 have been in operation 6" in dead.stdout, dead
    assert f"the process of {job.name(2)} has ended, after operation 5, all_reduce(" in dead.stdout, dead

with tempfile.TemporaryDirectory() as folder:
    # A timeout.
    with Job(0, "late", TUTTI_FLIGHT_RECORDER=folder, TUTTI_TIMEOUT_MS="3000") as job:
        for process in job.ranks[1:]:
            process.stdin.close()
        assert [process.wait(LIMIT_S) for process in job.ranks[1:]] == [1, 1]
        job.ranks[0].communicate(b"\n\n", timeout=LIMIT_S)
    dead = recorded(folder)
    assert dead.returncode == 1 and "has failed" in dead.stdout, dead
    assert f"=> look at {job.name(0)}" in dead.stdout, dead

assert recorded("/nonexistent").returncode == 2

# A process without communicators, and none at all.
alone = subprocess.run([tutti, "diagnose", str(os.getpid())], stderr=subprocess.PIPE, text=True, check=False)
assert alone.returncode == 2 and "has no communicator" in alone.stderr, alone
assert subprocess.run([tutti, "top", "-n", "1"], stdout=subprocess.DEVNULL, check=False).returncode == 0
print("passed")
