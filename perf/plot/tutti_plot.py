#!/usr/bin/env python3
"""Draws what all_reduce_perf and its siblings, or perf/compare, have measured, or tutti simulate has predicted: latency
of small messages, time and bus bandwidth against size.

Reads the JSON object that their option -J writes, or tutti simulate --json. They draw with this themselves (--plot,
tutti simulate --svg)."""

import argparse
import io
import json
import math
import os
import sys

FIX = "drawing needs matplotlib: install Debian's python3-matplotlib (for /usr/bin/python3), or pip's matplotlib"
USAGE_STATUS = 2
FORMATS = ("svg", "png", "pdf")
# Bus bandwidth over algorithm bandwidth, of n ranks, as nccl-tests count.
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1 if n > 1 else 0,
    "reduce": lambda n: 1 if n > 1 else 0,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "scan": lambda n: 1 if n > 1 else 0,
    "exscan": lambda n: 1 if n > 1 else 0,
    "sendrecv": lambda n: 1 if n > 1 else 0,
    "ping_pong": lambda n: 1 if n > 1 else 0,
}
DIAMOND = {"marker": "D", "markersize": 6, "markeredgecolor": "black", "markeredgewidth": 0.7, "zorder": 5}
MANY_LINES = 4
PANEL_INCHES = (4.0, 4.0)  # three panels are legible in a picture of 1,000 pixels
GREY = "0.7"  # of lines that are nowhere the best
FAR_APART = 8  # times as long at one size: latencies then need a logarithmic axis
LATENCY_BYTES = 16 << 10  # up to here the time of a call is mostly latency


class PlotError(Exception):
    """An error message for the user."""


def restart_where_matplotlib_is():
    """A private interpreter often lacks matplotlib where Debian's own has it."""
    debian = "/usr/bin/python3"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if os.path.realpath(sys.executable) != os.path.realpath(debian) and os.access(debian, os.X_OK):
            os.execv(debian, [debian] + sys.argv)


def require_matplotlib():
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError(f"{FIX} ({error})") from error
    matplotlib.use("agg")


def format_size(size):
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def name_of(entry):
    """Of the line that the entry is a point of."""
    if "library" in entry:
        return entry["library"]
    words = [entry["datatype"]]
    if entry["op"] != "none":
        words.append(entry["op"])
    if entry["root"] >= 0:
        words.append(f"root {entry['root']}")
    if "skew" in entry:
        words.append(f"skew {entry['skew']:g}")
    if entry["in_place"]:
        words.append("in place")
    return " ".join(words)


def measured_points(entries):
    """(name of the line, bytes, us, GB/s) of each."""
    for entry in entries:
        size, ranks, time_us = entry["bytes"], entry["ranks"], entry["time_us"]["median"]
        if size > 0 and time_us > 0:
            bus_gbs = entry.get("busbw_gbs", None)
            if bus_gbs is None:
                bus_gbs = size / time_us / 1e3 * BUS_FACTORS[entry["collective"]](ranks)
            yield name_of(entry), size, time_us, bus_gbs


def simulated_points(entries):
    """The same; what could not be simulated has an error in place of a time."""
    for entry in entries:
        if entry["bytes"] > 0 and entry.get("time_us", 0) > 0:
            yield entry["algorithm"], entry["bytes"], entry["time_us"], entry["busbw_gbs"]


def lines_of(points):
    """name -> ([bytes], [us], [GB/s]), by size; the names in the order in which they come first."""
    lines = {}
    for name, *values in points:
        lines.setdefault(name, []).append(tuple(values))
    return {name: tuple(zip(*sorted(values))) for name, values in lines.items()}


def algorithms_of(entries):
    """name of the line -> [(bytes, algorithm)] from its first size on, and wherever another algorithm takes over."""
    lines = {}
    for entry in sorted(entries, key=lambda entry: entry["bytes"]):
        drawn = entry["bytes"] > 0 and entry["time_us"]["median"] > 0
        if drawn and entry.get("algorithm", "none") != "none":
            spans = lines.setdefault(name_of(entry), [])
            if not spans or spans[-1][1] != entry["algorithm"]:
                spans.append((entry["bytes"], entry["algorithm"]))
    return lines


