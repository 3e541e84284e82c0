#!/bin/bash
# tutti topo and tutti doctor on this machine, with any hardware; topo and simulate on described machines.
# Usage: command_line_test.sh TUTTI
set -euo pipefail
tutti=$1
failed=0
out=$(mktemp)
folder=$(mktemp -d)
trap 'rm -rf "$out" "$folder"' EXIT
unset TUTTI_VERBS TUTTI_TOPOLOGY HWLOC_XMLFILE HWLOC_SYNTHETIC

# expect STATUS TEXT ARGUMENTS...: the exit status, and a text in the output.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  "$tutti" "$@" >"$out" 2>&1 || got=$?
  if ((got != status)) || ! grep -q -e "$text" "$out"; then
    echo "tutti $*: exit status $got instead of $status, or no \"$text\" in:"
    cat "$out"
    failed=1
  fi
}

# json EXPRESSION: what the last output must be, read into j.
json() {
  python3 -c "import json, sys; j = json.load(open(sys.argv[1])); assert $1, j" "$out" || failed=1
}

wrong() {
  echo "$*"
  failed=1
}

expect 0 '--json' topo --help
expect 2 'nonsense' topo --nonsense
expect 0 "^  $(hostname)," topo
expect 0 '^  lo  ' topo
expect 0 '^RDMA ports$' topo
TUTTI_VERBS=nonsense=1 expect 2 'nonsense' topo
TUTTI_VERBS=rails=2 expect 0 'with TUTTI_VERBS=rails=2' topo
expect 0 'numa_nodes' topo --json
json "j['format'] == 'tutti topology' and j['root']['kind'] == 'host'"
json "j['facts']['machine']['processors'] >= 1 and any(i['name'] == 'lo' for i in j['facts']['interfaces'])"
json "all(p['usable'] or p['reason'] for p in j['facts']['rdma']['ports'])"
# Without a device, the fix.
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
  json "'rdma link add' in j['facts']['rdma']['error'] or 'libibverbs-dev' in j['facts']['rdma']['error']"
fi
expect 2 'nonsense' doctor rdma --nonsense
expect 0 'FAIL' doctor rdma --help
TUTTI_VERBS=rails=x expect 2 'rails' doctor rdma
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
  expect 1 '^FAIL  .*Fix: ' doctor rdma
  expect 1 '^[okwarn]*  *memory lock limit: ' doctor rdma
  expect 1 '^RDMA cannot be used on this machine$' doctor rdma
fi

# The output can be read again, and drawn.
"$tutti" topo --json >"$folder/here.json"
expect 0 'numa0' topo --topology "$folder/here.json"
TUTTI_TOPOLOGY=$folder/here.json expect 0 'numa0' topo --per-host 3
expect 0 '<svg' topo --svg - --per-host 2
expect 0 'rank 0 sends to 1' topo --topology "$folder/here.json" --per-host 2 --collective all_reduce
"$tutti" topo --hosts 3 --per-host 4 --numa-nodes 2 --ports 2 --json >"$folder/cluster.json"
"$tutti" topo --topology "$folder/cluster.json" --json >"$folder/again.json"
cmp "$folder/cluster.json" "$folder/again.json" || failed=1
expect 0 'host1/numa0 - host1/numa1' topo --topology "$folder/cluster.json"
expect 0 'rank 11 sends to' topo --topology "$folder/cluster.json" --collective alltoall -s 1M --algorithm pairwise
expect 0 'marker-end' topo --topology "$folder/cluster.json" --collective all_reduce -s 64M --svg -
python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$out" || failed=1
expect 0 'digraph topology' topo --topology "$folder/cluster.json" --collective all_reduce --dot -
expect 2 'no algorithm "nonsense"' topo --per-host 2 --collective all_reduce --algorithm nonsense
expect 2 'no collective "nonsense"' topo --per-host 2 --collective nonsense
printf ' \n' >"$folder/empty.xml"
expect 2 'empty.xml: the file is empty' topo --topology "$folder/empty.xml"
printf '<system version="1"><cpu numaid="0"><pci busid="1"/></cpu></system>' >"$folder/unknown.xml"
expect 2 'unknown.xml:1: the file has no GPU.*1 PCI devices have no class' simulate --topology "$folder/unknown.xml" -s 8
# Every command and every file reads the names of collectives in the same ways.
for name in alltoall all_to_all all-to-all AllToAll alltoall_; do
  expect 0 'rank 0 sends to' topo --per-host 4 --collective "$name"
  expect 0 'the best' simulate --per-host 4 --collective "$name" -s 64K
  expect 0 'alltoall' explain "$name" -n 2 -s 64K
  expect 0 'rank' schedule pairwise -n 4 --collective "$name"
  expect 0 '' verify --max-ranks 3 --collective "$name"
