#!/usr/bin/env bash
# tools/quickstart builds, measures, and ends with a picture and one sentence. Its packages are installed already.
# Usage: quickstart_test.sh SOURCES
set -euo pipefail
sources=$1
output=$(mktemp)
trap 'rm -f "$output"' EXIT

fail() {
  cat "$output"
  echo "FAILED: $1"
  exit 1
}

"$sources/tools/quickstart" -p 2 -b 8 -e 64K >"$output" 2>&1 || fail "exit status $?"
grep -q '^# Out of bounds values : 0 OK' "$output" || fail 'no checked measurement'
picture=$(sed -n 's/^==> picture: //p' "$output")
# With other libraries if their workers could be built, else alone.
case $picture in
  */build-quickstart/comparison.svg) sentence='tutti is faster than every other library at [0-9] of 6 sizes, and' ;;
  */build-quickstart/all_reduce.svg) sentence='An all-reduce of 8 bytes takes [0-9.e+-]* µs, and bus bandwidth' ;;
  *) fail "no picture: '$picture'" ;;
esac
sentence=$(sed -n "s/^==> \($sentence.*\.\)$/\1/p" "$output")
[[ -n $sentence ]] || fail 'no sentence'
python3 - "$picture" "${picture%.svg}.json" "$sentence" <<'PYTHON' || fail "$picture differs from the results"
import json, sys, xml.etree.ElementTree as tree

picture, results, sentence = tree.parse(sys.argv[1]).getroot(), json.load(open(sys.argv[2]))["results"], sys.argv[3]
svg = "{http://www.w3.org/2000/svg}"
texts = [text.text for text in picture.iter(svg + "text")]
assert sentence in texts and "time (µs)" in texts and "bandwidth (GB/s)" in texts, texts
width, height = float(picture.get("width")), float(picture.get("height"))
drawn = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
         for line in picture.iter(svg + "polyline")]
lines = {}
for entry in results:
    lines.setdefault((entry.get("library"), entry.get("in_place")), []).append((entry["bytes"], entry["time_us"]["median"]))
# Each line once as times and once as bandwidths, each point inside, the larger size farther right, the longer time higher.
assert [len(line) for line in drawn] == 2 * [len(line) for line in lines.values()], drawn
for line in drawn:
    assert line == sorted(line) and all(0 < x < width and 0 < y < height for x, y in line), line
for measured, line in zip(lines.values(), drawn):
    times = [time for _, time in sorted(measured)]
    ups = [(time, -y) for time, (_, y) in zip(times, line)]
    assert all(high > low - 0.11 for (_, low), (_, high) in zip(sorted(ups), sorted(ups)[1:])), (times, line)
PYTHON

# Wrong arguments are refused before anything is built.
! "$sources/tools/quickstart" --nonsense >"$output" 2>&1 || fail 'an unknown argument was accepted'
grep -q 'unknown argument --nonsense' "$output" || fail 'the unknown argument is not named'
