#!/usr/bin/env python3
"""Runs jobs of four ranks with TUTTI_METRICS, and compares what they write with what their program calls.

Usage: metrics_test.py RANK_PROGRAM RULES_FOLDER RULES_TEST

What needs Prometheus is left out where it is not installed, and says so.
"""
import contextlib
import glob
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

program, folder_of_rules, rules_test = sys.argv[1:]
rules, dashboard = f"{folder_of_rules}/tutti.rules.yml", f"{folder_of_rules}/grafana.json"
RANKS = 4
LATE = 2  # by so long that the others wait for it, also on a busy machine
LIMIT_S = 100
# What metrics_rank.c calls: collective and size, with the number of calls and the bytes of each.
CALLS = {
    ("all_reduce", "up_to_64B"): (20 + 4 + 3 + 6 + 1, 8 * (20 + 3 + 6 + 1)),
    ("all_reduce", "up_to_256KiB"): (5, 5 * 262144) ,
    ("all_gather", "up_to_4KiB"): (3, 3 * 1600),
    ("all_gather_v", "up_to_512B"): (2, 2 * 400),
    ("barrier", "up_to_64B"): (2, 0),
    ("send", "up_to_512B"): (7, 7 * 400),
    ("recv", "up_to_512B"): (7, 7 * 400),
}
# The same by NCCL's names, for the lines.
LINES = {("AllReduce", 34): CALLS["all_reduce", "up_to_64B"], ("AllReduce", 5): CALLS["all_reduce", "up_to_256KiB"],
         ("AllGather", 3): CALLS["all_gather", "up_to_4KiB"], ("AllGatherV", 2): CALLS["all_gather_v", "up_to_512B"],
         ("Barrier", 2): CALLS["barrier", "up_to_64B"], ("Send", 7): CALLS["send", "up_to_512B"],
         ("Recv", 7): CALLS["recv", "up_to_512B"]}
SERIES = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def await_that(holds, what):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"not within {LIMIT_S} s: {what}")