done
expect 0 'all_gather_v' explain AllGatherV -n 2 -s 64K
expect 0 'broadcast' explain bcast -n 2 -s 64K
for name in exclusive_scan Exclusive-Scan exscan; do expect 0 '^exscan of' explain "$name" -n 2 -s 64K; done
expect 0 '^scan of' explain inclusive_scan -n 2 -s 64K
expect 0 'reduce_scatter' explain reduce-scatter-block -n 2 -s 64K
expect 1 'no/such/folder' topo --svg "$folder/no/such/folder"
expect 2 'more than a picture' topo --hosts 2000 --svg -
HWLOC_SYNTHETIC='pack:2 numa:2 core:4 pu:1' expect 0 'package1' topo

# A job: rank 0 shows all of it, once.
port=$(python3 "$(dirname "$0")/../free_port.py")
TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_ROOT=127.0.0.1:$port timeout 100 "$tutti" topo >"$folder/one.txt" 2>&1 &
TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 TUTTI_ROOT=127.0.0.1:$port expect 0 'ranks 0-1' topo
wait $! || failed=1
[[ ! -s $folder/one.txt ]] || { cat "$folder/one.txt"; failed=1; }

# Wrong files: file, line and field.
head -c 300 "$folder/cluster.json" >"$folder/cut.json"
expect 2 'cut.json:[0-9]*: ' topo --topology "$folder/cut.json"
sed 's/"version": 1/"version": 2/' "$folder/cluster.json" >"$folder/new.json"
expect 2 'new.json:3: version: is 2, but this library reads version 1' simulate --topology "$folder/new.json"
sed '0,/"kind": "host"/s//"kind": "gpu"/' "$folder/cluster.json" >"$folder/gpu.json"
expect 2 'a network or host must be in a network' topo --topology "$folder/gpu.json"
sed '0,/12.5/s//-3/' "$folder/cluster.json" >"$folder/rate.json"
expect 2 'rate.json:[0-9]*: root.nodes\[0\].*gbytes_per_second: is not a number' topo --topology "$folder/rate.json"
printf '<system version="1"><cpu numaid="x"/></system>' >"$folder/bad.xml"
expect 2 'bad.xml:1: cpu.numaid: "x" is not a number' topo --topology "$folder/bad.xml"
expect 2 'no-such-file' topo --topology no-such-file

# Simulation.
expect 0 'the best of them' simulate --hosts 4 --per-host 4 -s 1M
expect 0 'the first host stands for all' simulate --hosts 4 --per-host 4 -s 1M --algorithm hierarchical
expect 0 'the first rank ends .*(rank 3)' simulate --hosts 4 --per-host 4 -s 8 --collective broadcast --root 3 --algorithm 'k_nomial:2'
expect 0 'results' simulate --topology "$folder/cluster.json" --collective alltoall -s 64K --json
json "j['ranks'] == 12 and len(j['results']) >= 3 and all(r['time_us'] > 0 for r in j['results'])"
json "sum(l['bytes'] for l in j['results'][0]['links']) > 0"
expect 0 'leaf' simulate --hosts 8 --per-host 2 --fat-tree 4:8 --algorithm ring -s 16M
expect 0 'WAN' simulate --hosts 4 --per-host 2 --sites 4,10Gb/s,5ms --algorithm ring -s 16M
expect 0 'global' simulate --hosts 4 --per-host 2 --dragonfly 2 --algorithm halving_doubling -s 16M
"$tutti" simulate --hosts 2 --per-host 2 --algorithm ring -s 1M --trace "$folder/trace.json" >"$out"
cp "$folder/trace.json" "$out"
json "sum(e['ph'] == 'X' for e in j['traceEvents']) == 4 * 12 and all(e['dur'] >= 0 for e in j['traceEvents'] if e['ph'] == 'X')"
time_of() { "$tutti" simulate --hosts 2 --per-host 2 --algorithm ring -s 1M --json "$@" |
  python3 -c "import json, sys; print(json.load(sys.stdin)['results'][0]['time_us'])"; }
python3 -c "import sys; plain, rank, link = map(float, sys.argv[1:]); assert rank > 1.2 * plain and link > 2 * plain, sys.argv" \
  "$(time_of)" "$(time_of --slow rank=1:0.25)" "$(time_of --slow link=host0/numa0/port0:0.05)" || failed=1
