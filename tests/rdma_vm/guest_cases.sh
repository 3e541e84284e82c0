#!/bin/bash
# Runs test cases in a guest. Usage: guest_cases.sh RANK_PROGRAM TUTTI_PROGRAM PART... A part is a script that this one
# sources and that calls run_case. Each case prints one line, "ok NAME" or "not ok NAME", with all of its output if it
# failed. The exit status is 0 if all have passed.
set -euo pipefail

# For the parts: a rank of a job (rdma_rank.cc), and the command line tool (tools/cli/tutti.cc).
export rank_program=$1 tutti_program=$2
shift 2
# No wait of the library lasts longer, unless a case says otherwise.
export TUTTI_TIMEOUT_MS=20000 TUTTI_INIT_TIMEOUT_MS=30000
cases_passed=0
cases_failed=0
# Of a case: its files are removed with it.
case_folder=

# run_case NAME SECONDS COMMAND...: the command is a function of the script or a program. It runs in its own process
# group, which is killed when the command has ended or the time is over.
run_case() {
  local name=$1 seconds=$2 status=0 began=$EPOCHREALTIME took
  shift 2
  case_folder=$(mktemp -d)
  set -m
  (set -euo pipefail && trap 'exit 143' TERM && "$@") >"$case_folder/log" 2>&1 </dev/null &
  local case_pid=$!
  set +m
  (sleep "$seconds" && touch "$case_folder/late" && kill -KILL -- "-$case_pid") 2>/dev/null &
  local watch_pid=$!
  wait "$case_pid" 2>/dev/null || status=$?
  kill -KILL -- "-$case_pid" 2>/dev/null || true
  kill "$watch_pid" 2>/dev/null || true
  wait "$watch_pid" 2>/dev/null || true
  took=$(awk -v b="$began" -v e="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", e - b }')
  [[ ! -e $case_folder/late ]] || echo "stopped after $seconds s" >>"$case_folder/log"
  if ((status == 0)); then
    cases_passed=$((cases_passed + 1))
    sed -n 's/^note: /      /p' "$case_folder/log"
    echo "ok $name ($took)"
  else
    cases_failed=$((cases_failed + 1))
    sed 's/^/    | /' "$case_folder/log"
    echo "not ok $name (exit status $status, $took)"
  fi
  rm -rf "$case_folder"
}

# A line that is also printed for a case that has passed.
note() { echo "note: $*"; }

# Shared by the parts.
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/rdma_vm/guest_jobs.sh
. "$here/guest_jobs.sh"
# shellcheck source=tests/rdma_vm/guest_perftest.sh
. "$here/guest_perftest.sh"
for part in "$@"; do
  # shellcheck disable=SC1090
  . "$part"
done
echo "$cases_passed cases passed, $cases_failed failed"
((cases_failed == 0 && cases_passed > 0))
