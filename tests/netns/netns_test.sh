#!/bin/bash
# Jobs across two network namespaces that are connected by a pair of virtual interfaces. Usage: netns_test.sh
# RANK_PROGRAM ALGORITHMS_PROGRAM. Exit status 77 (skipped) only if the system does not permit namespaces.
set -euo pipefail
program=$1 algorithms=$2
source "$(dirname "$0")/namespaces.sh"
join_directly

use_ipv4
TUTTI_TRANSPORTS=tcp job tcp-ipv4 2
TUTTI_TRANSPORTS=shm:netns,tcp job mixed-ipv4 4
TUTTI_TRANSPORTS=shm,tcp job shared-memory-across-namespaces 4
TUTTI_TRANSPORTS=shm:netns,tcp TUTTI_INTERFACE=joint job interface 4
TUTTI_TRANSPORTS=shm,tcp OTHERS_TRANSPORTS=shm:netns job rank-0-goes-across-namespaces 4
TUTTI_TRANSPORTS=shm:netns,tcp OTHERS_TRANSPORTS=shm job rank-0-stays-in-its-namespace 4

# The files by which ranks of several namespaces find each other are removed when all have joined, so no end of a rank
# leaves any.
mkdir "$work/tmp"
export TUTTI_TRANSPORTS=shm,tcp
TMPDIR=$work/tmp start "$work/no-files" 4 hold
wait_ready "$work/no-files" 4
[[ -z $(ls -A "$work/tmp") ]] || { echo "files are left while ranks run: $(ls -A "$work/tmp")"; exit 1; }
touch "$work/no-files/go"
finish no-files

# Folders without room for a socket, or without the permission to make one.
long=$work/$(printf 'x%.0s' {1..150})
mkdir "$long"
TMPDIR=/nonexistent job missing-folder 4
within=(unshare -m sh -c 'mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp && exec "$@"' sh)
if unshare -m true 2>/dev/null; then
  TMPDIR=$long job long-folder 4
  ! grep 'over TCP' "$work"/long-folder/out.* || { echo 'a long folder is not used'; exit 1; }
  TMPDIR=/proc job read-only-folders 4
  grep -q 'rank [0-3] reaches some ranks of its machine over TCP: .*/proc' "$work"/read-only-folders/out.* ||
    { echo 'the log does not say why TCP is used:'; cat "$work"/read-only-folders/out.*; exit 1; }
  TMPDIR=/proc TUTTI_TRANSPORTS=shm start "$work/nowhere" 2
  for pid in "${pids[@]}"; do
    ! wait "$pid" || { echo 'ranks without a way to each other ran'; exit 1; }
  done
  pids=()
  grep -q 'Set TMPDIR to a folder' "$work"/nowhere/out.* ||
    { echo 'no advice:'; cat "$work"/nowhere/out.*; exit 1; }
  echo 'passed: no folder and no TCP'
fi
within=()
unset TUTTI_TRANSPORTS

# User-defined algorithms that depend on hosts: here ranks are distributed round-robin. The job proves one that supports
# only these hosts; in the other one, no rank sends what others wait for.
levels=$(realpath "$(dirname "$0")/../../examples/schedules/two_level.json")
TUTTI_SCHEDULES=$levels TUTTI_ALGORITHM=all_reduce:two_level TUTTI_TRANSPORTS=shm:netns,tcp job hosts-of-two 4
cat >"$work/nothing.json" <<'EOF'
{"format": "tutti schedule", "version": 1, "name": "nothing", "collective": "broadcast",
 "when": "hosts == 2 && local_ranks_of(0) == 3 && local_ranks_of(1) == 2 && rank_of(1, 1) == 3",
 "do": [{"if": "rank != root", "do": [{"recv": 0, "from": "root"}]}]}
EOF
TUTTI_SCHEDULES=$work/nothing.json TUTTI_ALGORITHM=broadcast:nothing TUTTI_TRANSPORTS=shm:netns,tcp \
  start "$work/unproven" 5
for pid in "${pids[@]}"; do
  if wait "$pid"; then
    echo 'an algorithm ran that cannot be proven on these hosts'
    exit 1
  fi
done
pids=()
# Some may have received the notice first that others have failed.
if ! grep -q 'broadcast nothing, 5 ranks, root 0, hosts 3,2, of the ranks 0 2 4, 1 3: ' "$work"/unproven/out.*; then
  echo 'no rank has found that the algorithm cannot be proven on these hosts:'
  cat "$work"/unproven/out.*
  exit 1
fi
echo 'passed: hosts without a proof'

export TUTTI_TRANSPORTS=tcp TUTTI_PORT_RANGE=41000-41019
start "$work/ports" 4 hold
wait_ready "$work/ports" 4
for ns in "$left" "$right"; do
  ports=$(listening "$ns")
  [[ -n $ports ]] || { echo 'no rank listens'; exit 1; }
  for port in $ports; do
    ((port >= 41000 && port <= 41019)) || { echo "port $port is outside TUTTI_PORT_RANGE"; exit 1; }
  done
done
touch "$work/ports/go"
finish ports
unset TUTTI_TRANSPORTS TUTTI_PORT_RANGE

mkdir "$work/none"
if output=$(TUTTI_TRANSPORTS=tcp TUTTI_INTERFACE==absent0 TUTTI_INIT_TIMEOUT_MS=5000 timeout 60 \
  ip netns exec "$left" "$program" 0 2 "$work/none" 2>&1); then
  echo 'an interface that does not exist was accepted'
  exit 1
fi
grep -q absent0 <<<"$output" || { echo "the interface is not named: $output"; exit 1; }
echo 'passed: absent interface'

use_ipv6
TUTTI_TRANSPORTS=tcp job tcp-ipv6 2
TUTTI_TRANSPORTS=shm:netns,tcp job mixed-ipv6 4

# Sockets buffer far less than a message: a rank that waited for room without receiving would wait until the timeout.
ip netns add "$small"
ip -n "$small" link set lo mtu 1500 up
ip netns exec "$small" sysctl -qw net.ipv4.tcp_wmem='4096 16384 16384' net.ipv4.tcp_rmem='4096 16384 16384'
# The number of streams determines how a message is cut, the number of ranks which ranks wait for each other: all
# numbers of ranks run with one stream only.
for streams in 1 2 16; do
  cases='[.small]'
  ((streams > 1)) || cases+=',[.small_others]'
  TUTTI_TCP_STREAMS=$streams TUTTI_TIMEOUT_MS=20000 timeout 550 ip netns exec "$small" "$algorithms" "$cases"
  echo "passed: small sockets, $streams streams a link"
done