expect 2 'GiB of memory' simulate --hosts 1000 --per-host 8 --collective alltoall --algorithm direct --memory 0.01
expect 2 '\-\-slow: "rank=99:0.5"' simulate --per-host 2 --slow rank=99:0.5
expect 2 '\-\-slow: "link=nothing:0.5"' simulate --per-host 2 --slow link=nothing:0.5
expect 2 '\-\-slow' simulate --per-host 2 --slow rank=1:0
expect 2 '\-\-link: "100"' simulate --per-host 2 --link 100
expect 2 '\-\-trace needs' simulate --per-host 2 --trace "$folder/t"
expect 1 'no/such' simulate --per-host 2 --algorithm ring --trace "$folder/no/such"
expect 2 '\-\-root must be below 2' simulate --per-host 2 --collective broadcast --root 2
expect 2 'does not s' simulate --per-host 2 --algorithm hierarchical

# Proofs only for hosts of these sizes.
expect 0 'all_reduce *hierarchical_doubling' verify --hosts 3,1
expect 0 'all_reduce  *hierarchical  *1  ' verify --hosts 40,30 --algorithm hierarchical
expect 1 'FAILED: no algorithm that is asked for' verify --hosts 3 --algorithm hierarchical
expect 2 '"x" is not a number' verify --hosts 2,x
expect 2 'add up' verify --hosts 2,
expect 2 'more than 1024' verify --hosts 1000,25
expect 2 'excludes' verify --hosts 2,2 --max-ranks 4
# Over sizes: a line for each, with a star at the fastest, and from which size on it is the fastest.
expect 0 '^  *32 .*[0-9]\* ' simulate --hosts 2 --per-host 4 --collective alltoall -e 64K
[[ $(grep -c '^ *[0-9]* .*[0-9.]\*' "$out") == 12 && $(grep -c '^ *[0-9]*  *-  *-' "$out") == 2 ]] || { cat "$out"; failed=1; }
expect 0 '^\* the best: bruck from 32 B on, direct from ' simulate --hosts 2 --per-host 4 --collective alltoall -e 64K
expect 0 '"best"' simulate --hosts 4 --per-host 4 -b 8 -e 4M -f 8 --json --links 1
cp "$out" "$folder/sizes.json"
json "[r['bytes'] for r in j['results'] if r['algorithm'] == 'ring'] == [8 * 8 ** i for i in range(7)]"
json "len(j['best']) > 1 and all(len(r['links']) == 1 for r in j['results'])"
json "all(b['algorithm'] == min((r for r in j['results'] if r['bytes'] == b['from_bytes']), key=lambda r: r['time_us'])['algorithm'] for b in j['best'])"
json "len({r['bytes']: r for r in j['results']}) == 7"
expect 2 'excludes' simulate --hosts 2 -b 8 -s 8
expect 2 'is smaller than --begin' simulate --hosts 2 -b 64 -e 8
expect 2 '\-\-begin' simulate --hosts 2 -b 0
expect 2 '\-\-end' simulate --hosts 2 -e 2E
expect 2 '\-\-factor: needs' simulate --hosts 2 -f 4
expect 2 '\-\-factor' simulate --hosts 2 -e 64 -f 1
expect 2 'a barrier has no size' simulate --hosts 2 --collective barrier -e 64
expect 2 '\-\-trace is of one size' simulate --hosts 2 --algorithm ring -e 64 --trace "$folder/t"
expect 2 'are less than one element' simulate --hosts 8 --collective alltoall -b 1 -e 8
expect 2 'draws over sizes' simulate --hosts 2 --svg "$folder/curves.svg"
expect 2 'one size makes no curve' simulate --hosts 2 -b 8 -e 15 --svg "$folder/curves.svg"
expect 2 'both are for standard output' simulate --hosts 2 -e 64 --json --svg -
expect 2 'a rank alone' simulate -e 64 --svg "$folder/curves.svg"
plot=$(dirname "$tutti")/tutti_plot
if "$plot" --check; then
  expect 0 '^\* the best' simulate --hosts 4 --per-host 4 -b 8 -e 4M -f 8 --svg "$folder/curves"
  cp "$folder/curves" "$out"
  python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$out" || failed=1
  # Each name in the legend, and the names of the fastest at the sizes where they are fastest.
  for name in ring hierarchical 'size (bytes)' 'bandwidth (GB/s)'; do
    grep -q -F "<!-- $name -->" "$out" || { echo "the picture has no $name"; failed=1; }
  done
  [[ $(grep -c -F '<!-- hierarchical -->' "$out") == 2 ]] || { echo 'what is the best is not marked'; failed=1; }
  expect 0 '<svg' simulate --hosts 4 --per-host 4 -e 4M --svg -
  "$plot" -o "$folder/curves.png" "$folder/sizes.json" && [[ $(head -c 4 "$folder/curves.png") == $'\x89PNG' ]] || failed=1
  expect 1 'no/such' simulate --hosts 2 -e 64 --svg "$folder/no/such"
fi
mkdir "$folder/without"
echo 'raise ImportError("not here")' >"$folder/without/matplotlib.py"
PYTHONPATH=$folder/without expect 2 'svg cannot draw here; what --json .*python3-matplotlib' simulate --hosts 2 -e 64 --svg "$folder/none.svg"
[[ ! -e $folder/none.svg ]] || { echo 'a file was made for nothing'; failed=1; }

