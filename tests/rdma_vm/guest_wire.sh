# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0 and rxe1 at the two ends of a wire: possible effects
# of a network on packets.

# network EFFECT...: the effect of tc's netem on packets in both directions; nothing: no effect.
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

run_case 'write bandwidth over the wire' 120 perftest_over_wire 1000
run_case 'write bandwidth with 1 % loss' 120 perftest_over_wire 300 loss 1%
run_case 'write bandwidth with 20 ms delay' 120 perftest_over_wire 300 delay 20ms

# Even ranks use rxe0, odd ranks rxe1.
on_wire() {
  local rank=$3
  TUTTI_VERBS="device=rxe$((rank % 2))" "$rank_program" "$@"
}

# over_wire BYTES RANKS EFFECT...: all collectives up to BYTES; the packets of both devices are counted.
over_wire() {
  local bytes=$1 ranks=$2 before
  shift 2
  network "$@"
  before=$(($(sent_packets rxe0) + $(sent_packets rxe1)))
  TUTTI_TRANSPORTS=verbs all_ranks "$ranks" on_wire check "$bytes"
  note "packets sent: $(($(sent_packets rxe0) + $(sent_packets rxe1) - before))"
  (($(sent_packets rxe0) + $(sent_packets rxe1) - before > 100 * ranks))
}

# Packets no longer arrive: a queue pair that sends gives up after its retries. A rank that only waits for data cannot
# notice that, because the other rank's notice does not arrive either, but its deadline applies.
silent() {
  export TUTTI_TRANSPORTS=verbs TUTTI_TIMEOUT_MS=15000
  rank_command=(on_wire)
  network
  break_loop 2 100000 network loss 100%
  expect_outcome 20 '^(2|6|8) ' 0 1
  grep -h 'retry counter exceeded' "$case_folder"/job/outcome.*
}

run_case '2 ranks over the wire' 60 over_wire 300000 2
run_case '2 ranks with 1 % loss' 90 over_wire 100000 2 loss 1%
run_case '4 ranks with 1 % loss' 90 over_wire 70000 4 loss 1%
run_case '2 ranks with 20 ms delay' 90 over_wire 70000 2 delay 20ms
run_case 'no packet arrives any more' 180 silent
