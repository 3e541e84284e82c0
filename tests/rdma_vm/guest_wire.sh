# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0 and rxe1 at the two ends of a wire: what a network may do to packets.

# network EFFECT...: what tc's netem does to packets in both directions; nothing: no effect.
network() {
  local end
  for end in d0 d1; do
    tc qdisc replace dev "$end" root netem limit 100000 "$@"
  done
}

# perftest_over_wire ITERATIONS EFFECT...
perftest_over_wire() {
  local iterations=$1
  shift
  network "$@"
  note "network: ${*:-no effect}"
  perftest ib_write_bw 10.77.0.1 4 MB/s rxe0 rxe1 -x 1 -s 65536 -n "$iterations"
}

run_case 'write bandwidth over the wire' 30 perftest_over_wire 1000
run_case 'write bandwidth with 1 % loss' 60 perftest_over_wire 300 loss 1%
run_case 'write bandwidth with 20 ms delay' 30 perftest_over_wire 300 delay 20ms