# User-defined schedules: proven, simulated, drawn, run, and refused.
own=$(dirname "$0")/../../../examples/schedules/ring_both_ways.json
expect 0 'ring_both_ways' verify "$own" --max-ranks 9
expect 0 'ring_both_ways' simulate --per-host 4 -s 1M --algorithm "$own"
expect 0 'send .*chunk' schedule "$own" -n 4
expect 0 '<svg' schedule "$own" -n 4 --svg -
python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$out" || failed=1
TUTTI_SCHEDULES=$own expect 0 'ring_both_ways' explain all_reduce -n 4
TUTTI_SCHEDULES=$own TUTTI_ALGORITHM=ring_both_ways expect 0 '^> ring_both_ways' explain all_reduce -n 4 -s 8
TUTTI_SCHEDULES=$own expect 0 'ring_both_ways *[0-9.]* *[0-9.]* *[0-9.]*$' explain all_reduce -n 2 -s 64K --measure --seconds 0.5
"$tutti" schedule halving_doubling -n 5 --json >"$folder/steps.json"
expect 0 'written_halving_doubling' verify "$folder/steps.json" --max-ranks 8
sed '0,/"recv_reduce"/s//"recv"/' "$folder/steps.json" >"$folder/wrong.json"
expect 1 'FAILED' verify "$folder/wrong.json" --max-ranks 8
TUTTI_SCHEDULES=$folder/wrong.json expect 2 'wrong.json: all_reduce written_halving_doubling, 5 ranks' explain all_reduce
head -c 200 "$own" >"$folder/cut.json"
expect 2 'cut.json:[0-9]*: ' verify "$folder/cut.json"
TUTTI_SCHEDULES=$folder/cut.json expect 2 'cut.json:[0-9]*: ' explain all_reduce
sed 's/ring_both_ways/ring/' "$own" >"$folder/taken.json"
TUTTI_SCHEDULES=$folder/taken.json expect 2 'name: "ring" is already the name' explain all_reduce
expect 0 'send .*chunk' schedule "$own" -n 4 --collective all_reduce
expect 2 '\-\-collective barrier: no effect beside .*ring_both_ways.json, which is of all_reduce' schedule "$own" -n 4 --collective barrier
expect 2 'no collective "nonsense"' schedule "$own" --collective nonsense
sed 's/"all_reduce"/"all-reduce"/' "$own" >"$folder/hyphen.json"
expect 0 'send .*chunk' schedule "$folder/hyphen.json" -n 4 --collective allreduce
expect 2 'support only one root' schedule k_nomial:2 --collective broadcast --json

printf '{"format": "tutti schedule", "version": 1, "name": "late", "collective": "all_reduce", "least_ranks": 100, "do": []}' >"$folder/late.json"
expect 1 'supports no number of ranks up to 64' verify "$folder/late.json"
printf '{"format": "tutti schedule", "version": 1, "name": "none", "collective": "all_gather", "chunks": 1, "schedules": []}' >"$folder/none.json"
expect 2 'schedules: must list 1 to' verify "$folder/none.json"
expect 2 'excludes' verify "$own" --collective barrier
printf '{"format": "tutti schedule", "version": 1, "name": "slow", "collective": "barrier", "do": [{"for": "k", "below": 2000000, "do": []}]}' >"$folder/slow.json"
expect 1 'statements are run' verify "$folder/slow.json"

# A schedule that depends on hosts: on hosts of equal size it equals the library's hierarchical all-reduce.
levels=$(dirname "$0")/../../../examples/schedules/two_level.json
expect 0 'two_level  *[1-9]' verify "$levels" --max-ranks 12
expect 0 'Hosts of 3,3,3 ranks' verify "$levels" --hosts 3,3,3
expect 1 'two_level .*FAILED: .*hosts 3,1: .*does not support these ranks' verify "$levels" --hosts 3,1
for rank in 0 5 11; do
  "$tutti" schedule hierarchical -n 12 --hosts 4,4,4 -r $rank | sed 's/^hierarchical$/two_level/' >"$folder/built_in"
  expect 0 'all_reduce, rank' schedule "$levels" -n 12 --hosts 4,4,4 -r $rank
  cmp "$out" "$folder/built_in" || failed=1
