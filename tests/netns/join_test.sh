#!/bin/bash
# Hosts with many interfaces, and names that are known late. Usage: join_test.sh RANK_PROGRAM. Exit status 77 (skipped)
# only if the system does not permit namespaces.
set -euo pipefail
program=$1
source "$(dirname "$0")/namespaces.sh"
export TUTTI_TRANSPORTS=tcp

# bridges FIRST LAST: with the same addresses on both hosts.
bridges() {
  local ns i
  for ns in "$left" "$right"; do
    for ((i = $1; i <= $2; ++i)); do
      ip -n "$ns" link add "br$i" type bridge
      ip -n "$ns" addr add "172.$((15 + i)).0.1/16" dev "br$i"
      ip -n "$ns" link set "br$i" up
    done
  done
}

# The interface that connects the hosts comes after them, in the kernel's order.
bridges 1 9
join_directly
use_ipv4
job nine-bridges 3
TUTTI_ROOT=10.234.7.1:29400 job nine-bridges-root 4
# The hosts' own address also belongs to a bridge, and is the last one.
for ns in "$left" "$right"; do
  address=$(ip -n "$ns" -4 -o addr show joint | awk '{print $4}')
  ip -n "$ns" addr del "$address" dev joint
  ip -n "$ns" link add zbridge type bridge
  ip -n "$ns" link set joint master zbridge
  ip -n "$ns" addr add "$address" dev zbridge
  ip -n "$ns" link set zbridge up
done
job bridge-to-the-other-host 3
TUTTI_ROOT=10.234.7.1:29400 job bridge-to-the-other-host-root 4

# Too many for a unique id: omitted addresses are reported, and are not needed if the root is known.
bridges 10 16
ip -n "$left" link set zbridge up
for i in $(seq 1 20); do
  for ns in "$left" "$right"; do ip -n "$ns" addr add "10.77.$i.1/24" dev "br1"; done
done
TUTTI_ROOT=10.234.7.1:29400 job too-many-addresses-root 4
for rank in 0 1 2 3; do
  said=$(grep -c 'more than 32 addresses' "$work/too-many-addresses-root/out.$rank" || true)
  [[ $said == 1 ]] || { echo "rank $rank warns of its addresses $said times, not once"; exit 1; }
done

# An address that the other host cannot reach is in the error of both. Two attempts at once.
ip -n "$right" link del br1
started=()
for attempt in 1 2; do
  TIMEOUT_MS=12000 FIRST_INTERFACE==br1 TUTTI_ROOT=10.234.7.1:$((29401 + attempt)) start "$work/unreachable-$attempt" 2
  started+=("${pids[@]}")
done
pids=("${started[@]}")
for attempt in 1 2; do
  for rank in 0 1; do
    if wait "${started[2 * attempt - 2 + rank]}"; then echo "rank $rank joined"; exit 1; fi
    grep -q '172\.16\.0\.1:' "$work/unreachable-$attempt/out.$rank" ||
      { echo "rank $rank does not say what was tried"; exit 1; }
  done
done
pids=()
echo 'passed: unreachable-address'

# late NAME CONTENT: /etc/hosts of the right host has CONTENT at first, and the root's address 3 seconds later.
late() {
  mkdir -p "/etc/netns/$right"
  echo "$2" >"/etc/netns/$right/hosts"
  TUTTI_ROOT=the.root:29401 start "$work/$1" 2
  sleep 3
  echo '10.234.7.1 the.root' >"/etc/netns/$right/hosts"
  finish "$1"
}
late name-unknown-at-first '127.0.0.1 localhost'
late name-wrong-at-first '10.234.7.77 the.root'
late name-of-another-host '127.0.0.1 the.root'
