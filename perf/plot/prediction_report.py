#!/usr/bin/env python3
"""How far predictions are from what was measured, and what choices cost: of the tables of `tutti tune --times`.

usage: prediction_report.py [--explain TUTTI] TIMES [AGAIN]

For each job of TIMES (ranks, transports): of how many times the median and the 90th percentile of
|predicted / measured - 1|; and what the choice costs, as the ratio of the time of the algorithm that is chosen to that
of the fastest one: of the one that is predicted to be fastest, and, with AGAIN, of the one that was fastest in TIMES,
both by the times of AGAIN (without AGAIN by those of TIMES). Of TIMES' algorithms alone: what `tutti tune` has given up
at smaller sizes is not among them.

With --explain a line more for each job over shm: what is chosen by `TUTTI explain`, in this environment (TUTTI_TUNING),
among all algorithms. What it chooses and was not measured, or was given up, is counted and not in the mean.
"""

import argparse
import csv
import math
import subprocess
import sys
from collections import defaultdict


def read(path):
    """Rows by job, then by (collective, bytes), then by algorithm: (measured, predicted) in microseconds."""
    jobs = defaultdict(lambda: defaultdict(dict))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            job = (int(row["ranks"]), int(row["hosts"]), row["transports"], float(row["ranks_per_cpu"]))
            times = (float(row["measured_us"]), float(row["predicted_us"] or "nan"))
            if times[0] > 0 and times[1] > 0:
                jobs[job][row["collective"], int(row["bytes"])][row["algorithm"]] = times
    if not jobs:
        sys.exit(f"{path}: no predicted times")
    return jobs


def percentile(values, share):
    values = sorted(values)
    return values[int(share * (len(values) - 1))]


def losses(cells, again, which):
    """Of each cell, the time of the algorithm that `which` column of `cells` has least, over the least time of all."""
    ratios = []
    for key, cell in cells.items():
        times = again.get(key, {})
        chosen = min(cell, key=lambda name: cell[name][which])
        if chosen in times:
            ratios.append(times[chosen][0] / min(us for us, _ in times.values()))
    return ratios


def explained(tutti, job, cells, again):
    """The losses of what `tutti explain` chooses in the cells, and of how many its choice has no time."""
    ranks, _, _, ranks_per_cpu = job
    ratios = []
    unknown = 0
    for collective, size in cells:
        times = again.get((collective, size), {})
        if not times:
            continue
        command = [tutti, "explain", collective, "--per-host", str(ranks), "-s", str(size),
                   "--cores", str(round(ranks / ranks_per_cpu))]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        chosen = next(line.split()[1] for line in lines if line.startswith("> "))
        if chosen in times:
            ratios.append(times[chosen][0] / min(us for us, _ in times.values()))
        else:
            unknown += 1
    return ratios, unknown


def text_of(ratios):
    if not ratios:
        return f"{'-':>24}"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    over = sum(ratio > 1.15 for ratio in ratios)
    return f"{mean:8.3f} {percentile(ratios, 0.9):7.2f} {over:4d}/{len(ratios):<4d}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", metavar="TIMES")
    parser.add_argument("again", metavar="AGAIN", nargs="?")
    parser.add_argument("--explain", metavar="TUTTI", help="the tutti command")
    given = parser.parse_args(arguments)
    jobs = read(given.times)
    again = read(given.again) if given.again else None
    print(f"{'':24} {'error of predictions':>24}   {'predicted to be fastest':>26}   {'measured to be fastest':>26}")
    print(f"{'job':24} {'times':>6} {'median':>8} {'90th':>8}   {'mean':>8} {'90th':>7} {'>1.15':>9}   "
          f"{'mean':>8} {'90th':>7} {'>1.15':>9}")
    every = []
    for job in sorted(jobs, key=lambda one: (one[2], one[0])):
        cells = jobs[job]
        errors = [abs(predicted / us - 1) for cell in cells.values() for us, predicted in cell.values()]
        every += errors
        other = cells if again is None else again.get(job, {})
        measured = [] if again is None else losses(cells, other, 0)
        name = f"{job[0]} ranks, {job[1]} hosts, {job[2]}"
        print(f"{name:24} {len(errors):6d} {percentile(errors, 0.5):8.0%} {percentile(errors, 0.9):8.0%}   "
              f"{text_of(losses(cells, other, 1))}   {text_of(measured)}")
        if given.explain and job[1] == 1:
            ratios, unknown = explained(given.explain, job, cells, other)
            print(f"{'  as explain chooses':24} {'':24}   {text_of(ratios)}   {unknown} not measured")
    print(f"{'all':24} {len(every):6d} {percentile(every, 0.5):8.0%} {percentile(every, 0.9):8.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
