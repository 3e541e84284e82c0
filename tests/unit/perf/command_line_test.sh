#!/bin/bash
# The arguments that the programs refuse, and their behaviour if their output is not read.
# Usage: command_line_test.sh ALL_REDUCE_PERF BARRIER_PERF TUTTI COMPARE. tutti_plot is beside the first.
set -euo pipefail
all_reduce=$(realpath "$1")
barrier=$(realpath "$2")
tutti=$(realpath "$3")
compare=$(realpath "$4")
plot=$(dirname "$all_reduce")/tutti_plot
own=$(realpath "$(dirname "$0")/../../../examples/schedules/ring_both_ways.json")
free_port=$(realpath "$(dirname "$0")/../free_port.py")
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset TUTTI_LOG
small=(-b 8 -e 8 -n 1 -w 0)

complain() {
  echo "$*"
  echo "standard output:"
  cat out
  echo "standard error:"
  cat err
  failed=1
}

# expect STATUS TEXT COMMAND...: the exit status, and a text in what was printed.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  timeout 100 "$@" >out 2>err || got=$?
  ((got == status)) || complain "$*: exit status $got instead of $status"
  grep -q -e "$text" out err || complain "$*: no \"$text\""
}

# refuses_full COMMAND...: on a full disk the command fails and says so.
refuses_full() {
  local got=0
  : >out
  timeout 100 "$@" >/dev/full 2>err || got=$?
  ((got == 1)) || complain "$* >/dev/full: exit status $got instead of 1"
  grep -q 'standard output\|No space left on device' err || complain "$* >/dev/full: no cause told"
  ! grep -q 'Traceback\|Exception' err || complain "$* >/dev/full: no message but a trace"
}

expect 2 '^all_reduce_perf: --maxbytes needs a value$' "$all_reduce" -b 8 -e
expect 2 "^all_reduce_perf: --nprocs: 'two' is not a number from 0 to 4096$" "$all_reduce" -p two
for program in "$all_reduce" "$barrier"; do
  expect 0 '^  -t,--nthreads INT from 1 to 4096$' "$program" --help
  grep -q '^  -w,--warmup_iters INT  *Untimed' out || complain 'a limit in name only is shown'
  ! grep -q 'INT:\|in \[' out || complain "--help shows a type of CLI11"
  expect 0 "^$(basename "$program"), tutti [0-9]" "$program" --version
  refuses_full "$program" --version
  refuses_full "$program" --help
done
expect 0 '^tutti [0-9]' "$tutti" --version
expect 0 '^compare, tutti [0-9]' "$compare" --version
refuses_full "$compare" --version
refuses_full "$all_reduce" -t 1 "${small[@]}"
refuses_full "$all_reduce" -p 2 "${small[@]}"
! grep -q 'rank 1' err || complain 'rank 1 tells what is the matter with rank 0'
refuses_full "$barrier" -t 2 -n 1
for command in --version --help 'verify --max-ranks 2' 'schedule ring' topo 'topo --json'; do
  # shellcheck disable=SC2086  # words
  refuses_full "$tutti" $command
done

# A reader of the output may stop early: no rank prints an error.
for ranks in -p -t; do
  { "$all_reduce" "$ranks" 2 -b 8 -e 64K -n 20 2>err && echo 0 >status || echo $? >status; } | head -n 1 >out
  # 0 if everything was written before the reader ended.
  [[ $(cat status) =~ ^(0|141)$ && ! -s err ]] || complain "$ranks 2 | head: exit status $(cat status): $(cat err)"
done

# Files are refused before anything is measured, and existing contents are kept.
for flag in -J --plot; do
  expect 1 'cannot write missing/file.svg: ' "$all_reduce" -p 2 "${small[@]}" "$flag" missing/file.svg
  [[ ! -s out ]] || complain "$flag missing/file.svg: it has measured"
  [[ $(wc -l <err) == 1 ]] || complain "$flag missing/file.svg: one line is enough"