done
expect 2 'does not support these ranks' schedule "$levels" -n 4
expect 2 'does not support these ranks' schedule "$levels" -n 4 --hosts 3,1
expect 0 '^two_level .*' simulate --hosts 4 --per-host 4 -s 64M --algorithm "$levels"
TUTTI_SCHEDULES=$levels expect 0 'two_level' explain all_reduce --hosts 3 --per-host 2
TUTTI_SCHEDULES=$levels TUTTI_ALGORITHM=two_level expect 0 '^> two_level' explain all_reduce --hosts 3 --per-host 2 -s 8
TUTTI_SCHEDULES=$levels expect 0 'ring' explain all_reduce -n 4
! grep -q two_level "$out" || { echo 'two_level serves one host'; failed=1; }
sed 's/rank_of(host, other)/rank_of(host, other + 1)/' "$levels" >"$folder/beyond.json"
expect 1 'beyond.json:[0-9]*: do\[1\].do\[1\].to: rank [0-9]*: rank_of(' verify "$folder/beyond.json"
sed 's/rank_of(host, other)/host * local_ranks + other/' "$levels" >"$folder/dealt.json"
expect 1 'FAILED: .*hosts 2,2, of the ranks 0 2, 1 3: ' verify "$folder/dealt.json"
expect 0 'two_level' verify "$folder/dealt.json" --hosts 2,2
TUTTI_SCHEDULES=$folder/dealt.json expect 2 'hosts 2,2, of the ranks 0 2, 1 3: ' explain all_reduce

# Odd sizes and speeds, and contradictions.
expect 0 'barrier of 0 bytes' simulate --collective barrier --hosts 4 -s 1G
expect 2 'are less than one element' simulate --hosts 8 --collective alltoall -s 7 --algorithm direct
for speed in 0Gb/s 0x10Gb/s 1e-300Gb/s 5Gb/s, -5Gb/s; do expect 2 '\-\-link' simulate --hosts 2 --link="$speed"; done
expect 2 'only one of' simulate --hosts 4 --fat-tree 2 --sites 2
expect 2 '\-\-per-host: .* has ranks already' simulate --topology "$folder/cluster.json" --per-host 7
# With a file, options that contradict it are refused, and options that it leaves open are accepted.
for option in '--numa-nodes 1' '--ports 1' '--hosts 1' '--link 100Gb/s' '--numa-link 5GB/s' '--fat-tree 2' '--dragonfly 2' '--sites 2'; do
  for command in topo simulate explain; do
    # shellcheck disable=SC2086  # words
    expect 2 "${option% *}: no effect beside $folder/cluster.json (.*), which has its hosts and networks already" \
      $command --topology "$folder/cluster.json" $option
  done
done
TUTTI_TOPOLOGY=$folder/cluster.json expect 2 '\-\-ports, \-\-hosts: no effect' simulate --hosts 3 --ports 2
expect 0 'the best' simulate --topology "$folder/cluster.json" --transport verbs --cores 2 -s 64 --slow rank=1:0.5
"$tutti" topo --per-host 2 --numa-nodes 2 --hosts 1 --json >"$folder/alone.json"
expect 2 '\-\-transport: no effect .* which has one host$' simulate --topology "$folder/alone.json" --transport tcp
# A host: its description contains the inside, and may omit the speed of its ports.
host() { printf '{"format": "tutti topology", "version": 1, "root": {"kind": "host", "name": "host", "nodes": [
  {"kind": "port", "name": "p"%s}]}}' "$1" >"$folder/host.json"; }
# Described processors are written, and a host gives the same result from its file.
"$tutti" topo --hosts 2 --per-host 6 --numa-nodes 2 --cores 3 --json >"$folder/cores.json"
grep -q '"processors": "0"' "$folder/cores.json" && grep -q '"processors": "1-2"' "$folder/cores.json" || wrong 'cores are lost'
described=$("$tutti" simulate --hosts 2 --per-host 6 --numa-nodes 2 --cores 3 --algorithm ring -s 64K --json | grep -v seconds_to_)
[[ $("$tutti" simulate --topology "$folder/cores.json" --algorithm ring -s 64K --json | grep -v seconds_to_) == "$described" ]] || wrong 'not the same machines'
# A described host has as many processors as ranks, in each command; ranks without a description use those of this
# machine.
ranks=$((8 * $(nproc)))
predicted() { "$tutti" explain all_reduce "$@" -s 64K | sed -n 's/^. ring  *\([0-9.]*\) .*/\1/p'; }
[[ $(predicted --per-host "$ranks") == "$(predicted --per-host "$ranks" --cores "$ranks")" ]] || wrong 'not as many processors as ranks'
[[ $(predicted -n "$ranks") == "$(predicted --per-host "$ranks" --cores "$(nproc)")" ]] || wrong 'not the processors of this machine'
[[ $(predicted -n "$ranks") != "$(predicted --per-host "$ranks")" ]] || wrong 'processors make no difference'
expect 2 '\-\-per-host excludes \-\-ranks' explain all_reduce -n 2 --per-host 2
host ''
for option in '--numa-nodes 2' '--ports 2' '--numa-link 5GB/s'; do
  # shellcheck disable=SC2086  # words
  expect 2 "${option% *}: no effect .*, which says what its host consists of" simulate --topology "$folder/host.json" --hosts 2 $option
