#!/bin/bash
# tutti topo and tutti doctor on the machine at hand, whatever it has. Usage: command_line_test.sh TUTTI
set -euo pipefail
tutti=$1
failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
unset TUTTI_VERBS

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

expect 0 '--json' topo --help
expect 2 'nonsense' topo --nonsense
expect 0 "^  $(hostname)," topo
expect 0 '^  lo  ' topo
expect 0 '^RDMA ports$' topo
TUTTI_VERBS=nonsense=1 expect 2 'nonsense' topo
TUTTI_VERBS=rails=2 expect 0 'with TUTTI_VERBS=rails=2' topo
expect 0 'numa_nodes' topo --json
json "j['machine']['processors'] >= 1 and any(i['name'] == 'lo' for i in j['interfaces'])"
json "all(p['usable'] or p['reason'] for p in j['rdma']['ports'])"
# Without a device, the remedy.
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
  json "'rdma link add' in j['rdma']['error'] or 'libibverbs-dev' in j['rdma']['error']"
fi
expect 2 'subcommand' doctor
expect 2 'subcommand' doctor nonsense
expect 2 'nonsense' doctor rdma --nonsense
expect 0 'FAIL' doctor rdma --help
TUTTI_VERBS=rails=x expect 2 'rails' doctor rdma
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
  expect 1 '^FAIL  .*Remedy: ' doctor rdma
  expect 1 '^[okwarn]*  *memory lock limit: ' doctor rdma
  expect 1 '^RDMA cannot be used on this machine$' doctor rdma
fi
exit $failed
