# shellcheck shell=bash disable=SC2154,SC2317
# For the parts of guest_cases.sh: jobs of several ranks, and their ends when something breaks.

# all_ranks RANKS COMMAND...: COMMAND RANK RANKS FOLDER for every rank at once. All must succeed.
all_ranks() {
  local ranks=$1
  shift
  start_ranks "$ranks" "$@"
  wait_ranks
}

# start_ranks RANKS COMMAND...: starts them; the job's folder is $case_folder/job, the ranks' processes job_pids.
start_ranks() {
  local ranks=$1 rank
  shift
  mkdir "$case_folder/job"
  job_pids=()
  for ((rank = 0; rank < ranks; ++rank)); do
    "$@" "$rank" "$ranks" "$case_folder/job" &
    job_pids+=($!)
  done
}

wait_ranks() {
  local pid failed=0
  for pid in "${job_pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

# wait_for_files SECONDS FILE...
wait_for_files() {
  local tries=$(($1 * 20)) file
  shift
  for file in "$@"; do
    until [[ -e $file ]]; do
      ((tries-- > 0)) || { echo "no ${file##*/}"; return 1; }
      sleep 0.05
    done
  done
}

# rank_files NAME RANK...: the ranks' files of that name, in the array `files`.
rank_files() {
  local name=$1 rank
  shift
  files=()
  for rank in "$@"; do files+=("$case_folder/job/$name.$rank"); done
}

# break_loop RANKS BYTES FAULT...: all-reduces of BYTES run until one fails, which FAULT, a command, causes once all
# ranks are in them.
break_loop() {
  local ranks=$1 bytes=$2
  shift 2
  local files=() all=()
  mapfile -t all < <(seq 0 $((ranks - 1)))
  start_ranks "$ranks" "${rank_command[@]}" loop "$bytes"
  rank_files ready "${all[@]}"
  wait_for_files 120 "${files[@]}"
  "$@"
}

# where_is RANK: where its threads wait, in the kernel or outside; or how it has ended.
where_is() {
  local task status=0
  if ! kill -0 "${job_pids[$1]}" 2>/dev/null; then
    wait "${job_pids[$1]}" || status=$?
    echo "rank $1 has ended without an outcome: exit status $status"
    return
  fi
  for task in "/proc/$(<"$case_folder/job/ready.$1")/task"/*; do
    echo "rank $1, thread ${task##*/}: $(grep State "$task/status"), in $(cat "$task/wchan")"
    cat "$task/stack"
  done
}

# expect_outcome SECONDS PATTERN RANK...: each of these ranks ends within SECONDS of its last operation that succeeded,
# and reports "CODE TEXT" that matches the extended regular expression. 2 is tuttiSystemError, 6 tuttiRemoteError, 8
# tuttiTimeout.
expect_outcome() {
  local seconds=$1 pattern=$2 rank code ms text files=()
  shift 2
  rank_files outcome "$@"
  if ! wait_for_files $((seconds + 10)) "${files[@]}"; then
    for rank in "$@"; do [[ -e $case_folder/job/outcome.$rank ]] || where_is "$rank"; done
    return 1
  fi
  for rank in "$@"; do
    read -r code ms text <"$case_folder/job/outcome.$rank"
    note "rank $rank: $code after $ms ms: $text"
    ((ms <= seconds * 1000)) || { echo "rank $rank was too late"; return 1; }
    grep -qE "$pattern" <<<"$code $text" || { echo "rank $rank does not say $pattern"; return 1; }
    # It can leave the failed job.
    wait "${job_pids[rank]}" || { echo "rank $rank ended with exit status $?"; return 1; }
  done
}

# Packets that a soft-RoCE device has sent.
sent_packets() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }

# As a FAULT: the end of one rank's process, which says nothing any more.
kill_rank() { kill -KILL "$(<"$case_folder/job/ready.$1")"; }

# How parts start a rank: the program, or a function that sets the rank's environment first.
rank_command=("$rank_program")