def mark_algorithms(axes, lines, algorithms):
    """A diamond on each line where another algorithm takes over, of many lines on the highest, with its name above; where
    lines have the same at one size, it stands once."""
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    labels = {}  # size -> names, and the point that they stand above
    for name, spans in algorithms.items():
        sizes, times, _ = lines[name]
        for size, algorithm in spans:
            time = times[sizes.index(size)]
            names, above = labels.get(size, ([], 0))
            labels[size] = names + [algorithm] * (algorithm not in names), max(above, time)
            if size > spans[0][0] and len(lines) <= MANY_LINES:
                axes.plot([size], [time], color=colours[name], **DIAMOND)
    make_room(axes, [(" / ".join(names), above) for names, above in labels.values()])
    for size, (names, above) in labels.items():
        if size > min(labels) and len(lines) > MANY_LINES:
            axes.plot([size], [above], color="white", **DIAMOND)
        axes.annotate(" / ".join(names), (size, above), (0, 8), textcoords="offset points", rotation=90, fontsize=7.5,
                      ha="center", va="bottom")


def make_room(axes, labels):
    """For (text, from where) that go upwards: a character takes about 4.5 points of a panel that has 250."""
    low, high = map(math.log, axes.get_ylim())
    for text, above in labels:
        share = min(0.7, (4.5 * len(text) + 12) / 250)
        high = max(high, low + (math.log(above) - low) / (1 - share))
    axes.set_ylim(top=math.exp(high))


def draw_panel(axes, lines, column, title, unit, best=()):
    """`best`: the names of the lines that have colours; none: all have."""
    for number, (name, values) in enumerate(lines.items()):
        # There are ten colours.
        styles = {"linestyle": ("-", "--", ":", "-.")[number // 10 % 4], "markersize": 3.5,
                  "linewidth": 2.2 if name.startswith("tutti") else 1.4}
        if best:
            styles = {"linewidth": 1, "color": GREY, "markersize": 2}
        if name in best:
            styles = {"linewidth": 2, "zorder": 3, "color": f"C{best.index(name)}", "markersize": 3.5}
        axes.plot(values[0], values[column], marker="o", label=name, **styles)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("size (bytes)")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)


def crossing(before, after, size):
    """Where the lines of (bytes, us) meet on logarithmic axes, of which the second is below from `size` on."""
    sizes = [s for s in before[0] if s < size]
    if not sizes or size not in before[0] or sizes[-1] not in after[0]:
        return size
    gaps = [math.log(after[1][after[0].index(s)] / before[1][before[0].index(s)]) for s in (sizes[-1], size)]
    share = gaps[0] / (gaps[0] - gaps[1]) if gaps[0] > gaps[1] else 0.5
    return sizes[-1] * (size / sizes[-1]) ** min(1, max(0, share))


def best_spans(lines, best):
    """(name, from size, to size) where each is the fastest; None is the end of the axis."""
    switches = [crossing(lines[a["algorithm"]], lines[b["algorithm"]], b["from_bytes"]) for a, b in zip(best, best[1:])]
    return list(zip((one["algorithm"] for one in best), [None] + switches, switches + [None]))


def mark_best(axes, spans, named):
    """Each span in the colour of the line that is the best there, and a line where another one becomes it."""
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    left, right = axes.get_xlim()
    axes.set_xlim(left, right)
    for name, low, high in spans:
        axes.axvspan(low or left, high or right, color=colours[name], alpha=0.1, linewidth=0)
        if low:
            axes.axvline(low, color="black", linestyle=":", linewidth=1)
        if named:
            axes.annotate(name, (low or left, 1), (3, -5), xycoords=axes.get_xaxis_transform(),
                          textcoords="offset points", rotation=90, fontsize=7.5, ha="left", va="top")


def keep_to_best(time_axes, bandwidth_axes, lines, best):
    """Lines of what is hopelessly slow may leave the panels: else the others would be close together."""
    values = [lines[one["algorithm"]] for one in best]
    slowest = max(max(us) for _, us, _ in values)
    least = min(min(gbs) for _, _, gbs in values)
    time_axes.set_ylim(top=min(time_axes.get_ylim()[1], 20 * slowest))
    bandwidth_axes.set_ylim(bottom=max(bandwidth_axes.get_ylim()[0], least / 20))


def name_ends(axes, lines, best):
    """The name of each line of times at its right end, with as much room between them as letters need."""
    low, high = map(math.log, axes.get_ylim())
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    ends = []
    for name, (sizes, times, _) in lines.items():
        end = (math.log(times[-1]) - low) / (high - low)
        ends.append([min(1.0, end), name, sizes[-1], times[-1] if end <= 1 else math.exp(high)])
    ends.sort()
    gap = 0.047
    for i, end in enumerate(ends):  # upwards, then back from the upper edge
        end[0] = max(end[0], ends[i - 1][0] + gap if i else 0)
    for i in range(len(ends) - 1, -1, -1):
        ends[i][0] = min(ends[i][0], ends[i + 1][0] - gap if i + 1 < len(ends) else 1.0)
    for height, name, size, time in ends:
        axes.annotate(name, xy=(size, time), xytext=(1.08, height), textcoords="axes fraction", fontsize=8, va="center",
                      color=colours[name] if name in best else "0.35", fontweight="bold" if name in best else "normal",
                      arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 2})


