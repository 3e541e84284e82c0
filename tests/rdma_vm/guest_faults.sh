# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0 on d0 and siw0: the ranks' errors when something breaks.

# killed TRANSPORTS BYTES RANKS: the last rank is killed; all others name it.
killed() {
  export TUTTI_TRANSPORTS=$1
  local last=$(($3 - 1)) others=()
  mapfile -t others < <(seq 0 $((last - 1)))
  break_loop "$3" "$2" kill_rank "$last"
  expect_outcome 5 "^6 .*rank $last" "${others[@]}"
}

# broken BYTES FAULT...: three ranks over rxe0; every one ends with an error within its deadline.
broken() {
  local bytes=$1
  shift
  export TUTTI_TRANSPORTS=verbs TUTTI_VERBS=device=rxe0 TUTTI_TIMEOUT_MS=8000
  break_loop 3 "$bytes" "$@"
  expect_outcome 12 '^(2|6|8) ' 0 1 2
}

# The kernel removes a soft-RoCE device when the last process has closed it; until then the device works.
removed_while_used() {
  local remover
  export TUTTI_TRANSPORTS=verbs TUTTI_VERBS=device=rxe0
  break_loop 3 100000 sleep 0.5
  rdma link delete rxe0 &
  remover=$!
  sleep 1
  kill_rank 2
  expect_outcome 5 '^6 .*rank 2' 0 1
  wait "$remover"
  ! rdma link | grep rxe0
}

restore_address() {
  ip link set d0 up
  ip -4 addr show d0 | grep -q 10.77.0.1 || ip addr add 10.77.0.1/24 dev d0
}

restore_device() { rdma link | grep -q rxe0 || rdma link add rxe0 type rxe netdev d0; }

# Enables soft-iWARP's messages about its connections in the kernel's log, if possible.
let_siw_tell() {
  local file
  mount -t debugfs none /sys/kernel/debug 2>/dev/null || true
  for file in siw_cm.c siw_qp.c siw_verbs.c; do
    echo "file $file +p" >/sys/kernel/debug/dynamic_debug/control || true
  done 2>/dev/null
}

# Jobs over iWARP, whose last data is still in flight when their ranks leave.
leave_a_lossy_network() {
  local job
  export TUTTI_TRANSPORTS=verbs TUTTI_VERBS=device=siw0
  let_siw_tell
  tc qdisc add dev lo root netem loss 2% delay 3ms
  for job in 1 2 3 4; do
    dmesg --clear || true
    all_ranks 3 "$rank_program" check 30 || { echo "job $job"; dmesg | tail -150; return 1; }
    rm -r "$case_folder/job"
  done
}

run_case 'iWARP jobs end on a lossy network' 120 leave_a_lossy_network
tc qdisc del dev lo root
run_case 'a killed rank, TCP' 180 killed tcp 100000 3
export TUTTI_VERBS=device=rxe0
run_case 'a killed rank, verbs, 8 bytes' 180 killed verbs 8 3
run_case 'a killed rank, verbs, 1 MB' 180 killed verbs 1000000 3
export TUTTI_VERBS=device=siw0
run_case 'a killed rank, iWARP, 100 kB' 180 killed verbs 100000 3
unset TUTTI_VERBS
run_case 'the network interface goes down' 180 broken 100000 ip link set d0 down
restore_address
run_case "the device's address is removed" 180 broken 100000 ip addr del 10.77.0.1/24 dev d0
restore_address
run_case 'the device is removed while it is used' 180 removed_while_used
restore_device
# The last case, because the interface does not come back.
run_case 'the network interface is removed' 180 broken 100000 ip link delete d0
