#!/usr/bin/env python3
"""Ranges of NVTX, as a tool that is attached to the process gets them.

Usage: nvtx_test.py TOOL_LIBRARY ALL_REDUCE_PERF SENDRECV_PERF
"""
import collections
import glob
import os
import subprocess
import sys
import tempfile

tool, all_reduce_perf, sendrecv_perf = sys.argv[1:]
if tool == "none":
    print("skipped: there is no header nvtx3/nvToolsExt.h, of CUDA")
    sys.exit(77)
RANKS = 2
LIMIT_S = 100


def run(program, **settings):
    """The (name, bytes) of the ranges of each process, in the order of their begins."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NVTX_TOOL_OUT": os.path.join(folder, "ranges")} | settings
        subprocess.run([program, "-p", str(RANKS), "-b", "8", "-e", "64K", "-f", "8", "-n", "20", "-w", "5"],
                       env=environment, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
        processes = []
        for path in glob.glob(os.path.join(folder, "ranges.*")):
            with open(path, encoding="utf-8") as file:
                lines = [line.split() for line in file]
            if ["domain", "tutti"] not in lines:
                continue  # the process that starts the others
            assert sum(line[0] == "domain" for line in lines) == 1, lines[:10]
            open_ranges, ranges = {}, []
            for line in lines:
                if line[0] == "start":
                    assert line[1] == "tutti", line
                    assert not open_ranges, (open_ranges, line)  # a rank runs one operation at a time
                    open_ranges[line[2]] = line
                    ranges.append((line[3], int(line[4])))
                elif line[0] == "end":
                    del open_ranges[line[1]]
            assert not open_ranges, open_ranges
            processes.append(ranges)
        return processes


processes = run(all_reduce_perf, NVTX_INJECTION64_PATH=tool)
assert len(processes) == RANKS, processes
for ranges in processes:
    counts = collections.Counter(ranges)
    for size in (8, 64, 512, 4096, 32768):
        # In and out of place.
        assert counts["all_reduce", size] >= 2 * 25, (size, counts)
assert processes[0] == processes[1]

processes = run(sendrecv_perf, NVTX_INJECTION64_PATH=tool)
assert len(processes) == RANKS, processes
for ranges in processes:
    counts = collections.Counter(name for name, size in ranges if name in ("send", "recv") and size >= 8)
    assert sum(counts.values()) >= 5 * 25, counts

# No tool, or one that cannot be loaded: the job runs.
assert run(all_reduce_perf, NVTX_INJECTION64_PATH="/nonexistent/tool.so") == []
assert run(all_reduce_perf) == []
print("passed")
