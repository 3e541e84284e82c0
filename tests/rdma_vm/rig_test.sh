#!/bin/bash
# Tests the rig itself: what becomes of a program's end must be told apart. Usage: rig_test.sh VM BUILD_FOLDER
set -euo pipefail
vm=$1 build=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# expect STATUS TEXT OPTION... -- PROGRAM...: the rig's exit status, and a line that it or the program prints.
expect() {
  local wanted=$1 text=$2 status=0
  shift 2
  timeout 100 "$vm" --build "$build" "$@" >"$log" 2>&1 || status=$?
  if ((status == 77)); then
    cat "$log"
    exit 77
  fi
  if ((status != wanted)) || ! grep -q -- "$text" "$log"; then
    cat "$log"
    echo "not ok: exit status $status, not $wanted, or no line with '$text'"
    exit 1
  fi
  echo "ok: $text"
}

# Each guest's own status; the first that is not 0 counts. Files are shared, the host's files are there.
# shellcheck disable=SC2016
expect 3 '^\[1\] output of the second' --timeout 60 --guests 2 -- bash -c '
  touch "$RDMA_VM_SHARED/here.$RDMA_VM_GUEST"
  until [[ -e $RDMA_VM_SHARED/here.$((1 - RDMA_VM_GUEST)) ]]; do sleep 0.1; done
  ((RDMA_VM_GUEST == 0)) || { echo output of the second; [[ -f tests/rdma_vm/rig_test.sh ]] && exit 3; }'
expect 125 'Kernel panic' --timeout 60 -- sh -c 'echo c >/proc/sysrq-trigger'
expect 124 'has not ended within 20 s' --timeout 20 -- sleep 1000
# Nothing of it is left running.
if pgrep -f "qemu.*$(realpath "$build")/rdma_vm/run" >/dev/null; then
  echo 'not ok: a guest is left'
  exit 1
fi
