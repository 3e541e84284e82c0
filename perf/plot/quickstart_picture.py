#!/usr/bin/env python3
"""Draws time and bus bandwidth against size, from the file that all_reduce_perf -J or perf/compare -J has written, and
prints what the picture shows in one sentence. tools/quickstart ends with it: it needs Python alone, where tutti_plot,
which draws more, needs matplotlib."""

import argparse
import json
import math
import sys
from html import escape

from tutti_plot import about_measurement, format_size, lines_of, measured_points

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00")
# In pixels: the axes of a panel, and what is left of, above, below and right of them.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 340, 280, 72, 110, 84, 24
TIME, BANDWIDTH = 1, 2  # columns of a line; column 0 is the size


def text(x, y, words, size=12, anchor="middle", turned=False):
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turn}>{escape(words)}</text>'


def labelled_values(low, high):
    """1, 2 and 5 times the powers of ten between low and high; of a wide range the powers alone."""
    factors = (1, 2, 5) if high < 300 * low else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [value for value in (factor * 10.0**exponent for exponent in exponents for factor in factors)
            if low <= value <= high]


def panel(number, lines, column, title, unit):
    """The SVG of one pair of logarithmic axes with a line for each name; panel 0 is at the left."""
    left = number * (LEFT + WIDTH + RIGHT) + LEFT
    sizes = sorted({size for line in lines.values() for size in line[0]})
    values = [value for line in lines.values() for value in line[column] if value > 0]
    low, high = min(values) / 1.3, max(values) * 1.3
    first, last = sizes[0] / 1.5, sizes[-1] * 1.5

    def x(size):
        return left + WIDTH * math.log(size / first) / math.log(last / first)

    def y(value):
        return TOP + HEIGHT * (1 - math.log(max(value, low) / low) / math.log(high / low))

    parts = [text(left + WIDTH / 2, TOP - 10, title, 13), text(left + WIDTH / 2, TOP + HEIGHT + 42, "size (bytes)"),
             text(left - 54, TOP + HEIGHT / 2, unit, turned=True),
             f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#333333"/>']
    for value in labelled_values(low, high):
        parts += [f'<path d="M{left} {y(value):.1f}h{WIDTH}" stroke="#dddddd"/>',
                  text(left - 6, y(value) + 4, f"{value:,.12g}", 11, "end")]
    for size in sizes[::-(-len(sizes) // 8)]:
        parts += [f'<path d="M{x(size):.1f} {TOP}v{HEIGHT}" stroke="#dddddd"/>',
                  text(x(size), TOP + HEIGHT + 18, format_size(size), 11)]
    for number, line in enumerate(lines.values()):
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in zip(line[0], line[column]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[number % len(COLOURS)]}" '
                     'stroke-width="2"/>')
    return parts


def svg_of(about, sentence, lines):
    width, height = 2 * (LEFT + WIDTH + RIGHT), TOP + HEIGHT + BOTTOM
    parts = [text(width / 2, 24 + 19 * number, line, 14) for number, line in enumerate([*about.splitlines(), sentence])]
    parts += panel(0, lines, TIME, "median time (lower is better)", "time (µs)")
    parts += panel(1, lines, BANDWIDTH, "bus bandwidth (higher is better)", "bandwidth (GB/s)")
    for number, name in enumerate(lines):
        left, at = LEFT + number * (width - LEFT) / len(lines), height - 16
        parts += [f'<path d="M{left:.1f} {at - 4}h24" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"/>',
                  text(left + 30, at, name, 12, "start")]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" font-family="sans-serif">',
                      f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def sentence_of(lines):
    """What the lines show; `tutti` and the others by their names in a comparison."""
    if "tutti" not in lines or len(lines) == 1:
        sizes, times, bandwidths = next(iter(lines.values()))
        best = bandwidths.index(max(bandwidths))
        return (f"An all-reduce of {sizes[0]} bytes takes {times[0]:.3g} µs, and bus bandwidth is highest at "
                f"{format_size(sizes[best])}: {bandwidths[best]:.3g} GB/s.")
    others = [dict(zip(line[0], line[TIME])) for name, line in lines.items() if name != "tutti"]
    ratios = [min(other[size] for other in others) / time for size, time in zip(*lines["tutti"][:BANDWIDTH])
              if all(size in other for other in others)]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return (f"tutti is faster than every other library at {sum(ratio > 1 for ratio in ratios)} of {len(ratios)} sizes, "
            f"and on average {mean:.2f} times as fast as the fastest one.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS.json")
    parser.add_argument("picture", metavar="PICTURE.svg")
    options = parser.parse_args()
    with open(options.results, encoding="utf-8") as source:
        results = json.load(source)
    lines = lines_of(measured_points(results["results"]))
    if not lines:
        sys.exit(f"quickstart_picture: {options.results}: nothing was measured")
    sentence = sentence_of(lines)
    with open(options.picture, "w", encoding="utf-8") as output:
        output.write(svg_of(about_measurement(results), sentence, lines))
    print(sentence)


if __name__ == "__main__":
    main()
