#!/usr/bin/env python3
"""Asks running jobs for their status: by NCCL's RAS protocol, as any program may, and by `tutti status`.

Usage: status_test.py TUTTI RANK_PROGRAM SANITIZERS
"""
import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

tutti, program, sanitizers = sys.argv[1:]
tutti = os.path.abspath(tutti)
LIMIT_S = 100
HOST = os.uname().nodename
COUNTS = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll", "Gather", "Scatter", "Barrier",
          "Scan", "Exscan", "AllGatherV", "ReduceScatterV", "AlltoAllv", "GatherV", "ScatterV"]


def free_port():
    for port in random.sample(range(10_000, 30_000), 1000):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise SystemExit("no free port")


class Job:
    """Ranks that end with the block. `how`: as in diagnosed_rank.c."""

    def __init__(self, rank, how, address, ranks=3, apart=None, listening=None):
        """apart: what starts these ranks; listening: the ranks that get the address, by default all."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        environment |= {"TUTTI_ROOT": f"127.0.0.1:{free_port()}", "TUTTI_WORLD_SIZE": str(ranks),
                        "TUTTI_TIMEOUT_MS": str(10 * LIMIT_S * 1000)}
        self.address = address
        self.log = tempfile.TemporaryFile("w+")
        listener = {} if address is None else {"TUTTI_RAS_ADDR": address}
        self.ranks = [subprocess.Popen([*(apart or {}).get(r, []), program, str(rank), how], stdin=subprocess.PIPE,
                                       stderr=self.log, env=environment | {"TUTTI_RANK": str(r)} |
                                       (listener if listening is None or r in listening else {})) for r in range(ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()
        if failure[0] is not None:
            print(self.logged())

    def logged(self):
        # The ranks write at the file's own position.
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def release(self, rank):
        self.ranks[rank].stdin.write(b"\n")
        self.ranks[rank].stdin.flush()

    def connect(self):
        """A connection to a process that has answered: one that is stopped does not."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.address.startswith("unix:"):
                    client = socket.socket(socket.AF_UNIX)
                    client.settimeout(5)
                    client.connect(self.address[5:])
                else:
                    client = socket.create_connection(("127.0.0.1", int(self.address.rsplit(":", 1)[1])), 5)
                client.sendall(b"CLIENT PROTOCOL 2\n")
                lines = client.makefile("rb")
                if lines.readline() == b"SERVER PROTOCOL 2\n":
                    client.settimeout(LIMIT_S)
                    return client, lines
            time.sleep(0.05)
        raise SystemExit(f"no process has answered within {LIMIT_S} s")

    def ask(self, *commands):
        """What follows the answers to the commands, up to the end of the connection."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            client, lines = self.connect()
            client.settimeout(10)
            # A process that was being stopped may have answered, and answers nothing more.
            with client, lines, contextlib.suppress(TimeoutError):
                for command in commands[:-1]:
                    client.sendall(command.encode() + b"\n")
                    assert lines.readline() == b"OK\n", command
                client.sendall(commands[-1].encode() + b"\n")
                return lines.read().decode()
        raise SystemExit(f"no process has answered {commands} within {LIMIT_S} s")

    def status(self):
        return json.loads(self.ask("TIMEOUT 20", "SET FORMAT json", "STATUS"))

    def communicator(self, enough):
        """The job's communicator in the report, as soon as enough(communicator) is true."""
        end = time.monotonic() + LIMIT_S
        found = None
        while time.monotonic() < end:
            whole = self.status()
            assert whole["communicators_count"] == len(whole["communicators"])
            found = [c for c in whole["communicators"] if c["size"] == len(self.ranks)]
            with contextlib.suppress(KeyError, IndexError, TypeError):
                if found and enough(found[0]):
                    return found[0]
            time.sleep(0.1)
        raise SystemExit(f"not found within {LIMIT_S} s: {json.dumps(found)}")

    def client(self, *arguments, name=None, **options):
        environment = os.environ | {"TUTTI_RAS_ADDR": self.address}
        call = [name] if name else [tutti, "status"]
        return subprocess.run([*call, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment, check=False, **options)


def by_rank(communicator):
    return {rank["rank"]: rank for rank in communicator["ranks"] + communicator["missing_ranks"]}


def out_of_step(communicator):
    """As Ray Train does it: the ranks whose counts differ from those of most ranks."""
    counts = {rank["rank"]: tuple(sorted(rank["collective_counts"].items())) for rank in communicator["ranks"]}
    usual = max(set(counts.values()), key=list(counts.values()).count)
    return {rank for rank, own in counts.items() if own != usual}


def local(port):
    return f"localhost:{port}"


# A process that does not answer does not delay the client, which also asks another one, and takes the first answer.
with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
    listener.bind(f"{folder}/socket")
    listener.listen()
    listener.settimeout(LIMIT_S)
    with subprocess.Popen([tutti, "status", "--unix", f"{folder}/socket"], stdout=subprocess.PIPE, text=True) as asking:
        first, second = (listener.accept()[0] for _ in range(2))
        with second:
            first.settimeout(LIMIT_S)
            with first, first.makefile("rb") as lines:
                assert lines.readline() == b"CLIENT PROTOCOL 2\n"
                first.sendall(b"SERVER PROTOCOL 2\n")
                assert lines.readline() == b"STATUS\n", "it has given up the first one"
                first.sendall(b"all is well\n")
        assert asking.communicate(timeout=LIMIT_S) == ("all is well\n", None) and asking.returncode == 0

# A rank that does not call: the report for programs, key by key.
with Job(2, "late", local(free_port())) as job:
    late = job.communicator(lambda c: c["stuck"] and all(by_rank(c)[r]["current"]["state"] == "waiting" for r in (0, 1)))
    whole = job.status()
    assert list(whole) == ["nccl_version", "tutti_version", "cuda_runtime_version", "cuda_driver_version", "timestamp",
                           "communicators_count", "communicators", "ras"], list(whole)
    assert list(whole["ras"]) == ["collection_time_sec", "timeouts_count"], whole["ras"]
    time.strptime(whole["timestamp"], "%Y-%m-%d %H:%M:%S")
    assert list(late) == ["hash", "secondary_hash", "size", "ranks_count", "missing_ranks_count", "ranks", "missing_ranks",
                          "stuck", "findings"], list(late)
    assert late["hash"].startswith("0x") and int(late["hash"], 16) > 0, late["hash"]
    assert (late["ranks_count"], late["missing_ranks_count"], late["missing_ranks"]) == (3, 0, []), late
    for rank in late["ranks"]:
        assert list(rank) == ["rank", "host", "pid", "cuda_dev", "nvml_dev", "status", "collective_counts",
                              "current"], list(rank)
        assert (rank["host"], rank["pid"]) == (HOST, job.ranks[rank["rank"]].pid), rank
        assert rank["status"] == {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                                  "abort_flag": False}, rank
        assert list(rank["collective_counts"]) == COUNTS, rank
        calls = 5 if rank["rank"] == 2 else 6
        assert rank["collective_counts"] == {name: calls if name == "AllReduce" else 0 for name in COUNTS}, rank
        current = rank["current"]
        assert (current["collective"], current["seq"], current["count"], current["bytes"]) == ("AllReduce", calls, 100, 400)
        assert current["since_ms"] is None or current["since_ms"] >= 0, current
    assert {r: by_rank(late)[r]["current"]["state"] for r in range(3)} == {0: "waiting", 1: "waiting", 2: "done"}, late
    assert all(2 in by_rank(late)[r]["current"]["waits_for"] for r in (0, 1)), late
    assert by_rank(late)[2]["current"]["waits_for"] == [], late
    assert out_of_step(late) == {2}, late

    # For people: never as if all were well.
    name = f"rank 2 ({os.path.basename(program)[:15]}, pid {job.ranks[2].pid} on {HOST})"
    text = job.ask("STATUS")
    for part in ("of 3 ranks: stands still\n", "ranks 0, 1 have been in operation 6, all_reduce(count 100, float, sum) for ",
                 "rank 2 has not called operation 6; its last was operation 5, all_reduce(count 100, float, sum)",
                 "for rank 2\n", f"=> look at {name}\n"):
        assert part in text, (part, text)
    assert name + ":" not in text and f"{name}: outside; operation 5, all_reduce(" in job.ask("VERBOSE STATUS"), text

    # The client, also under NCCL's name.
    told = job.client()
    assert told.returncode == 0 and f"=> look at {name}\n" in told.stdout and told.stderr == "", told
    assert f"{name}: outside" in job.client("-v").stdout
    assert job.client("--format=json", "-t", "60").stdout.startswith('{\n  "nccl_version"')
    port = job.address.rsplit(":", 1)[1]
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "ncclras")
        os.symlink(tutti, link)
        for host in ("localhost", "127.0.0.1"):
            ras = job.client("-f", "json", "-t", "60", "-h", host, "-p", port, name=link)
            assert ras.returncode == 0 and out_of_step(json.loads(ras.stdout)["communicators"][0]) == {2}, ras
    unanswered = job.client("-p", str(free_port()))
    assert unanswered.returncode == 1 and unanswered.stdout == "", unanswered
    assert "TUTTI_RAS_ADDR=localhost:" in unanswered.stderr, unanswered
    assert job.client("-f", "xml").returncode == 2 and job.client("-p", "0").returncode == 2

    # Commands in any case, and lines that are not commands.
    client, lines = job.connect()
    with client, lines:
        for command, answer in ((b"client protocol 1\r", b"SERVER PROTOCOL 2\n"), (b"timeout 3", b"OK\n"),
                                (b"TIMEOUT -1", b"ERROR: Invalid timeout value -1\n"),
                                (b"TIMEOUT", b"ERROR: Unknown command TIMEOUT\n"),
                                (b"SET FORMAT xml", b"ERROR: Invalid format xml\n"),
                                (b"monitor a,b", b"ERROR: Invalid event group a\n"),
                                (b"CONTROL PROFILER_MASK all", b"ERROR: Unknown command CONTROL PROFILER_MASK all\n"),
                                (b"\x1b[2J\xff", None), (b"", b"ERROR: Unknown command \n")):
            client.sendall(command + b"\n")
            line = lines.readline()
            assert line == answer or answer is None and line.startswith(b"ERROR: ") and b"\x1b" not in line, (command, line)

    # It comes, and the job ends.
    job.release(2)
    assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]

