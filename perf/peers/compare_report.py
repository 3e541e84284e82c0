"""What perf/compare prints and writes. See there."""

import datetime
import itertools
import json
import math
import os
import platform
import statistics
import sys

from compare_options import REDUCING
from tutti_plot import draw, format_size

YARDSTICK_BYTES = 8


class CompareError(Exception):
    """An error message for the user; the program ends with status 1."""


def median_us(column, size):
    times_s = column.times_s.get(size)
    return statistics.median(times_s) * 1e6 if times_s else None


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else None


def format_number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(column, other, size):
    """How many times as fast `column` is as `other`."""
    mine, theirs = median_us(column, size), median_us(other, size)
    return theirs / mine if mine and theirs else None


def best_peer(columns, size):
    timed = [column for column in columns if column.peer and median_us(column, size)]
    return min(timed, key=lambda column: median_us(column, size)) if timed else None


def print_times(columns, sizes):
    print("#\n# median time of one operation (us)")
    print("# " + f"{'size':>8}" + "".join(f"{column.title:>16}" for column in columns))
    for size in sizes:
        print("  " + f"{format_size(size):>8}" + "".join(
            f"{format_number(median_us(column, size)):>16}" for column in columns))


def print_ratios(columns, sizes, ours):
    peers = [column for column in columns if column.peer]
    if not peers:
        return
    print(f"#\n# {ours.title} is this many times as fast (above 1: faster)")
    print("# " + f"{'size':>8}{'best peer':>16}" + "".join(f"{peer.title:>16}" for peer in peers))
    collected = [[] for _ in range(len(peers) + 1)]
    for size in sizes:
        best = best_peer(columns, size)
        row = [ratio(ours, best, size) if best else None] + [ratio(ours, peer, size) for peer in peers]
        for values, value in zip(collected, row):
            if value is not None:
                values.append(value)
        print("  " + f"{format_size(size):>8}" + "".join(f"{format_number(value):>16}" for value in row))
    print("  " + f"{'geomean':>8}" + "".join(f"{format_number(geometric_mean(values)):>16}" for values in collected))


def print_yardstick(collective, columns):
    stick = next((column for column in columns if column.title == "yardstick"), None)
    bound_us = median_us(stick, YARDSTICK_BYTES) if stick else None
    if bound_us is None:
        return
    what = "ping-pong, one way" if collective == "ping_pong" else "exchange"
    print(f"#\n# hand-written {YARDSTICK_BYTES}-byte {what}: {bound_us:.3f} us; of that, at {YARDSTICK_BYTES} B, take")
    for column in columns:
        time_us = median_us(column, YARDSTICK_BYTES)
        if column is not stick and time_us is not None:
            print(f"#   {column.title:<16} {time_us / bound_us:8.2f} times")


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def open_beside(path):
    """Makes the file and returns its name: path.0 and so on if a file with contents exists, as in the perf programs."""
    if os.path.exists(path) and not (os.path.isfile(path) and os.path.getsize(path) > 0):
        with open(path, "ab"):
            return path
    for name in itertools.chain([path], (f"{path}.{number}" for number in itertools.count())):
        try:
            with open(name, "xb"):
                return name
        except FileExistsError:
            pass


def describe(options, columns, sizes):
    """The JSON object."""
    results = []
    for column in columns:
        for size in sizes:
            times_us = [time_s * 1e6 for time_s in column.times_s.get(size, [])]
            if not times_us:
                continue
            best = best_peer(columns, size)
            moved = column.library.moved[size]
            results.append({
                "library": column.title, "version": column.library.version, "memory": column.memory,
                "collective": options.collective, "bytes": size, "datatype": "float", "op": "sum" if options.collective in REDUCING else "none",
                "ranks": options.ranks, "transport": options.transport,
                "time_us": {"min": min(times_us), "median": statistics.median(times_us), "max": max(times_us)},
                "rounds_us": times_us,
                **({"skew": options.skew, "busbw_gbs": moved / statistics.median(times_us) / 1e3} if options.skew else {}),
                "times_as_fast_as_best_peer": None if best is None else ratio(column, best, size),
            })
    return {
        "format": "tutti comparison", "schema": 1, "arguments": sys.argv,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"host": platform.node(), "cpu": cpu_model(), "cores": os.cpu_count(),
                    "kernel": platform.release()},
        "rounds": options.rounds, "results": results,
        "failed": {column.title: column.library.failure for column in columns if column.library.failure},
    }


def report(options, columns, sizes):
    for title, version in {column.title: column.library.version for column in columns}.items():
        print(f"# {title}: {version}")
    print_times(columns, sizes)
    for column in columns:
        if column.title.startswith("tutti"):
            print_ratios(columns, sizes, column)
    print_yardstick(options.collective, columns)
    if options.json:
        print(f"#\n# results: {options.json}")
        with open(options.json, "w", encoding="utf-8") as output:
            json.dump(describe(options, columns, sizes), output, indent=1)
            output.write("\n")
    if options.plot:
        draw(describe(options, columns, sizes), options.plot)