class Job:
    """The ranks wait, when they have made their calls, until end(); they are killed at the end of the block."""

    def __init__(self, metrics, interval_ms=100, preexec=None, late=-1):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        environment |= {"TUTTI_ROOT": f"127.0.0.1:{random.randrange(20000, 32000)}", "TUTTI_WORLD_SIZE": str(RANKS),
                        "TUTTI_TIMEOUT_MS": str(LIMIT_S * 1000), "TUTTI_METRICS_INTERVAL_MS": str(interval_ms)}
        environment |= {} if metrics is None else {"TUTTI_METRICS": metrics}
        self.ranks = [subprocess.Popen([program, str(late)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=preexec, env=environment | {"TUTTI_RANK": str(r)})
                      for r in range(RANKS)]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()

    def results(self):
        """What each rank has written on standard error. They end first."""
        for process in self.ranks:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.close()
            process.stdin = None
        told = [process.communicate(timeout=LIMIT_S)[1] for process in self.ranks]
        assert [process.returncode for process in self.ranks] == [0] * RANKS, told
        return told


def threads(job):
    return [len(os.listdir(f"/proc/{process.pid}/task")) for process in job.ranks]


def series_of(text):
    """{name: [(labels, value)]}; each line is a comment or a series, and no series is there twice."""
    found = {}
    seen = set()
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SERIES.fullmatch(line)
        assert match, line
        labels = dict(LABEL.findall(match[2]))
        key = (match[1], tuple(sorted(labels.items())))
        assert key not in seen, line
        seen.add(key)
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def is_complete(text, ranks):
    """Whether the ranks have made all their calls, and are outside."""
    found = series_of(text)
    if [value for _, value in found.get("tutti_inside", [])] != [0] * ranks:
        return False
    counts = [value for labels, value in found.get("tutti_operation_seconds_count", [])
              if (labels["collective"], labels["size"]) == ("all_reduce", "up_to_64B")]
    return counts == [34] * ranks


def check_text(text, ranks):
    found = series_of(text)
    of = {}
    for what in ("seconds_count", "bytes_total"):
        for labels, value in found["tutti_operation_" + what]:
            assert labels["ranks"] == str(RANKS) and labels["host"] == os.uname().nodename, labels
            of.setdefault((int(labels["rank"]), labels["collective"], labels["size"]), []).append(value)
    assert of == {(rank, *kind): list(numbers) for rank in ranks for kind, numbers in CALLS.items()}, of
    assert len({labels["communicator"] for labels, _ in found["tutti_failed"]}) == 1, text
    for labels, value in found["tutti_operation_bus_bytes_total"]:
        factor = {"all_reduce": 1.5, "all_gather": 0.75, "all_gather_v": 0.75}.get(labels["collective"], 1)
        assert value == factor * of[int(labels["rank"]), labels["collective"], labels["size"]][1], labels
    for labels, value in found["tutti_operation_seconds_sum"]:
        assert value >= 0, labels
    for name in ("tutti_failed", "tutti_stopped", "tutti_inside", "tutti_waiting_seconds"):
        assert [value for _, value in found[name]] == [0] * len(ranks), found[name]
    begun = {(labels["rank"], labels["collective"]): value for labels, value in found["tutti_calls_total"]}
    assert begun == {(str(rank), name): count for rank in ranks for name, count in
                     (("all_reduce", 39), ("all_gather", 3), ("all_gather_v", 2), ("barrier", 2))}, begun
    assert {value for _, value in found["tutti_collective_number"]} == {46}, found["tutti_collective_number"]
    buckets = [(labels, value) for labels, value in found["tutti_operation_seconds_bucket"]]
    for labels, count in found["tutti_operation_seconds_count"]:
        own = [value for bucket, value in buckets if {name: bucket[name] for name in labels} == labels]
        assert len(own) == 14 and own == sorted(own) and own[-1] == count, own
    return found


def promtool(*arguments, **how):
    done = subprocess.run(["promtool", *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          **how)
    assert done.returncode == 0, done.stdout
    return done.stdout


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


has_promtool = shutil.which("promtool") is not None
has_prometheus = shutil.which("prometheus") is not None
host = os.uname().nodename
namespace = os.stat("/proc/self/ns/pid").st_ino
apart = "" if namespace == 0xEFFFFFFC else f".{namespace}"  # as in containers

# Files for node_exporter: each process writes its own, and takes it away at the end.
with tempfile.TemporaryDirectory() as folder:
    stale = f"{folder}/tutti-{host}-1.prom"
    others = [f"{folder}/tutti-{host}-1.prom.txt", f"{folder}/tutti-{host}-x.prom", f"{folder}/other.prom",
              f"{folder}/tutti-another-1.prom"]
    for name in [stale, *others]:
        open(name, "w", encoding="utf-8").close()
        os.utime(name, (1, 1))
    with Job(f"prom:{folder}", late=LATE) as job:
        names = [f"{folder}/tutti-{host}-{process.pid}{apart}.prom" for process in job.ranks]
        for rank, name in enumerate(names):
            await_that(lambda: os.path.exists(name) and is_complete(read(name), 1), name)
            found = check_text(read(name), [rank])
            if has_promtool:
                promtool("check", "metrics", input=read(name))
            # Each reduction of 256 KiB takes its vector out of the rank, and no algorithm sends it more than six times.
            sent = [(labels["peer_host"], value) for labels, value in found["tutti_sent_bytes_total"]]
            assert {to for to, _ in sent} == {host} and 5 * 262144 <= sum(b for _, b in sent) < 35 * 262144, sent
            waits = {int(labels["awaited"]): value for labels, value in found.get("tutti_waits_for_rank_total", [])}
            assert rank not in waits, waits
            if rank != LATE:
                assert found["tutti_waits_total"][0][1] >= 1 and found["tutti_waited_seconds_total"][0][1] >= 0.05, found
                assert waits, found
        threads_with = threads(job)
        assert not os.path.exists(stale)
        assert job.results() == [""] * RANKS
    assert sorted(glob.glob(f"{folder}/*")) == sorted(others), os.listdir(folder)
print("prom: passed")

def limit_descriptors(process, most):
    hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, hard))


def calls_in(name):
    """How many small all-reduces the lines of a file are about."""
    with contextlib.suppress(FileNotFoundError):
        lines = [json.loads(line) for line in read(name).splitlines()]
        return sum(line["tutti"]["calls"] for line in lines if line.get("coll_perf", {}).get("coll") == "AllReduce" and
                   line["coll_perf"]["coll_msg_size_bytes"] <= 64)
    return 0