# A process that is stopped is among the missing ranks. Another one answers.
with Job(1, "late", local(free_port())) as job:
    job.communicator(lambda c: by_rank(c)[0]["current"]["state"] == "waiting")
    for rank in range(3):
        job.ranks[rank].send_signal(signal.SIGSTOP)
        found = job.communicator(lambda c: [r["rank"] for r in c["missing_ranks"]] == [rank])
        assert found["stuck"] and found["ranks_count"] == 2, found
        missing, = found["missing_ranks"]
        assert list(missing) == ["rank", "host", "pid", "cuda_dev", "nvml_dev", "status", "collective_counts",
                                 "current"], list(missing)
        assert (missing["rank"], missing["pid"]) == (rank, job.ranks[rank].pid), missing
        assert missing["status"] == {"unresponsive": True, "considered_dead": False, "stopped": True}, missing
        assert any(f"kill -CONT {missing['pid']} continues it" in text for text in found["findings"]), found
        job.ranks[rank].send_signal(signal.SIGCONT)
    job.communicator(lambda c: not c["missing_ranks"])

# Events, at a path.
with Job(1, "late", f"unix:{tempfile.mkdtemp()}/socket") as job, contextlib.ExitStack() as stack:
    folder = pathlib.Path(job.address[5:]).parent
    stack.callback(lambda: (folder.joinpath("socket").unlink(missing_ok=True), folder.rmdir()))
    job.communicator(lambda c: by_rank(c)[0]["current"]["state"] == "waiting")
    assert folder.joinpath("socket").stat().st_mode & 0o777 == 0o600
    client, lines = job.connect()
    with client, lines:
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        owner, = (rank for rank in range(3) if job.ranks[rank].pid == pid)
        other = (owner + 1) % 3
        client.sendall(b"MONITOR all\n")
        assert lines.readline() == b"OK\n"

        def next_line(*parts):
            """The next line with these parts."""
            while line := lines.readline().decode():
                if all(part in line for part in parts):
                    return line
            raise SystemExit(f"{parts}: the connection has ended")

        job.ranks[other].send_signal(signal.SIGSTOP)
        next_line("PEER_UNRESPONSIVE: process", str(job.ranks[other].pid), f"rank {other} of communicator")
        job.ranks[other].send_signal(signal.SIGCONT)
        next_line("PEER_RECOVERED", str(job.ranks[other].pid))
        told = job.client()
        assert told.returncode == 0 and "rank 1 has not called operation 6" in told.stdout, told
        assert job.client("--unix", job.address[5:]).stdout.startswith("tutti ")
        programs, _ = job.connect()
        with programs, programs.makefile("r") as events:
            programs.sendall(b"SET FORMAT json\nMONITOR\n")
            assert (events.readline(), events.readline()) == ("OK\n", "OK\n")
            job.ranks[other].kill()
            next_line("PEER_DEAD: process", str(job.ranks[other].pid), "has ended")
            next_line("COMM_FAILED: communicator")
            found = []
            while not found or found[-1]["event"] != "PEER_DEAD":
                text = events.readline()
                assert text == "{\n", text
                while text.count("{") != text.count("}"):
                    text += events.readline()
                found.append(json.loads(text))
            assert all(event["group"] == "LIFECYCLE" for event in found), found
            peer = {"host": HOST, "pid": job.ranks[other].pid, "cuda_devs": [], "nvml_devs": []}
            assert list(found[-1]) == ["timestamp", "group", "event", "peer", "details"], found
            assert found[-1]["peer"] == peer and "has ended" in found[-1]["details"], found
    # If the process that listens is stopped, another one takes its place.
    job.ranks[owner].send_signal(signal.SIGSTOP)
    end = time.monotonic() + LIMIT_S
    pid = job.ranks[owner].pid
    while pid == job.ranks[owner].pid and time.monotonic() < end:  # while it is being stopped, it may still answer
        client, lines = job.connect()
        with client, lines:
            pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert pid != job.ranks[owner].pid