done
expect 1 'missing/file.svg' "$compare" -J missing/file.svg
if "$plot" --check; then expect 1 'missing/file.svg' "$compare" --plot missing/file.svg; fi
echo 'earlier results' >compared.json
# The drawings and files of the comparison, with artificial times.
cat >report.py <<'PY'
import sys
from types import SimpleNamespace

sys.path += [sys.argv[1] + "/peers", sys.argv[1] + "/plot"]
import compare_report
from tutti_plot import require_matplotlib, restart_where_matplotlib_is

restart_where_matplotlib_is()
require_matplotlib()
library = SimpleNamespace(version="1", moved={8: 8, 1024: 1024}, failure=None)
column = SimpleNamespace(title="tutti", memory="malloc", peer=False, yardstick=False, times_s={8: [1e-6], 1024: [2e-6]},
                         library=library)
options = SimpleNamespace(collective="all_reduce", ranks=2, transport="shm", skew=0, rounds=1,
                          json=compare_report.open_beside("compared.json"),
                          plot="compared.svg")
compare_report.report(options, [column], [8, 1024])
PY
if "$plot" --check; then
  expect 0 '1K *2.00' python3 report.py "$(dirname "$compare")"
  [[ $(cat compared.json) == 'earlier results' ]] || complain 'the comparison has written over earlier results'
  grep -q '"tutti comparison"' compared.json.0 || complain 'the comparison writes no results'
  grep -q '<svg' compared.svg || complain 'the comparison draws no picture'
fi
echo 'earlier results' >kept
expect 1 'missing/file.svg' "$all_reduce" -t 2 "${small[@]}" -J kept --plot missing/file.svg
[[ $(cat kept) == 'earlier results' ]] || complain 'a refused run has spoiled earlier results'
expect 0 '# writing results to kept.0' "$all_reduce" -t 2 "${small[@]}" -J kept
expect 0 '# writing results to kept.1' "$all_reduce" -p 2 "${small[@]}" -J kept -m 2 -z 0
[[ $(cat kept) == 'earlier results' ]] || complain 'a run has written over earlier results'
: >empty
TUTTI_SECRET=hidden TUTTI_CHECK=strict expect 0 '# writing results to empty' "$all_reduce" -p 2 "${small[@]}" -J empty
# A run that is killed keeps what it has measured.
killed=0
{ timeout -s KILL 2 "$all_reduce" -t 2 -b 8 -e 1K -n 3 -w 0 -N 0 -J killed || killed=$?; } >/dev/null 2>&1
((killed == 137)) || complain "an endless run has ended by itself: $killed"
cat >records.py <<'PY'
import datetime, json, re, sys

one, two, strict, killed = (json.load(open(name)) for name in ("kept.0", "kept.1", "empty", "killed"))
stamp = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
for record in (one, two, strict, killed):
    assert record["format"] == "tutti measurement" and record["schema"] == 1, record
    assert record["version"] and stamp.fullmatch(record["started"]) and record["machine"]["cpu"], record
    assert [place["rank"] for place in record["job"]] == [0, 1] and all(place["host"] for place in record["job"]), record
    assert record["results"] and all(entry["algorithm"] and entry["transport"] for entry in record["results"]), record
    assert record["average"] == "slowest" and record["memory"] == "malloc", record
for record in (one, two, strict):
    assert stamp.fullmatch(record["finished"]) and record["errors"] == 0 and len(record["results"]) == 2, record
    assert record["average_busbw_gbs"] > 0 and record["warmup_iterations"] == 0, record
assert one["arguments"][1:] == ["-t", "2", "-b", "8", "-e", "8", "-n", "1", "-w", "0", "-J", "kept"], one
assert (one["calls"], one["aggregate"], two["calls"], two["aggregate"]) == ("blocking", 1, "stream", 2), (one, two)
assert strict["environment"]["TUTTI_CHECK"] == "strict" and "hidden" not in json.dumps(strict), strict
assert killed["finished"] is None and len(killed["results"]) > 16, killed
PY
python3 records.py || complain 'the files of -J are not what they should be'