# Lines: what is in none of the ranks any more is in the files, also of a job that ends within the interval.
for interval_ms in (100, 3600000):
    with tempfile.TemporaryDirectory() as folder:
        with Job(f"json:{os.path.relpath(folder)}", interval_ms) as job:
            told = [""] * RANKS
            if interval_ms == 100:
                # A process that cannot open any file for a time does not count its operations again afterwards.
                for process in job.ranks:
                    await_that(lambda: calls_in(f"{folder}/tutti-{host}-{process.pid}{apart}.jsonl") >= 34, "all calls")
                usual = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                for most in (3, usual):
                    for process in job.ranks:
                        limit_descriptors(process, most)
                    time.sleep(0.5)
                told = ["Too many open files"] * RANKS
            for expected, found in zip(told, job.results()):
                assert found == "" or expected and expected in found and found.count("\n") == 1, found
            names = [f"{folder}/tutti-{host}-{process.pid}{apart}.jsonl" for process in job.ranks]
            assert sorted(glob.glob(f"{folder}/*")) == sorted(names), os.listdir(folder)
            for rank, name in enumerate(names):
                sums = {}
                lines = [json.loads(line) for line in read(name).splitlines()]
                for line in lines:
                    kind = "coll" if "coll_perf" in line else "p2p"
                    assert set(line) == {"header", "metadata", kind + "_perf", "tutti"}, line
                    header, metadata, perf = line["header"], line["metadata"], line[kind + "_perf"]
                    assert re.fullmatch("[0-9a-f]{16}", header["id"]), line
                    assert header == {"id": lines[0]["header"]["id"], "comm_name": "", "rank": rank, "n_ranks": RANKS,
                                      "nnodes": 1}, line
                    assert abs(metadata.pop("dump_timestamp_us") / 1e6 - time.time()) < 10 * LIMIT_S, line
                    assert metadata == {"inspector_output_format_version": "v4.0", "git_rev": metadata["git_rev"],
                                        "rec_mechanism": "tutti", "hostname": host, "pid": job.ranks[rank].pid}, line
                    expected = [kind, kind + "_sn", "p2p_peer", kind + "_msg_size_bytes", kind + "_exec_time_us",
                                kind + "_timing_source", kind + "_algobw_gbs", kind + "_busbw_gbs"]
                    assert list(perf) == [key for key in expected if kind == "p2p" or key != "p2p_peer"], line
                    assert perf[kind + "_timing_source"] == "collective_cpu", line
                    mean = line["tutti"]["bytes"] / line["tutti"]["calls"]
                    assert abs(perf[kind + "_msg_size_bytes"] - mean) <= 0.5, line
                    key = (perf[kind], "large" if mean > 4096 else "small")
                    calls, total = sums.get(key, (0, 0))
                    sums[key] = (calls + line["tutti"]["calls"], total + line["tutti"]["bytes"])
                assert {(name, calls): (calls, total) for (name, _), (calls, total) in sums.items()} == LINES, sums
print("json: passed")

# Lines for a process that listens at a socket, which comes late.
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/agent.sock"
    with Job(f"unix:{path}") as job:
        time.sleep(0.3)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(16)
            listener.settimeout(LIMIT_S)
            peers = [listener.accept()[0] for _ in range(RANKS)]
            told = job.results()
            for peer in peers:
                peer.settimeout(LIMIT_S)
                text = b""
                while piece := peer.recv(65536):
                    text += piece
                lines = [json.loads(line) for line in text.decode().splitlines()]
                assert all(line["metadata"]["pid"] in [process.pid for process in job.ranks] for line in lines), text
                peer.close()
            assert all(line.count("\n") <= 1 for line in told), told
print("unix: passed")