# Clients that send garbage or nothing, or do not read, hold up neither others nor the job.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
with Job(2, "late", local(free_port())) as job, contextlib.ExitStack() as stack:
    job.communicator(lambda c: by_rank(c)[0]["current"]["state"] == "waiting")
    port = int(job.address.rsplit(":", 1)[1])
    descriptors = {process.pid: len(os.listdir(f"/proc/{process.pid}/fd")) for process in job.ranks}
    half_open = [stack.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT_S))
                 for _ in range(1000 if hard > 1200 else 300)]
    random.seed(7)
    for number, client in enumerate(half_open):
        client.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):  # it may have been replaced
            if number % 4 == 1:
                client.sendall(random.randbytes(3000))
            elif number % 4 == 2:
                client.sendall(b"STAT")
            elif number % 4 == 3:
                client.sendall(b"SET FORMAT json\n" * 200 + b"VERBOSE STATUS\n")
    assert "rank 2 has not called operation 6" in job.client("-t", str(LIMIT_S)).stdout
    for process in job.ranks:
        assert len(os.listdir(f"/proc/{process.pid}/fd")) <= descriptors[process.pid] + 70
    job.release(2)
    assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

# Off by default: no thread and no listener. On: one thread, and one or two listeners, of localhost's addresses.
kinds = []
for address in (None, "", local(free_port())):
    with Job(2, "late", address) as job:
        pid = job.ranks[0].pid
        steady = 0
        threads = 0
        end = time.monotonic() + LIMIT_S
        # Threads of the initialisation end a little after it.
        while steady < 10 and time.monotonic() < end:
            looked = subprocess.run([tutti, "diagnose", "--json", str(pid)], text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, check=False)
            before, threads = threads, len(os.listdir(f"/proc/{pid}/task"))
            steady = steady + 1 if '"operation 6, all_reduce' in looked.stdout and threads == before else 0
            time.sleep(0.1)
        port = f"{int(job.address.rsplit(':', 1)[1]):04X}" if address else "none"
        listeners = [line for family in ("tcp", "tcp6") for line in open(f"/proc/{pid}/net/{family}")
                     if line.split()[1].endswith(":" + port) and line.split()[3] == "0A"]
        kinds.append((threads, len(listeners)))