def format_time(us):
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            return f"{us / factor:,.12g} {unit}"
    return f"{us:,.12g} µs"


def ratios_of(lines):
    """name of tutti's line -> ([bytes], how many times as fast as the fastest other library); {} without others."""
    others = [dict(zip(sizes, times)) for name, (sizes, times, _) in lines.items() if not name.startswith("tutti")]
    found = {}
    for name, (sizes, times, _) in lines.items():
        if name.startswith("tutti") and others:
            pairs = [(size, min(other[size] for other in others if size in other) / time)
                     for size, time in zip(sizes, times) if any(size in other for other in others)]
            if pairs:
                found[name] = tuple(zip(*pairs))
    return found


def draw_ratios(axes, ratios):
    """Above the line at 1 tutti is the faster one."""
    for name, (sizes, values) in ratios.items():
        axes.plot(sizes, values, marker="o", markersize=3.5, linewidth=2.2, label=name)
        if len(ratios) <= 2:
            for size, value in zip(sizes, values):
                axes.annotate(f"{value:.2g}", (size, value), (0, 5), textcoords="offset points", fontsize=7.5,
                              ha="center")
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    every = [1] + [value for _, values in ratios.values() for value in values]
    axes.set_ylim(0.8 * min(every), 1.25 * max(every))
    axes.set_title("speed against the best other library", fontsize=10)
    axes.set_xlabel("size (bytes)")
    axes.set_ylabel("times as fast (above 1: tutti is faster)")
    axes.grid(alpha=0.3)


def name_peak(axes, lines):
    """The highest bandwidth of all lines, as a number."""
    size, peak = max(((size, gbs) for sizes, _, all_gbs in lines.values() for size, gbs in zip(sizes, all_gbs)),
                     key=lambda point: point[1])
    low, high = axes.get_ylim()
    axes.set_ylim(top=max(high, peak * (high / low) ** 0.1))
    axes.annotate(f"{peak:.3g} GB/s", (size, peak), (0, 7), textcoords="offset points", fontsize=8, ha="center")


def about_measurement(results):
    """What was measured, and below it on what machine, by which version and when."""
    entries, machine = results["results"], results["machine"]
    first = entries[0]
    over = ", ".join(sorted({part for entry in entries for part in entry["transport"].split(", ")}))
    hosts = len({place["host"] for place in results.get("job", [])})
    what = [f"{first['collective']}, {first['ranks']} ranks{f' on {hosts} hosts' if hosts > 1 else ''} over {over}"]
    if "memory" in results:
        what.append(f"{results['memory']} memory, {results['calls']}")
    where = [machine["cpu"], *([f"{machine['cores']} cores"] if "cores" in machine else []),
             *([f"host {machine['host']}"] if "host" in machine else [])]
    if "version" in results:
        where.append(f"tutti {results['version']}")
    day = (results.get("started") or results.get("date") or "")[:10]
    return ", ".join(what) + "\n" + ", ".join(where + ([day] if day else []))


def latency_sizes(lines):
    """How many sizes the latency panel has; 0 if it would show nothing that the panel of times does not."""
    sizes = {size for values in lines.values() for size in values[0]}
    small = [size for size in sizes if size <= LATENCY_BYTES]
    return len(small) if 2 <= len(small) < len(sizes) else 0


def up_to(lines, most):
    """The lines, of sizes up to this."""
    kept = {name: tuple(zip(*[point for point in zip(*values) if point[0] <= most])) for name, values in lines.items()}
    return {name: values for name, values in kept.items() if values}


def label_sizes(axes, lines, ticker):
    """At most a dozen labels, on sizes that were measured."""
    sizes = sorted({size for values in lines.values() for size in values[0]})
    axes.set_xticks(sizes[::(len(sizes) + 11) // 12])
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_size(int(value))))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(axis="x", labelsize=8, rotation=45 if len(sizes) > 8 else 0)


def draw_latency(axes, lines, ticker):
    """Small messages, with times that can be compared by their heights."""
    draw_panel(axes, lines, 1, "latency of small messages (lower is better)", "time (µs)")
    by_size = {}
    for sizes, times, _ in lines.values():
        for size, time in zip(sizes, times):
            by_size.setdefault(size, []).append(time)
    if max(max(times) / min(times) for times in by_size.values()) > FAR_APART:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    else:
        axes.set_yscale("linear")
        # One point far above the others of its line does not press all together, but no line is out of sight.
        highest = [sorted(times)[-2:] for _, times, _ in lines.values()]
        axes.set_ylim(bottom=0, top=1.1 * max(min(times[-1], 3 * times[0]) for times in highest))
    label_sizes(axes, lines, ticker)


