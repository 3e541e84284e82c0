#!/bin/bash
# Connections that an administrator ends while the network is down (TUTTI_RECONNECT_MS). Usage: reconnect_test.sh
# RANK_PROGRAM. Exit status 77 (skipped) only if the system does not permit namespaces, or `ss -K`.
set -euo pipefail
program=$1
source "$(dirname "$0")/namespaces.sh"
join_by_switch
use_ipv4
export TUTTI_TRANSPORTS=tcp TIMEOUT_MS=60000 TUTTI_LOG=info

# end_connections: of the link of ranks 0 and 1, which has two streams to one port of rank 0. Neither side learns of it
# from the other, because no packet passes.
export TUTTI_TCP_STREAMS=2
sockets() { ip netns exec "$left" ss -Hnt state established dst 10.234.7.2 "$@"; }
end_connections() {
  local port='' tries
  # Until no other port has two connections.
  for ((tries = 0; tries < 100; ++tries)); do
    port=$(sockets | awk '{n = split($3, part, ":"); print part[n]}' | sort | uniq -d)
    [[ ! $port =~ ^[0-9]+$ ]] || break
    sleep 0.1
  done
  [[ $port =~ ^[0-9]+$ ]] || { echo "not one port with two connections: $port"; sockets; exit 1; }
  cut_switch
  ip netns exec "$left" ss -K -nt state established dst 10.234.7.2 sport = "$port" >/dev/null
  ip netns exec "$right" ss -K -nt state established dst 10.234.7.1 dport = "$port" >/dev/null
  if [[ -n $(sockets sport = "$port") ]]; then
    echo "skipped: this system does not end connections for ss -K"
    exit 77
  fi
}

# The network works again before the time is over. One job is in its operations, the other one is idle meanwhile.
for what in busy idle; do
  TUTTI_RECONNECT_MS=20000 start "$work/$what" 2 again
  wait_ready "$work/$what" 2
  end_connections
  [[ $what == idle ]] || touch "$work/$what/go"
  sleep 4
  repair_switch
  [[ $what == busy ]] || touch "$work/$what/go"
  finish "connections-ended-in-an-outage-$what"
  if ! grep -q 'tcp connection made anew after' "$work/$what/out.0"; then
    echo "rank 0 has made no connection anew"
    exit 1
  fi
done

# It does not.
TUTTI_RECONNECT_MS=1500 start "$work/over" 2 again
wait_ready "$work/over" 2
end_connections
touch "$work/over/go"
for rank in 0 1; do
  if wait "${pids[rank]}"; then
    echo "rank $rank has done without its network"
    exit 1
  fi
  if ! grep -q 'and could not be made anew within 1500 ms' "$work/over/out.$rank"; then
    tail "$work/over/out.$rank"
    echo "rank $rank does not say that the connection could not be made anew"
    exit 1
  fi
done
pids=()
echo 'passed: outage-longer-than-the-limit'
