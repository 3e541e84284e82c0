#!/bin/bash
# What passes between two hosts with and without TUTTI_ENCRYPT. Usage: encrypt_test.sh PHRASE_RANK. Exit status 77
# (skipped) only if the system does not permit namespaces.
set -euo pipefail
program=$1
source "$(dirname "$0")/namespaces.sh"
join_directly
export TUTTI_TRANSPORTS=tcp TUTTI_ROOT=10.234.7.1:29411 TUTTI_SECRET=correct-horse-battery-staple TUTTI_LOG=info

# observe NAME: runs the job, and stores what passed on the cable in $work/NAME.packets.
observe() {
  local name=$1 capture tries
  ip netns exec "$left" python3 "$(dirname "$0")/capture.py" joint "$work/$name.packets" "$work/$name.ready" &
  capture=$!
  for ((tries = 0; tries < 600; ++tries)); do
    [[ ! -e $work/$name.ready ]] || break
    sleep 0.1
  done
  job "$name" 2
  kill -TERM "$capture"
  wait "$capture"
}
# passed NAME WHAT: how many times.
passed() { { grep -a -o -F -- "$2" "$work/$1.packets" || true; } | wc -l; }
# expect NAME data|none
expect() {
  local name=$1 phrases addresses secrets
  phrases=$(passed "$name" 'the quick brown fox is a secret')
  addresses=$(passed "$name" '10.234.7.1:')  # as text: what ranks tell each other of themselves
  secrets=$(passed "$name" "$TUTTI_SECRET")
  echo "$name: $(stat -c %s "$work/$name.packets") bytes, $phrases phrases, $addresses addresses, $secrets secrets"
  (($(stat -c %s "$work/$name.packets") > 300000)) || { echo 'too little has passed'; exit 1; }
  ((secrets == 0)) || { echo 'the secret has passed'; exit 1; }
  if [[ $2 == data ]]; then
    ((phrases > 1000 && addresses > 0)) || { echo 'what should have passed is not found'; exit 1; }
  else
    ((phrases == 0 && addresses == 0)) || { echo 'plain data has passed'; exit 1; }
  fi
}

ip -n "$left" addr add 10.234.7.1/24 dev joint
ip -n "$right" addr add 10.234.7.2/24 dev joint
TUTTI_ENCRYPT=off observe off
expect off data
TUTTI_ENCRYPT=on observe on
expect on none
grep -q 'connections between processes are encrypted' "$work/on/out.0" || { cat "$work/on/out.0"; exit 1; }
# The two addresses are of one network, then of two.
TUTTI_ENCRYPT=wan observe wan-within
expect wan-within data
for side in "$left 10.234.7.1 10.234.7.2" "$right 10.234.7.2 10.234.7.1"; do
  read -r ns own other <<<"$side"
  ip -n "$ns" addr flush dev joint
  ip -n "$ns" addr add "$own/32" dev joint
  ip -n "$ns" route add "$other/32" dev joint
done
TUTTI_ENCRYPT=wan observe wan-between
expect wan-between none

# Rank 1 asks for more than rank 0 has decided.
job_of_two_minds() {
  mkdir "$work/minds"
  TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 ip netns exec "$left" timeout 100 "$program" >"$work/minds/out.0" 2>&1 &
  pids=($!)
  TUTTI_ENCRYPT=on TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 ip netns exec "$right" timeout 100 "$program" \
    >"$work/minds/out.1" 2>&1 &
  pids+=($!)
  local pid
  for pid in "${pids[@]}"; do
    if wait "$pid"; then
      echo 'a rank has joined without the encryption that one of them wants'
      exit 1
    fi
  done
  pids=()
  grep -q 'TUTTI_ENCRYPT=on on rank 1, but off on rank 0' "$work/minds/out.1" || { tail "$work"/minds/out.*; exit 1; }
  grep -q 'rank 1: TUTTI_ENCRYPT=on on rank 1' "$work/minds/out.0" || { tail "$work"/minds/out.*; exit 1; }
  echo 'passed: two minds'
}
job_of_two_minds