def picture_of(results):
    """The lines, what the times are, what is above the panels, and of a simulation which were the best."""
    entries = results["results"]
    if results.get("format") == "tutti simulation":
        lines = lines_of(simulated_points(entries))
        hosts = results["hosts"]
        best = results.get("best", []) if len(lines) > 1 else []
        about = f"{results['collective']}, {results['ranks']} ranks on {hosts} host{'s' if hosts > 1 else ''}, predicted"
        return lines, "predicted", about, best
    lines = lines_of(measured_points(entries))
    if not lines:
        return {}, "", "", []
    return lines, "median", about_measurement(results), []


def draw(results, path, suffix=None):
    """Writes the picture; `suffix`: svg, png or pdf, else that of the path. REQUIRES: matplotlib."""
    suffix = suffix or suffix_of(path)
    from matplotlib import pyplot, ticker

    lines, kind, about, best = picture_of(results)
    if not lines:
        raise PlotError("nothing to draw: no size has any bytes, or nothing was measured")
    algorithms = algorithms_of(results["results"]) if kind == "median" else {}
    with_latency = kind == "median" and latency_sizes(lines) > 0
    ratios = ratios_of(lines) if results.get("format") == "tutti comparison" else {}
    count = 3 if with_latency else 2
    wide = 1.25 if best else 1  # with room for the names of the lines
    figure, axes_of_all = pyplot.subplots(1, count, figsize=(PANEL_INCHES[0] * count * wide, PANEL_INCHES[1]),
                                          layout="constrained")
    if with_latency:
        draw_latency(axes_of_all[0], up_to(lines, LATENCY_BYTES), ticker)
    panels = axes_of_all[-2:]
    names = list(dict.fromkeys(one["algorithm"] for one in best))
    draw_panel(panels[0], lines, 1, f"{kind} time (lower is better)", "time" if best else "time (µs)", names)
    if ratios:
        draw_ratios(panels[1], ratios)
    else:
        draw_panel(panels[1], lines, 2, "bus bandwidth (higher is better)", "bandwidth (GB/s)", names)
    if best:
        keep_to_best(*panels, lines, best)
    for axes in panels:
        label_sizes(axes, lines, ticker)
        low, high = axes.get_ylim()
        if high < 300 * low:
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        with_unit = best and axes is panels[0]
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(
            lambda value, _, unit=with_unit: format_time(value) if unit else f"{value:,.12g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        mark_best(axes, best_spans(lines, best), named=axes is panels[0])
    if not ratios:
        name_peak(panels[1], lines)
    if algorithms:
        mark_algorithms(panels[0], lines, algorithms)
    if best:
        name_ends(panels[0], lines, names)
    else:
        # Below the panels, where no line is; the picture grows as the legend needs it.
        figure.legend(*panels[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0), fontsize=9,
                      ncols=min(6, len(lines)))
    figure.suptitle(about, fontsize=11)
    picture = io.BytesIO()
    figure.savefig(picture, format=suffix, dpi=120, bbox_inches="tight")
    if path == "-":
        sys.stdout.buffer.write(picture.getvalue())
        return
    # The old contents stay until the new ones are complete.
    with open(path, "wb") as output:
        output.write(picture.getvalue())


def suffix_of(path):
    suffix = os.path.splitext(path)[1][1:].lower()
    if suffix not in FORMATS:
        raise PlotError(f"'{path}' ends in none of .svg, .png and .pdf")
    return suffix


def main():
    parser = argparse.ArgumentParser(prog="tutti_plot", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", default="-", metavar="RESULTS.json", help="default: standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="the picture: FILE.svg, .png or .pdf; - is standard output")
    parser.add_argument("--format", choices=FORMATS, help="of the picture, whatever the file is called")
    parser.add_argument("--check", action="store_true", help="only tell whether drawing is possible; status 2 if not")
    options = parser.parse_args()
    if not options.check and not options.output:
        parser.error("-o says where the picture is to be")
    restart_where_matplotlib_is()
    try:
        require_matplotlib()
        if options.check:
            return 0
        if options.results == "-":
            results = json.load(sys.stdin)
        else:
            with open(options.results, encoding="utf-8") as source:
                results = json.load(source)
        draw(results, options.output, options.format or suffix_of(options.output))
    except KeyError as error:
        print(f"tutti_plot: {options.results}: {error} is missing: not a file of results", file=sys.stderr)
        return 1
    except (PlotError, OSError, ValueError) as error:
        print(f"tutti_plot: {error}", file=sys.stderr)
        return USAGE_STATUS if options.check else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