expect 2 'none of .svg, .png and .pdf' "$all_reduce" -t 2 "${small[@]}" --plot picture.gif
# Pictures, if matplotlib is installed. If not, an error comes before anything is measured.
if "$plot" --check; then
  expect 0 'Avg bus' "$all_reduce" -t 2 -b 8 -e 64 -n 1 -w 0 -J drawn --plot plot.svg
  [[ $(tail -n 1 plot.svg) == '</svg>' ]] || complain 'plot.svg is not complete'
  ! grep -q 'latency of small messages' plot.svg || complain 'plot.svg shows the small sizes twice'
  expect 0 'Avg bus' "$all_reduce" -p 3 -b 8 -e 4M -f 64 -n 2 -w 0 -J wide --plot wide.svg
  for text in 'all_reduce, 3 ranks over shm, malloc memory, blocking' 'latency of small messages' "host $(hostname)" \
    "$(python3 -c 'import json; print(json.load(open("wide"))["results"][-1]["algorithm"])')"; do
    grep -q -e "$text" wide.svg || complain "wide.svg does not say \"$text\""
  done
  "$plot" -o plot.png drawn || complain 'tutti_plot cannot draw what -J has written'
  [[ $(head -c 4 plot.png) == $'\x89PNG' ]] || complain 'plot.png is not a PNG file'
  echo '{"results": []}' >none
  expect 1 'nothing to draw' "$plot" -o nothing.svg none
  "$plot" -o plot.png killed || complain 'tutti_plot cannot draw what a killed run has left'
  [[ ! -e nothing.svg ]] || complain 'a file was made for nothing'
else
  expect 2 'python3-matplotlib' "$all_reduce" -t 2 "${small[@]}" --plot plot.svg
fi
mkdir without
echo 'raise ImportError("not here")' >without/matplotlib.py
expect 2 'python3-matplotlib' env PYTHONPATH="$folder/without" "$all_reduce" -p 2 "${small[@]}" --plot plot.svg
[[ ! -s out ]] || complain 'without matplotlib: it has measured'
expect 2 'python3-matplotlib' env PYTHONPATH="$folder/without" "$compare" --plot plot.svg
expect 2 'starting python3.*python3-matplotlib' env PATH=/nonexistent "$all_reduce" -t 2 "${small[@]}" --plot plot.svg
expect 2 'a barrier has no size' "$compare" --collective barrier --plot plot.svg
expect 2 'ping_pong is between 2 ranks' "$compare" --collective ping_pong -r 3
expect 2 'all_reduce has no blocks' "$compare" --skew 1
expect 2 'largest is 1 to 2 times the mean' "$compare" --collective gather --skew 2.5
expect 2 'not a number' "$compare" --collective gather --skew x
expect 1 'cannot write /dev/full: No space' "$all_reduce" -t 1 "${small[@]}" -J /dev/full
expect 0 '"results"' "$all_reduce" -t 1 "${small[@]}" -J /dev/stdout
sed -n '/^{/,$p' out | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["results"]) == 2' || complain 'no JSON'
grep -q 'Avg bus' out || complain '-J /dev/stdout: no table'

# A closed standard stream is not replaced by the next file that a program opens.
for closed in '1>&-' '0<&- 1>&-' '1>&- 2>&-' '0<&- 1>&- 2>&-'; do
  for ranks in -t -p; do
    rm -f closed.json
    got=0
    # shellcheck disable=SC2016  # the inner shell's
    sh -c "exec $closed"'; exec "$@"' sh timeout 100 "$all_reduce" "$ranks" 2 "${small[@]}" -J closed.json >out 2>err || got=$?
    ((got == 0)) || complain "$closed, $ranks 2: exit status $got"
    python3 -c 'import json; assert len(json.load(open("closed.json"))["results"]) == 2' || complain "$closed: no JSON in the file"
  done