done
expect 2 '\-\-link, \-\-transport: no effect .*, which has one host, and --hosts' simulate --topology "$folder/host.json" --link 1Gb/s --transport tcp
expect 0 'on 1 host,' simulate --topology "$folder/host.json" --hosts 1 --per-host 3
expect 2 '\-\-cores: no effect: .* is known, 3 each' simulate --topology "$folder/cores.json" --cores 2
expect 0 'the best' simulate --topology "$folder/cores.json" --cores 3
expect 0 ' p  1 GB/s' topo --topology "$folder/host.json" --hosts 2 --link 8Gb/s
host ', "out": {"gbytes_per_second": 5, "latency_us": 1}'
expect 2 '\-\-link: no effect .*, which has no port of unknown speed' simulate --topology "$folder/host.json" --hosts 2 --link 1Gb/s
expect 0 'on 4 hosts, predicted' simulate --topology "$folder/host.json" --hosts 4 --link 1ms --fat-tree 2 --transport verbs -s 64
expect 2 'something that has a rate' simulate --hosts 2 --slow link=host0:0.5
expect 2 '\-\-size' simulate --hosts 2 -s 9E
expect 1 'No space left' simulate --hosts 2 --per-host 2 --algorithm ring --trace /dev/full
expect 0 'results' simulate --topology <(cat "$folder/cluster.json") --json
expect 2 '\-\-most-bytes' tune -n 2 --most-bytes 8E
expect 1 'cannot be written' tune -n 2 -o "$folder/no/such/file"

# Tuning: two processes here; the file is used, and the file of another machine is not.
unset TUTTI_ALGORITHM TUTTI_TUNING
tuning=$folder/tuning.json
expect 0 'predictions of these .* times are wrong by' tune -n 2 --seconds 1 --most-bytes 64K \
  --collectives all_reduce,barrier -o "$tuning" --times "$folder/times.csv"
report=$(dirname "${BASH_SOURCE[0]}")/../../../perf/plot/prediction_report.py
python3 "$report" "$folder/times.csv" "$folder/times.csv" >"$out"
if ! grep -q '^2 ranks, 1 hosts, shm .* 1.000 ' "$out"; then
  echo "no job, or what was measured to be fastest was not, in the report of:"
  cat "$folder/times.csv"
  failed=1
fi
python3 "$report" --explain "$tutti" "$folder/times.csv" >"$out"
if ! grep -q '^  as explain chooses  *[1-9]' "$out"; then
  echo "nothing of what explain chooses in:"
  cat "$out"
  failed=1
fi
# All trees of two ranks are the same, and have one time.
if [[ $(grep ',128,k_nomial:' "$folder/times.csv" | wc -l) != 3 ||
  $(grep ',128,k_nomial:' "$folder/times.csv" | cut -d, -f9 | sort -u | wc -l) != 1 ]]; then
  echo "trees of two ranks have several times:"
  cat "$folder/times.csv"
  failed=1
fi
sed 's/"memory_us_per_byte": [^,}]*/"memory_us_per_byte": -1/' "$tuning" >"$folder/memory.json"
TUTTI_TUNING=$folder/memory.json expect 2 'memory.json:[0-9]*: jobs\[0\].costs.memory_us_per_byte: ' explain -n 2
cp "$tuning" "$out"
json "j['jobs'][0]['costs']['call_us'] > 0 and len(j['jobs'][0]['costs']['within_host']['send_us_per_byte']) == 4"
json "j['jobs'][0]['hosts'] == [2] and set(j['jobs'][0]['choices']) == {'all_reduce', 'barrier'}"
TUTTI_TUNING=$tuning expect 0 '^> ' explain all_reduce -n 2 -s 8
sed 's/"call_us": [^,}]*/"call_us": "much"/' "$tuning" >"$folder/much.json"
TUTTI_TUNING=$folder/much.json expect 2 'much.json:[0-9]*: jobs\[0\].costs.call_us: is not a number' explain -n 2
TUTTI_TRANSPORTS=tcp expect 0 'on 2 hosts over tcp' tune -n 2 --seconds 1 --most-bytes 4K --collectives reduce -o "$tuning"
cp "$tuning" "$out"
json "len(j['jobs']) == 2"
# Measured again: costs fitted to other collectives stay, costs fitted to all collectives replace them.
sed -i 's/"call_us": [^,}]*/"call_us": 12345/' "$tuning"
expect 0 'barrier' tune -n 2 --seconds 0.5 --most-bytes 64 --collectives barrier -o "$tuning"
cp "$tuning" "$out"
json "j['jobs'][0]['costs']['call_us'] == 12345"
expect 0 'barrier' tune -n 2 --seconds 1 --most-bytes 64 -o "$tuning"
cp "$tuning" "$out"
json "j['jobs'][0]['costs']['call_us'] != 12345"
expect 1 'cannot be written' tune -n 2 --times "$folder/no/such/times" -o "$tuning"
sed 's/"algorithm": "[a-z_:0-9]*"/"algorithm": "ring"/' "$tuning" | sed '/barrier/,$d' >"$folder/half.json"
TUTTI_TUNING=$folder/half.json expect 2 'half.json:[0-9]*: ' explain -n 2
python3 - "$tuning" "$folder/ring.json" "$folder/slow.json" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
for job in j['jobs']:
    job['choices'] = {'all_reduce': [{'from_bytes': 0, 'algorithm': 'ring'}]}
    job['costs']['within_host']['latency_us'] = 1
