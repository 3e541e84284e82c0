#!/bin/bash
# Tests the rig itself: it must distinguish the possible ends of a program, and no failing case may pass. Usage:
# rig_test.sh VM GUEST_CASES
set -euo pipefail
vm=$1 cases=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A separate folder for the rig's files distinguishes its guests from those of other tests.
build=$work/build

# said STATUS WANTED TEXT: the exit status is WANTED, and the text was printed.
said() {
  if (($1 != $2)) || ! grep -q -- "$3" "$work/log"; then
    cat "$work/log"
    echo "not ok: exit status $1, not $2, or no line with '$3'"
    exit 1
  fi
  echo "ok: $3"
}

# expect WANTED TEXT OPTION... -- PROGRAM...: runs it in guests.
expect() {
  local wanted=$1 text=$2 status=0
  shift 2
  timeout 400 "$vm" --build "$build" "$@" >"$work/log" 2>&1 || status=$?
  if ((status == 77)); then
    cat "$work/log"
    exit 77
  fi
  said "$status" "$wanted" "$text"
}

# The cases' runner needs no guest. expect_cases WANTED TEXT: for the part on standard input.
expect_cases() {
  local status=0
  cat >"$work/part"
  timeout 120 "$cases" none none "$work/part" >"$work/log" 2>&1 || status=$?
  said "$status" "$1" "$2"
}
expect_cases 0 '^1 cases passed, 0 failed' <<<'run_case good 60 true'
expect_cases 1 '^not ok wrong (exit status 1' <<<'wrong() { false; echo more; }; run_case wrong 60 wrong'
expect_cases 1 '^not ok late (exit status 137' <<<'run_case late 1 sleep 20'
expect_cases 1 '^0 cases passed, 0 failed' <<<''
# shellcheck disable=SC2016
expect_cases 1 '| rank 1 of 2' <<<'one() { echo "rank $1 of $2"; (($1 == 0)); }; run_case job 60 all_ranks 2 one'

# Each guest has its own status; the first that is not 0 counts. Files are shared, the host's files are there, and
# the second guest, like the first, has two NUMA nodes with a processor each.
# shellcheck disable=SC2016
expect 3 '^\[1\] output of the second' --timeout 360 --guests 2 --numa 2 --memory 2G -- bash -c '
  touch "$RDMA_VM_SHARED/here.$RDMA_VM_GUEST"
  until [[ -e $RDMA_VM_SHARED/here.$((1 - RDMA_VM_GUEST)) ]]; do sleep 0.1; done
  ((RDMA_VM_GUEST == 0)) || { echo output of the second; [[ -f $0 && $(cat /sys/devices/system/node/node1/cpulist) == 1 ]] && exit 3; }' "$(realpath "${BASH_SOURCE[0]}")"
expect 125 'Kernel panic' --timeout 360 -- sh -c 'echo c >/proc/sysrq-trigger'
expect 124 'has not ended within 20 s' --timeout 20 -- sleep 1000
# No process of it is left running.
if pgrep -f "qemu.*$(realpath "$build")/rdma_vm/run" >/dev/null; then
  echo 'not ok: a guest is left'
  exit 1
fi