done
for closed in '1>&-' '2>&-' '0<&- 1>&- 2>&-'; do
  rm -f closed.svg
  sh -c "exec $closed"'; exec "$@"' sh timeout 100 "$tutti" topo --svg closed.svg >out 2>err || complain "tutti topo $closed fails"
  [[ $(tail -n 1 closed.svg) == '</svg>' ]] || complain "tutti topo $closed: no picture in the file"
done

# CUDA devices, and runs that would never end.
expect 2 'ngpus' "$all_reduce" -t 1 "${small[@]}" --ngpus x
expect 2 'ngpus' "$all_reduce" -t 1 "${small[@]}" -g 0
expect 2 'never ends' "$all_reduce" -t 1 "${small[@]}" -N 0 --plot file.svg
[[ ! -e file.svg ]] || complain 'a file was made for nothing'
expect 2 'a rank alone' "$all_reduce" -t 1 "${small[@]}" --plot file.svg
[[ ! -s out && ! -e file.svg ]] || complain '--plot of one rank: it has measured'
expect 2 'nothing to draw' "$all_reduce" -t 2 -b 0 -e 0 --plot file.svg
for ranks in -p -t; do
  expect 0 'note: left out, as ranks would have no element of double: 2, 4 bytes' "$all_reduce" "$ranks" 2 -b 2 -e 8 -n 1 -d double
  expect 2 'rank 0: there is nothing to measure; left out, .*float: 2 bytes' "$all_reduce" "$ranks" 2 -b 2 -e 2 -J file.svg
  [[ $(wc -l <err) == 1 && ! -s out && ! -e file.svg ]] || complain "$ranks 2 -b 2: it says more"
  expect 0 'note: left out, as their buffers do not fit into memory: 1125899906842624 bytes' "$all_reduce" "$ranks" 2 \
    -b 1M -e 1048576G -f 1073741824 -n 1
done

# Flags of nccl-tests that these programs do not support, with what to do instead, and the resulting runs.
expect 2 'stream_null: .*take -z 1' "$all_reduce" "${small[@]}" -y 1
expect 2 'cta_policy: .*leave it out' "$all_reduce" "${small[@]}" -x 1
expect 2 'device_implementation: .*leave it out' "$all_reduce" "${small[@]}" -D 1
expect 2 'device_cta_count: .*leave it out' "$all_reduce" "${small[@]}" -V 16
expect 2 'mulsum.*take sum' "$all_reduce" "${small[@]}" -o mulsum
# Flags of other versions and copies of nccl-tests: each is refused with what to do, with a value and without.
while read -r flag text; do
  expect 2 "$flag: .*$text" "$all_reduce" "${small[@]}" "$flag" 1
  expect 2 "$flag: .*$text" "$barrier" "$flag"
done <<'FLAGS'
-A -a chooses
-F -J FILE
--hosts mpirun
--host mpirun
-X -J FILE
-Z -J FILE
-E -m N
-Y --memory
-O leave it out
-s -N
-I leave it out
--per_iter_timing leave it out
-u leave it out
-q leave it out
FLAGS
expect 2 'all_gather_perf.*the same data' "$(dirname "$all_reduce")/hypercube_perf" -b 8 -e 8 -g 1
# Without a GPU, once for all ranks.
no_gpu=(env CUDA_VISIBLE_DEVICES=-1 "$all_reduce" "${small[@]}")
expect 2 'rank 0: -g: .*[^?:]\. For buffers in host memory, use -p 3 in place of -g$' "${no_gpu[@]}" -g 3
[[ $(wc -l <err) == 1 ]] || complain '-g 3 without a GPU: one line is enough'
expect 2 'use -p 2 in place of -g$' "${no_gpu[@]}" -g 1
expect 2 'use -p 4 in place of -g$' "${no_gpu[@]}" -g 1 -p 4
expect 2 'For buffers in host memory, leave out -g$' "$tutti" run -n 2 -- "${no_gpu[@]}" -g 1
# NCCL's own variables, once for the job; not those of builds and of nccl-tests.
for ranks in -p -t; do
  NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5 NCCL_WHAT=1 NCCL_HOME=/opt NCCL_VERSION=2 NCCL_TESTS_MIN_BW=0 NCCL_PROTO= \
    expect 0 'warn: the environment sets NCCL_DEBUG, NCCL_IB_HCA, NCCL_WHAT, which are NCCL.s and have no effect on tutti' \
    "$all_reduce" "$ranks" 3 "${small[@]}"
  [[ $(grep -c 'NCCL_' err) == 1 ]] || complain "$ranks 3: NCCL's variables are not told once"
  grep -q 'Set TUTTI_LOG for NCCL_DEBUG, TUTTI_VERBS for NCCL_IB_HCA; docs/from_nccl.md' err || complain 'no settings for NCCL variables'