json.dump(j, open(sys.argv[2], 'w'))
for job in j['jobs']:
    job['costs']['within_host']['latency_us'] = 12345
json.dump(j, open(sys.argv[3], 'w'))
j['machine'] = 'another'
json.dump(j, open(sys.argv[2] + '.other', 'w'))
PY
TUTTI_TUNING=$folder/ring.json expect 0 '^> ring ' explain all_reduce -n 2 -s 8
# The simulation uses the fitted costs and names their source.
whose='^with the costs of 2 ranks on 1 host over shm: TUTTI_TUNING$'
TUTTI_TUNING=$folder/ring.json expect 0 "$whose" explain all_reduce -n 3
TUTTI_TUNING=$folder/ring.json expect 0 "$whose" simulate --per-host 3
TUTTI_TUNING=$folder/ring.json expect 0 "$whose" simulate --per-host 3 -e 64
TUTTI_TUNING=$folder/ring.json expect 0 'publish: .* has none for 4 ranks on 2 hosts over shm+verbs$' simulate --hosts 2 --per-host 2 --transport verbs
expect 0 '"results"' simulate --per-host 3 --json
json "'costs_of' not in j"
TUTTI_TUNING=$folder/ring.json expect 0 '"results"' simulate --per-host 3 --json
json "j['costs_of']['hosts'] == [2] and j['costs_of']['transports'] == 'shm'"
TUTTI_TUNING=$folder/ring.json expect 0 '"results"' simulate --per-host 2 --algorithm ring -s 64 --json
ring_us=$(python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['results'][0]['time_us'])" "$out")
TUTTI_TUNING=$folder/slow.json expect 0 '"results"' simulate --per-host 2 --algorithm ring -s 64 --json
json "j['results'][0]['time_us'] > $ring_us + 10000"
TUTTI_TUNING=$folder/ring.json.other expect 2 'machine: is "another"' simulate --per-host 2
TUTTI_TUNING=$folder/ring.json expect 0 'has no such job' explain all_reduce -n 3 -s 8
TUTTI_TUNING=$folder/ring.json.other expect 2 'machine: is "another"' explain all_reduce -n 2
expect 1 'machine: is "another".*--force' tune -n 2 --seconds 1 --most-bytes 64 --collectives barrier -o "$folder/ring.json.other"
expect 0 'barrier' tune -n 2 --seconds 1 --most-bytes 64 --collectives barrier -o "$folder/ring.json.other" --force
expect 2 'no collective "nonsense"' tune -n 2 --collectives nonsense
expect 2 'no launcher has started this program.*tutti tune: -n 2' tune --seconds 1
TUTTI_ALGORITHM=all_reduce:ring expect 0 '^forced: TUTTI_ALGORITHM' explain all_reduce -n 2 -s 8
TUTTI_ALGORITHM=nonsense expect 2 'nonsense' explain all_reduce -n 2 -s 8
TUTTI_ALGORITHM=allreduce:ring expect 0 '^forced: ' explain all_reduce -n 2 -s 8
TUTTI_ALGORITHM=hierarchical expect 0 'TUTTI_ALGORITHM: hierarchical does not support 2 ranks .*NUMA nodes' explain -n 2
TUTTI_ALGORITHM=all_reduce:direct expect 0 'all_reduce of 1 MiB, 4 ranks: direct$' topo --hosts 2 --per-host 2 --collective all_reduce -s 1M
expect 2 'ring:2 does not support these ranks: it needs several hosts, one of which has 2 ranks' simulate --per-host 4 --algorithm ring:2
# A file says which processors ranks share.
cat >"$folder/two_processors.json" <<'JSON'
{"format": "tutti topology", "version": 1, "root": {"kind": "host", "name": "h", "nodes": [
 {"kind": "numa", "name": "n", "processors": "0,2"}]}, "ranks": [{"at": "n", "count": 8}]}
