#!/usr/bin/env python3
"""Traces jobs, and compares the merged timeline with what the ranks have called.

Usage: trace_test.py TUTTI ALL_REDUCE_PERF SENDRECV_PERF
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

tutti, all_reduce_perf, sendrecv_perf = sys.argv[1:]
RANKS = 4
LIMIT_S = 100


def trace(folder, *command):
    environment = os.environ | {"TUTTI_TRACE": os.path.join(folder, "traced")}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
    assert len(os.listdir(os.path.join(folder, "traced"))) == RANKS
    return merge(folder)


def merge(folder):
    path = os.path.join(folder, "trace.json")
    told = subprocess.run([tutti, "trace", "merge", os.path.join(folder, "traced"), "-o", path], text=True,
                          stdout=subprocess.PIPE, check=True, timeout=LIMIT_S).stdout
    with open(path, encoding="utf-8") as file:
        return json.load(file)["traceEvents"], told


def by_row(events):
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    return rows


with tempfile.TemporaryDirectory() as folder:
    events, told = trace(folder, all_reduce_perf, "-p", str(RANKS), "-b", "8", "-e", "1M", "-f", "8", "-n", "300")
    rows = by_row(events)
    assert sum(len(slices) for slices in rows.values()) == int(told.split()[0]), told
    # Each communicator has as many rows as ranks, with the same calls.
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["ph"] == "M" and event["name"] == "thread_name"}
    communicators = collections.defaultdict(list)
    for row, slices in rows.items():
        communicators[names[row].split("communicator ")[1]].append(slices)
    shared = [of_ranks for of_ranks in communicators.values() if len(of_ranks) == RANKS]
    assert shared, names
    calls = 0
    for of_ranks in shared:
        assert len({tuple(slice["args"]["call"] for slice in slices) for slices in of_ranks}) == 1
        for slices in of_ranks:
            assert [slice["args"]["number"] for slice in slices] == list(range(1, len(slices) + 1))
            calls += sum(slice["name"] == "all_reduce" for slice in slices)
            for before, after in zip(slices, slices[1:]):
                assert before["ts"] + before["dur"] <= after["ts"] + 0.002, (before, after)
        # No rank ends an all-reduce before all have begun it.
        for together in zip(*of_ranks):
            if together[0]["name"] == "all_reduce":
                assert max(one["ts"] for one in together) <= min(one["ts"] + one["dur"] for one in together), together
                assert len({one["args"]["last_rank"] for one in together}) == 1, together
                assert together[0]["args"]["plan"].startswith("by "), together
    assert calls > 6 * 300 * RANKS, calls

with tempfile.TemporaryDirectory() as folder:
    events, told = trace(folder, sendrecv_perf, "-p", str(RANKS), "-b", "8", "-e", "64K", "-f", "8", "-n", "50")
    slices = [event for event in events if event["ph"] == "X"]
    sends = [event for event in slices if event["name"] == "send"]
    receives = [event for event in slices if event["name"] == "recv"]
    assert len(sends) == len(receives) > 5 * 50 * RANKS, (len(sends), len(receives))
    begun = {event["id"]: event for event in events if event["ph"] == "s" and event["name"] == "message"}
    ended = {event["id"]: event for event in events if event["ph"] == "f" and event["name"] == "message"}
    assert begun.keys() == ended.keys() and len(begun) == len(sends)
    assert all(begun[i]["ts"] <= ended[i]["ts"] and begun[i]["tid"] != ended[i]["tid"] for i in begun)

# Without the setting there is nothing to merge.
with tempfile.TemporaryDirectory() as folder:
    none = subprocess.run([tutti, "trace", "merge", folder], stderr=subprocess.PIPE, text=True, check=False)
    assert none.returncode == 2 and "no process has left a trace" in none.stderr, none
print("passed")