done
NCCL_HOME=/opt NCCL_VERSION=2 expect 0 'Avg bus' "$all_reduce" -t 2 "${small[@]}"
! grep -q NCCL_ err || complain 'variables that only builds use are reported'
# A collective is named in every way that its users know.
for name in all-reduce allreduce AllReduce all_reduce; do
  TUTTI_ALGORITHM="$name:ring" expect 0 'Avg bus' "$all_reduce" -t 2 "${small[@]}"
  expect 0 'all_reduce' "$tutti" explain "$name" -n 2 -s 8
done
expect 2 'nothing to draw\|a barrier has no size\|invalid choice' "$compare" --collective all_reduces
expect 2 'ping_pong is between 2 ranks' "$compare" --collective ping-pong -r 3
expect 2 'NCCL_TESTS_SPLIT: .*unset it' env NCCL_TESTS_SPLIT=MOD2 "$all_reduce" "${small[@]}"
expect 2 'has started 2 processes.*leave -p out' env TUTTI_WORLD_SIZE=2 "$all_reduce" "${small[@]}" -p 2
# Without a launcher, and with a wrong setting besides: the error that comes first is the only one.
expect 2 '^error: no launcher has started this program, .*-p 2 .*tutti run -n 2' "$all_reduce" "${small[@]}"
[[ $(wc -l <err) == 1 ]] || complain 'no launcher: one line is enough'
expect 2 'TUTTI_TIMEOUT_MS="5s" is not a number' env TUTTI_TIMEOUT_MS=5s "$all_reduce" "${small[@]}"
! grep -q 'launcher' err || complain 'a wrong setting: the launcher does not matter yet'
# With a launcher, the error does not say to use one.
expect 2 'TUTTI_RANK="1" is not usable' env TUTTI_RANK=1 TUTTI_WORLD_SIZE=1 "$all_reduce" "${small[@]}"
! grep -q 'no launcher' err || complain 'the error names a missing launcher under a launcher'
expect 0 'note: --root has no effect: all_reduce' "$all_reduce" -t 2 "${small[@]}" -r 0
expect 0 'ranks: 4, .*agg iters: 3' "$tutti" run -n 2 -- "$all_reduce" -t 2 "${small[@]}" -m 3 -a 1 -T 60 -w 1
expect 0 'cputime .*cputime .*timestamp' "$all_reduce" -t 2 "${small[@]}" -C 1 -S 1 -z 0
grep -q ' 20[0-9-]*T[0-9:]*Z$' out || complain '-S 1: no time at the end of the row'
expect 0 'Peak host memory *: [1-9][0-9.]* MiB' "$all_reduce" -t 2 "${small[@]}" -M 1
expect 0 'Avg bus bandwidth .* OK' "$all_reduce" -t 2 "${small[@]}" --min-busbw 0
for ranks in -p -t; do
  expect 1 'is below 1000 GB/s' env NCCL_TESTS_MIN_BW=1 "$all_reduce" "$ranks" 2 "${small[@]}" --min-busbw 1000
  grep -q 'Avg bus bandwidth .* FAILED' out || complain 'no FAILED beside the bandwidth'
done
expect 1 'is below 9e+06 GB/s' env NCCL_TESTS_MIN_BW=10000000 "$all_reduce" -t 2 "${small[@]}"

