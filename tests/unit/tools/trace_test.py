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


def by_row(events, category="tutti"):
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == category:
            rows[event["pid"], event["tid"]].append(event)
    return rows


def check_steps(events):
    """Each row has the steps of one lane; they lie in their operations, and their messages match."""
    operations = {}  # by process and number
    for row, slices in by_row(events).items():
        for slice in slices:
            operations[row[0], slice["args"]["number"]] = slice
    stepped = collections.defaultdict(list)
    for row, slices in by_row(events, "step").items():
        for before, after in zip(slices, slices[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.002, (before, after)
        for slice in slices:
            operation = operations[row[0], slice["args"]["number"]]
            assert operation["ts"] - 0.002 <= slice["ts"], (operation, slice)
            assert slice["ts"] + slice["dur"] <= operation["ts"] + operation["dur"] + 0.002, (operation, slice)
            stepped[slice["args"]["number"]].append((row[0], slice))
    assert len(stepped) > 100, stepped.keys()
    for number, steps in stepped.items():
        assert len({process for process, _ in steps}) == RANKS, number
        sent = sum(slice["args"]["bytes"] for _, slice in steps if slice["name"].startswith("send"))
        received = sum(slice["args"]["bytes"] for _, slice in steps if slice["name"].startswith("receive"))
        assert sent == received > 0, (number, sent, received)
    # All long operations have steps, and a few of the short ones.
    for (_, number), operation in operations.items():
        if operation["name"] != "all_reduce":
            continue
        count = int(operation["args"]["call"].split("count ")[1].split(",")[0])
        assert count < 65536 or number in stepped, operation
    # What the simulator predicts begins with the operation.
    predicted = collections.defaultdict(list)
    for row, slices in by_row(events, "predicted").items():
        for slice in slices:
            predicted[row[0], slice["args"]["number"]].append(slice)
    assert {number for _, number in predicted} == stepped.keys(), stepped.keys() - {number for _, number in predicted}
    for key, slices in predicted.items():
        assert -0.002 <= min(slice["ts"] for slice in slices) - operations[key]["ts"], key
        assert operations[key]["args"]["plan"].startswith(f"by {slices[0]['args']['algorithm']}, "), key


with tempfile.TemporaryDirectory() as folder:
    events, told = trace(folder, all_reduce_perf, "-p", str(RANKS), "-b", "8", "-e", "1M", "-f", "8", "-n", "300")
    check_steps(events)
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
    slices = [event for event in events if event["ph"] == "X" and event["cat"] == "tutti"]
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