assert kinds[0] == kinds[1] and kinds[0][1] == 0, kinds
# Each of the three ranks listens.
assert kinds[2][0] == kinds[0][0] + 1 and kinds[2][1] in (3, 6), kinds

# Addresses at which it cannot listen: a warning that names them, and the job runs.
with socket.socket() as taken, tempfile.TemporaryDirectory() as folder:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    for address in ("nonsense", f"127.0.0.1:{taken.getsockname()[1]}", "203.0.113.7:28028", f"unix:{folder}/none/socket"):
        with Job(2, "late", address) as job:
            job.release(2)
            assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0], address
            logged = job.logged()
            assert logged.count(" warn: TUTTI_RAS_ADDR: ") == 3 and address.removeprefix("unix:") in logged, logged

# A forked child has no copy of its parent's listeners, and one of its own if it makes communicators.
if sanitizers == "none":
    with Job(2, "fork", local(free_port())) as job:
        job.communicator(lambda c: by_rank(c)[0]["current"]["state"] == "waiting")
        end = time.monotonic() + LIMIT_S
        while "the child has two ranks" not in job.logged() and time.monotonic() < end:
            time.sleep(0.1)
        for process in job.ranks:
            process.kill()
            process.wait()
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                sizes = [c["size"] for c in job.status()["communicators"]]
                if sizes == [2]:
                    break
            time.sleep(0.1)
        assert sizes == [2], sizes