JSON
for wanted in '--topology '"$folder/two_processors.json" '--per-host 8 --cores 2'; do
  # shellcheck disable=SC2086  # words
  expect 0 results simulate $wanted -s 1M --json && json "True"
  python3 -c 'import json, sys; print([r["time_us"] for r in json.load(open(sys.argv[1]))["results"]])' "$out" >>"$folder/shared"
done
[[ $(sort -u "$folder/shared" | wc -l) == 1 ]] || { cat "$folder/shared"; failed=1; }
expect 0 'one call *measured' explain broadcast -n 2 -s 64K --measure --seconds 0.5
expect 0 'over 128 ranks on 16 hosts' explain all_reduce --hosts 16 --per-host 8 -s 64M
expect 2 '\-\-measure needs' explain all_reduce --hosts 2 --measure

# What an option takes, in the words of --help; hidden arguments are not in the usage.
expect 0 '^Usage: tutti simulate \[OPTIONS\]$' simulate --help
expect 0 '^  -b,--begin SIZE from 1 (not with --size)$' simulate --help
expect 0 '^  --memory FLOAT above 0 ' simulate --help
expect 0 '^  --topology FILE (or by TUTTI_TOPOLOGY)$' explain --help
expect 0 '^  --seconds FLOAT from 0.1 to 3600 (default 60)$' tune --help
expect 0 '^  --bind core|numa|none  *Bind' run --help
expect 2 "^tutti explain: --size: '1Z' is not a size such as 8, 4K" explain -s 1Z
expect 0 'all_reduce of 1.5 KiB over 2 ranks' explain -n 2 -s 1.5K
expect 2 '^tutti simulate: --size: is more than 1P$' simulate -s 2P
expect 2 "^tutti tune: --seconds: '0' is not a number from 0.1 to 3600$" tune -n 2 --seconds 0
expect 2 '^tutti run: -n is required (Number of ranks' run true
expect 2 '^tutti schedule: algorithm is required$' schedule

# The suggestion for each kind of word; none if no word is similar.
expect 2 '^tutti: unknown subcommand tpoo; is topo meant?$' tpoo --svg -
expect 0 '^Usage: tutti topo ' help topo
expect 0 '^Usage: tutti run -n N' help run
expect 0 '^Usage: tutti ' help
expect 2 '^tutti: unknown subcommand version; is --version meant?$' version
expect 2 '^tutti topo: unknown option --jsno; is --json meant?$' topo --jsno
expect 2 '^tutti topo: unknown option --entirely-different$' topo --entirely-different
expect 2 '^Run tutti doctor --help' doctor rmda
expect 2 'unknown subcommand rmda; is rdma meant?' doctor rmda
expect 2 'no collective "broadcst"; is broadcast meant?$' explain broadcst
expect 2 'no algorithm "Ring" for all_reduce; is ring meant? There are direct, ' schedule Ring
expect 2 'no algorithm "k_nomial" for all_reduce; is k_nomial:2 meant?' simulate --algorithm k_nomial
TUTTI_ALGORITHM=all_reduce:rign expect 2 'algorithm "all_reduce:rign" does not exist; is ring meant? (choose one of direct, ' explain
TUTTI_ALGORITHM=tree expect 2 'algorithm "tree" does not exist; is double_tree meant?' explain
TUTTI_ALGORITHM=nonsense expect 2 'algorithm "nonsense" does not exist (choose one of direct, ' explain
TUTTI_ALGORITHM=all_reduec:ring expect 2 'collective "all_reduec" does not exist; is all_reduce meant?' explain
expect 2 '^tutti simulate: -n: ranks are counted by host' simulate -n 8
# The same names for the same things, in each subcommand.
expect 0 '^all_gather of 1 MiB over 3 ranks' explain --collective all_gather --ranks 3
expect 0 '^barrier' simulate barrier --hosts 2
expect 0 'all_reduce, rank 0 of 6' schedule ring --hosts 3,3
expect 2 'the ranks of each host, 2, must add up to 4' schedule ring --hosts 2 -n 4
expect 0 '^total' verify -n 2 --algorithm ring
# Sites in a ring are drawn so that cables do not cross: the third is below the second.
expect 0 'WAN 1.25 GB/s, 5 ms each' topo --sites 4 --hosts 4 --svg -
python3 - "$out" <<'PYTHON' || failed=1
import re, sys
at = {name: (float(x), float(y)) for x, y, name in
      re.findall(r'<text x="([\d.]+)" y="([\d.]+)" font-weight="bold">(site\d)<', open(sys.argv[1]).read())}
assert at["site1"][0] == at["site2"][0] > at["site0"][0] == at["site3"][0], at
assert at["site0"][1] == at["site1"][1] < at["site2"][1] == at["site3"][1], at
PYTHON
exit $failed
