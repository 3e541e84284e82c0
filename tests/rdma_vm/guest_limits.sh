# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0: machines that are not set up for RDMA. A rank that asks only
# for verbs gets an error that says what to do; other ranks get a job without RDMA.

# Root may lock any amount of memory, unless it has given that right up.
with_little_memory() {
  ulimit -l 64
  exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$rank_program" "$@"
}
with_absent_device() { TUTTI_VERBS=device=absent0 "$rank_program" "$@"; }

# refused PATTERN COMMAND...: two ranks that may use nothing but verbs; no rank starts, and the pattern is in what they
# say.
refused() {
  local pattern=$1 pid
  shift
  export TUTTI_TRANSPORTS=verbs
  start_ranks 2 "$@" check 1000 2>"$case_folder/said"
  for pid in "${job_pids[@]}"; do
    ! wait "$pid" || { echo 'a rank has succeeded'; return 1; }
  done
  cat "$case_folder/said"
  note "$(head -n 1 "$case_folder/said")"
  grep -qE "$pattern" "$case_folder/said"
}

# falls_back TRANSPORTS COMMAND...: two ranks that may use something else, too.
falls_back() {
  export TUTTI_TRANSPORTS=$1
  shift
  all_ranks 2 "$@" check 100000
}

# The last rank connects otherwise than the rest.
with_two_ways() {
  local connect=exchange
  [[ $3 == 0 ]] || connect=cm
  TUTTI_VERBS=device=rxe0,connect=$connect "$rank_program" "$@"
}

run_case 'too little memory may be locked' 60 refused 'RLIMIT_MEMLOCK|ulimit -l' with_little_memory
run_case 'too little memory may be locked, TCP is allowed' 60 falls_back verbs,tcp with_little_memory
run_case 'a device that does not exist' 60 refused absent0 with_absent_device
run_case 'one rank by the connection manager, one not' 60 refused 'Set the same connect= in TUTTI_VERBS on all ranks' with_two_ways