def get(port, target="/metrics", method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{target}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, ""
    except OSError:
        return 0, {}, ""


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        with contextlib.suppress(OSError):
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
            return answer
    return b""


# A server, which answers for all processes of the host.
port = free_port()
with Job(f"http::{port}") as job:
    def communicators():
        status, _, text = get(port)
        if status != 200:
            return None
        found = series_of(text)
        pids = {labels["pid"] for labels, _ in found.get("tutti_process_info", [])}
        counts = {}
        for labels, value in found.get("tutti_operation_seconds_count", []):
            if (labels["collective"], labels["size"]) == ("all_reduce", "up_to_64B"):
                counts.setdefault(labels["communicator"], []).append(value)
        inside = {labels["communicator"] for labels, value in found["tutti_inside"] if value == 1}
        own = [name for name, values in counts.items() if values == [34] * RANKS and name not in inside]
        return own if own and {str(process.pid) for process in job.ranks} <= pids else None

    own = await_that(communicators, "the series of four ranks")[0]
    status, headers, text = get(port)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
    check_text("\n".join(line for line in text.splitlines() if f'communicator="{own}"' in line), range(RANKS))
    if has_promtool:
        promtool("check", "metrics", input=text)
    assert get(port, "/metrics?name=x")[0] == 200
    assert get(port, "/")[0] == 404 and get(port, "/metricsx")[0] == 404
    assert get(port, "/metrics", "POST")[0] == 405
    status, headers, body = get(port, "/metrics", "HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 1000 and body == "", headers
    # Tokens and cookies may be long. What follows them is heard.
    for request in (b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + b"x" * 20000 + b"\r\nA: b\r\n\r\n",
                    b"GET http://localhost:%d/metrics?a=b HTTP/1.1\r\n\r\n" % port):
        assert raw(port, request).startswith(b"HTTP/1.1 200"), request
    for garbage in (b"\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"\0" * 10000, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 1000,
                    b"x" * 100000, b"GET / HT"):
        assert not raw(port, garbage).startswith(b"HTTP/1.1 200"), garbage
    # Clients that say nothing, or half a request, and read nothing.
    idle = [socket.create_connection(("127.0.0.1", port), LIMIT_S) for _ in range(300)]
    for index, client in enumerate(idle):
        with contextlib.suppress(OSError):
            client.sendall([b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\n\r\n"][index % 3])
    await_that(lambda: get(port)[0] == 200, "an answer beside idle clients")
    for client in idle:
        client.close()
    # A stopped rank can be read; another process answers.
    job.ranks[0].send_signal(signal.SIGSTOP)
    def one_stopped():
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(request, timeout=2) as answer:
                found = series_of(answer.read().decode())
                return [labels["rank"] for labels, value in found["tutti_stopped"]
                        if value == 1 and labels["communicator"] == own] == ["0"]
    await_that(one_stopped, "the stopped rank")
    job.ranks[0].send_signal(signal.SIGCONT)
    if has_prometheus:
        with tempfile.TemporaryDirectory() as folder:
            listens = free_port()
            with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
                file.write(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{os.path.abspath(rules)}]\n"
                           f"scrape_configs: [{{job_name: tutti, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n")
            with subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}",
                                   f"--web.listen-address=127.0.0.1:{listens}", "--log.level=error"]) as server:
                def query(text):
                    where = f"http://127.0.0.1:{listens}/api/v1/query?" + urllib.parse.urlencode({"query": text})
                    with contextlib.suppress(OSError), urllib.request.urlopen(where, timeout=LIMIT_S) as answer:
                        return [(r["metric"], float(r["value"][1])) for r in json.load(answer)["data"]["result"]]
                try:
                    total = f'sum(tutti_operation_seconds_count{{communicator="{own}",collective="all_reduce"}})'
                    await_that(lambda: [value for _, value in query(total) or []] == [39 * RANKS], total)
                    ranks = await_that(lambda: query(f'tutti_collective_number{{communicator="{own}"}}'), "ranks")
                    assert sorted(labels["rank"] for labels, _ in ranks) == [str(rank) for rank in range(RANKS)], ranks
                    # Each query of the dashboard is one that Prometheus understands.
                    with open(dashboard, encoding="utf-8") as file:
                        panels = json.load(file)["panels"]
                    for panel in panels:
                        for target in panel["targets"]:
                            text = target["expr"].replace("$communicator", ".*").replace("$collective", ".*")
                            assert query(text.replace("$__rate_interval", "1m")) is not None, target
                finally:
                    server.terminate()
                    server.wait(LIMIT_S)
    assert job.results() == [""] * RANKS
print("http: passed")

# Without the setting: no thread, no socket, and no measures in the file of events.
with Job(None) as job:
    def sizes():
        found = [os.stat(fd).st_size for process in job.ranks for fd in glob.glob(f"/proc/{process.pid}/fd/*")
                 if os.path.islink(fd) and "memfd:tutti-events" in os.readlink(fd)]
        return found if len(found) == RANKS else None
    small = await_that(sizes, "files of events")
    assert all(size <= 4096 + 8192 for size in small), small
    await_that(lambda: threads(job) == [number - 1 for number in threads_with], "as many threads, without the monitor")
    assert job.results() == [""] * RANKS

# What cannot be written: one warning, and the job runs on.
with tempfile.TemporaryDirectory() as folder:
    missing = f"{folder}/missing"
    for metrics in (f"prom:{missing}", f"json:{missing}", "neither", "http:not an address", f"unix:{folder}"):
        with Job(metrics) as job:
            time.sleep(0.5)
            for told in job.results():
                assert told.count("\n") == 1 and "warn" in told and "TUTTI_METRICS" in told, (metrics, told)
    # As on a full disk: files may not grow beyond a size that one of them has already.
    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))

    with Job(f"json:{folder}", 100, limit_files) as job:
        for process in job.ranks:
            with open(f"{folder}/tutti-{host}-{process.pid}{apart}.jsonl", "w", encoding="utf-8") as file:
                file.truncate(65536 - 100)
        for told in job.results():
            assert told.count("TUTTI_METRICS") == 1, told
        for process in job.ranks:
            assert os.path.getsize(f"{folder}/tutti-{host}-{process.pid}{apart}.jsonl") == 65536 - 100, "a part of a line"
print("errors: passed")

if has_promtool:
    promtool("check", "rules", rules)
    promtool("test", "rules", rules_test)
    print("rules: passed")
if not (has_promtool and has_prometheus):
    print("not tested, because Prometheus is not installed: the rules, the dashboard's queries, and a scrape")
