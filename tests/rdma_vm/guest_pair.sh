# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in each of two guests that are joined by eth0 (rxe0): jobs across both. The guests run the
# same cases, and meet in a folder that both see.

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

run_case 'two ranks over TCP' 60 across tcp2 tcp 100000 2
run_case 'four ranks over shared memory and TCP' 60 across mixed4 shm,tcp 100000 4