# A rank that cannot read the events of the others, as if they were on another host: it asks them over the control tree.
# The others do not listen.
namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if subprocess.run([*namespace, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
    with tempfile.TemporaryDirectory() as folder, \
            Job(2, "late", f"unix:{folder}/socket", apart={0: namespace}, listening={0}) as job:
        far = job.communicator(lambda c: c["stuck"] and c["ranks_count"] == 3 and
                               by_rank(c)[1]["current"]["state"] == "waiting")
        assert far["missing_ranks"] == [], far
        for rank in (1, 2):
            seen = by_rank(far)[rank]
            calls = 5 if rank == 2 else 6
            assert (seen["host"], seen["pid"]) == (HOST, job.ranks[rank].pid), seen
            assert seen["collective_counts"] == {name: calls if name == "AllReduce" else 0 for name in COUNTS}, seen
            assert (seen["current"]["seq"], seen["current"]["count"]) == (calls, 100), seen
        assert 2 in by_rank(far)[1]["current"]["waits_for"] and out_of_step(far) == {2}, far
        assert far["findings"][-1].startswith("look at rank 2 ("), far
        text = job.ask("STATUS")
        assert "rank 2 has not called operation 6" in text and f"pid {job.ranks[2].pid} on {HOST})" in text, text
        # One that is stopped does not answer.
        job.ranks[1].send_signal(signal.SIGSTOP)
        silent = job.communicator(lambda c: [r["status"]["unresponsive"] for r in c["missing_ranks"]] == [True])
        missing, = silent["missing_ranks"]
        assert (missing["host"], missing["pid"]) == (HOST, job.ranks[1].pid), missing
        assert missing["status"] == {"unresponsive": True, "considered_dead": False, "stopped": False}, missing
        assert any(f"the process of rank 1 (pid {job.ranks[1].pid} on {HOST}) does not answer" in text
                   for text in silent["findings"]), silent
        job.ranks[1].send_signal(signal.SIGCONT)
        job.communicator(lambda c: c["ranks_count"] == 3)
        job.release(2)
        assert [process.wait(LIMIT_S) for process in job.ranks] == [0, 0, 0]
else:
    print("this user cannot make a namespace of processes: ranks of other hosts are not tested")

# Many ranks, of which some are stopped: a process that is not, answers.
many = 64 if sanitizers == "none" else 8
with Job(many - 1, "late", local(free_port()), ranks=many) as job:
    job.communicator(lambda c: c["ranks_count"] == many and all(r["current"] for r in c["ranks"]))
    stopped = set(random.sample(range(many - 1), 10 if many == 64 else 2))
    for rank in stopped:
        job.ranks[rank].send_signal(signal.SIGSTOP)
    found = job.communicator(lambda c: {r["rank"] for r in c["missing_ranks"]} == stopped)
    assert all(rank["status"]["unresponsive"] for rank in found["missing_ranks"]), found
    for _ in range(10):
        told = job.client("-f", "json", "-t", str(LIMIT_S))
        assert told.returncode == 0, told
        assert {r["rank"] for r in json.loads(told.stdout)["communicators"][0]["missing_ranks"]} == stopped, told
print("passed")
