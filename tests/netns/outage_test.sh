#!/bin/bash
# Networks that fail while a job runs. Usage: outage_test.sh RANK_PROGRAM. Exit status 77 (skipped) only if the system
# does not permit namespaces.
set -euo pipefail
program=$1
source "$(dirname "$0")/namespaces.sh"
join_by_switch
use_ipv4
export TUTTI_TRANSPORTS=tcp TIMEOUT_MS=90000

# Shorter than the timeout. One job is idle meanwhile, the other one begins its operations during the outage.
start "$work/idle" 4 again
idle=("${pids[@]}")
start "$work/busy" 4 again
pids+=("${idle[@]}")
wait_ready "$work/idle" 4
wait_ready "$work/busy" 4
cut_switch
touch "$work/busy/go"
sleep 20
repair_switch
touch "$work/idle/go"
finish outage-of-20-seconds

# The link of one host is down, so its kernel has no route meanwhile.
start "$work/link" 3 again
wait_ready "$work/link" 3
ip -n "$right" link set joint down
touch "$work/link/go"
sleep 18
ip -n "$right" link set joint up
finish link-down-for-18-seconds

# Permanent: TUTTI_NETWORK_TIMEOUT_MS determines when a host counts as gone, whether or not its ranks are awaited.
TUTTI_NETWORK_TIMEOUT_MS=3000 start "$work/gone" 4 again
wait_ready "$work/gone" 4
cut_switch
touch "$work/gone/go"
for rank in 0 1 2 3; do
  if wait "${pids[rank]}"; then
    echo "rank $rank has done without its network"
    exit 1
  fi
  if ! grep -q 'connection lost' "$work/gone/out.$rank"; then
    echo "rank $rank has not found that hosts are gone"
    exit 1
  fi
done
pids=()
echo 'passed: host-that-is-gone'
