#!/bin/bash
# Somebody on the path who changes data, with and without TUTTI_ENCRYPT. Usage: attack_test.sh PHRASE_RANK. Exit status
# 77 (skipped) only if the system does not permit namespaces.
set -euo pipefail
program=$1
source "$(dirname "$0")/namespaces.sh"
ip netns add "$middle"
for ns in "$left" "$right"; do
  ip -n "$ns" link set lo up
  ip -n "$ns" link add joint type veth peer name "to$ns" netns "$middle"
  # Packets as they are on a network: the one between the two does not cut longer ones.
  ip -n "$ns" link set joint gso_max_segs 1
  ip -n "$ns" link set joint up
  ip -n "$middle" link set "to$ns" up
done
use_ipv4
export TUTTI_TRANSPORTS=tcp TUTTI_ROOT=10.234.7.1:29412 TUTTI_SECRET=correct-horse-battery-staple

# attack NAME EVERY: a job, while one of EVERY packets with data is changed.
attack() {
  local name=$1 every=$2 attacker tries pid
  ip netns exec "$middle" python3 "$(dirname "$0")/alter.py" "to$left" "to$right" "$every" "$work/$name.ready" \
    >"$work/$name.altered" &
  attacker=$!
  for ((tries = 0; tries < 600; ++tries)); do
    [[ ! -e $work/$name.ready ]] || break
    sleep 0.1
  done
  start "$work/$name" 2
  failures=0
  for pid in "${pids[@]}"; do wait "$pid" || failures=$((failures + 1)); done
  pids=()
  kill -TERM "$attacker"
  wait "$attacker"
  echo "$name: $failures of 2 ranks have failed; $(cat "$work/$name.altered")"
}
wrong() {
  tail -n 20 "$work"/*/out.*
  echo "$1"
  exit 1
}
says() { grep -q "$2" "$work/$1"/out.*; }

TUTTI_ENCRYPT=off attack quiet 0
((failures == 0)) || wrong 'the path does not carry a job'
TUTTI_ENCRYPT=off attack plain 40
says plain 'has other bytes' || wrong 'nothing was changed'
TUTTI_ENCRYPT=on attack encrypted 40
((failures == 2)) || wrong 'a rank did not notice'
says encrypted 'an encrypted message was damaged or forged' || wrong 'no rank says why'
! says encrypted 'has other bytes' || wrong 'changed bytes are a result'
# Connections may be made anew, unless what was changed has been acknowledged.
TUTTI_ENCRYPT=on TUTTI_RECONNECT_MS=20000 attack repaired 90
! grep -q '^0 of' "$work/repaired.altered" || wrong 'nothing was changed'
! says repaired 'has other bytes' || wrong 'changed bytes are a result'
echo passed
