# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in each of two guests that are joined by eth0 (rxe0): jobs across both. The guests run the
# same cases, and synchronise through a shared folder.

# across NAME TRANSPORTS BYTES RANKS: even ranks in the first guest, odd ranks in the second.
across() {
  local folder=$RDMA_VM_SHARED/$1 rank pid failed=0 pids=()
  export TUTTI_TRANSPORTS=$2
  mkdir -p "$folder"
  for ((rank = RDMA_VM_GUEST; rank < $4; rank += 2)); do
    "$rank_program" check "$3" "$rank" "$4" "$folder" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

# over_verbs NAME TRANSPORTS BYTES RANKS: as across; this guest's device has been used.
over_verbs() {
  local before
  before=$(sent_packets rxe0)
  across "$@"
  note "rxe0 sent $(($(sent_packets rxe0) - before)) packets"
  (($(sent_packets rxe0) - before > 100))
}

run_case 'two ranks over TCP' 60 across tcp2 tcp 100000 2
run_case 'four ranks over shared memory and TCP' 60 across mixed4 shm,tcp 100000 4
for ranks in 2 3 4 8; do
  run_case "$ranks ranks over verbs" 100 over_verbs "verbs$ranks" verbs 100000 "$ranks"
done
run_case '4 ranks over shared memory and verbs' 60 over_verbs mixed_verbs4 shm,verbs 300000 4
run_case '4 ranks over what is chosen' 60 over_verbs chosen4 '' 100000 4