# A user-defined algorithm; ranks with different files report that.
expect 0 '# Out of bounds values : 0 OK' env TUTTI_SCHEDULES="$own" TUTTI_ALGORITHM=ring_both_ways "$all_reduce" -p 3 -b 4 -e 1M -f 16 -n 2

# Machines from a file: two packages, so that there is a hierarchy within the host.
cat >machines.json <<'JSON'
{"format": "tutti topology", "version": 1,
 "root": {"kind": "host", "name": "here", "nodes": [{"kind": "package", "name": "package", "count": 2}],
          "links": [{"kind": "UPI", "between": ["package0", "package1"], "gbytes_per_second": 20}]},
 "ranks": [{"at": "package0", "count": 2}, {"at": "package1", "count": 2}]}
JSON
expect 0 '# Out of bounds values : 0 OK' env TUTTI_TOPOLOGY=machines.json TUTTI_ALGORITHM=hierarchical "$all_reduce" -p 4 \
  -b 4 -e 1M -f 16 -n 2
expect 0 'is not used: it describes machines with 4 ranks, but the communicator has 3' env TUTTI_LOG=info TUTTI_TOPOLOGY=machines.json \
  "$all_reduce" -p 3 "${small[@]}"
expect 1 'do not share memory' env TUTTI_TRANSPORTS=tcp TUTTI_TOPOLOGY=machines.json "$all_reduce" -p 4 "${small[@]}"
expect 1 'does not support 4 ranks' env TUTTI_ALGORITHM=all_reduce:hierarchical "$all_reduce" -p 4 "${small[@]}"
expect 1 'no/such/file' env TUTTI_TOPOLOGY=no/such/file "$all_reduce" -p 2 "${small[@]}"
sed 's/Two rings/Twin rings/' "$own" >other.json
port=$(python3 "$free_port")
job=(env TUTTI_WORLD_SIZE=2 "TUTTI_ROOT=127.0.0.1:$port" TUTTI_ALGORITHM=ring_both_ways)
timeout 100 "${job[@]}" TUTTI_RANK=1 TUTTI_SCHEDULES=other.json "$all_reduce" "${small[@]}" >other.out 2>&1 &
expect 1 'in different ways.*ring_both_ways [0-9a-f]*,.*ring_both_ways [0-9a-f]*,' "${job[@]}" TUTTI_RANK=0 \
  TUTTI_SCHEDULES="$own" "$all_reduce" "${small[@]}"
wait $! && complain 'the rank with the other file has found nothing'

# An algorithm that depends on hosts: without shared memory each rank is a separate host; with it there is one host,
# which the algorithm does not support.
levels=$(dirname "$own")/two_level.json
expect 0 '# Out of bounds values : 0 OK' env TUTTI_SCHEDULES="$levels" TUTTI_ALGORITHM=all_reduce:two_level \
  TUTTI_TRANSPORTS=tcp "$all_reduce" -p 3 -b 4 -e 1M -f 16 -n 2
expect 1 '"all_reduce:two_level" does not support 3 ranks on these hosts' env TUTTI_SCHEDULES="$levels" \
  TUTTI_ALGORITHM=all_reduce:two_level TUTTI_TRANSPORTS=shm "$all_reduce" -p 3 "${small[@]}"

# Once for a process, not once for each of its ranks. The facts about a job that users ask for first are printed once.
TUTTI_LOG=info expect 0 ' tutti\[[0-9]*\] rank 0 info: tutti [0-9.]*, 2 ranks on 1 host: .* ranks 0, 1$' "$all_reduce" -p 2 "${small[@]}"
for line in 'shm within the host; rank 0 is reached at ' 'the environment sets .*TUTTI_LOG=info' 'joined in [0-9]* ms'; do
  [[ $(grep -c "rank 0 info: .*$line" err) == 1 ]] || complain "not once: $line"
done
TUTTI_LOG=verbose expect 0 'TUTTI_LOG="verbose" is not error' "$all_reduce" -t 3 "${small[@]}"
[[ $(grep -c TUTTI_LOG err) == 1 ]] || complain 'TUTTI_LOG is reported more than once'
exit $failed
