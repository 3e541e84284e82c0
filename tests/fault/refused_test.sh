#!/bin/bash
# Ranks whose system refuses memory shared between processes use TCP, and one log line says so. If only shared memory is
# allowed, the error says what to do. After its first second no rank changes the affinity of a thread, and none lifts
# Yama's restriction of attaching to it, unless a setting asks for it. If the system refuses calls that connections
# need, ranks fail at once, with the name of the call.
# Usage: refused_test.sh REFUSED RUN_RANKS
set -euo pipefail
program=$(realpath "$1")
run_ranks=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TUTTI_TIMEOUT_MS=60000 TUTTI_INIT_TIMEOUT_MS=60000
unset TUTTI_TRANSPORTS TUTTI_LOG

fail() {
  echo "not ok: $*"
  cat "$folder/out" "$folder/err"
  exit 1
}

status=0
TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 "$program" memfd 1 >"$folder/out" 2>"$folder/err" || status=$?
if ((status == 77)); then
  echo 'skipped: no filter of system calls can be installed'
  exit 77
fi

# job RANKS TRANSPORTS ARGUMENT...
job() {
  status=0
  TUTTI_TRANSPORTS=$2 timeout 120 "$run_ranks" "$1" "$program" "${@:3}" >"$folder/out" 2>"$folder/err" || status=$?
}
# over_tcp RANKS WHO ARGUMENT...: correct results, and one line about those ranks.
over_tcp() {
  job "$1" shm,tcp "${@:3}"
  ((status == 0)) || fail "${*:3}: status $status"
  (($(grep -c '^right$' "$folder/out") == $1)) || fail "${*:3}: results"
  (($(grep -c 'cannot share memory' "$folder/err") == 1)) || fail "${*:3}: not one line in the log"
  grep -q "warn: $2: cannot share memory with the other ranks of the same host, so tcp is used: .*Fix: allow memfd_create(2)" "$folder/err" ||
    fail "${*:3}: the line does not say which ranks and what to do"
  echo "ok: $1 ranks, refused: ${*:3}"
}
# refused RANKS ARGUMENT...
refused() {
  job "$1" shm "${@:2}"
  ((status == 1)) || fail "${*:2}, shm alone: status $status"
  grep -q 'error: tuttiCommInitEnv: .*rank [0-9] (host .*) cannot share memory: .*allow memfd_create(2).*TUTTI_TRANSPORTS' \
    "$folder/err" || fail "${*:2}, shm alone: the error does not say what to do"
  echo "ok: $1 ranks, shm alone, refused: ${*:2}"
}

job 3 shm,tcp nothing 0
((status == 0)) || fail "nothing refused: status $status"
! grep -q 'cannot share memory' "$folder/err" || fail 'nothing refused: a line in the log'
for error in 1 22 38; do # EPERM, EINVAL, ENOSYS
  over_tcp 2 'ranks 0, 1' memfd "$error"
done
over_tcp 2 'ranks 0, 1' seals 22
over_tcp 2 'ranks 0, 1' size 0
over_tcp 3 'rank 0' memfd 1 0
over_tcp 3 'rank 1' memfd 38 1
over_tcp 4 'rank 3' seals 1 3
over_tcp 2 'ranks 0, 1' sendmsg 1 # which passes descriptors
over_tcp 3 'rank 1' sendmsg 38 1
refused 2 memfd 1
refused 2 seals 22
refused 3 memfd 38 1

# fails_at_once CALL TEXT ERRNO RANK...: the system refuses the call to the ranks.
fails_at_once() {
  local rank
  for rank in "${@:4}"; do
    export TUTTI_ROOT=127.0.0.1:$((20000 + RANDOM % 12000)) TUTTI_WORLD_SIZE=2
    status=0
    TUTTI_RANK=$rank timeout 120 "$program" "$1" "$3" >"$folder/out" 2>"$folder/err" || status=$?
    ((status == 1)) || fail "$1 is refused, rank $rank: status $status"
    grep -q "error: tuttiCommInitEnv: .*$2" "$folder/err" || fail "$1 is refused, rank $rank: the error does not say so"
    ! grep -qE 'timed out|firewall' "$folder/err" || fail "$1 is refused, rank $rank: it has waited"
  done
  unset TUTTI_ROOT TUTTI_WORLD_SIZE
  echo "ok: $1 is refused: ranks ${*:4} fail at once"
}
fails_at_once socket 'Address family not supported' 97 0 1
for error in 1 13 38; do # EPERM, EACCES, ENOSYS
  fails_at_once connect 'connect to 127.0.0.1.*seccomp' "$error" 0 1
done
fails_at_once accept4 'accepting a connection.*seccomp' 1 0
# Without other ranks, rank 1 would not reach these calls.
for call in getsockopt getrandom sendto recvfrom; do
  fails_at_once "$call" "127.0.0.1:[0-9]*: ${call%to} (.*seccomp\|127.0.0.1:[0-9]*: ${call%from} (.*seccomp" 38 0
done
if unshare -n true 2>/dev/null; then
  plain=$program
  printf '#!/bin/sh\nexec unshare -n "%s" "$@"\n' "$plain" >"$folder/alone"
  chmod +x "$folder/alone"
  program=$folder/alone
  fails_at_once nothing 'ip link set lo up' 0 0 1
  program=$plain
fi

# More ranks than processors; tutti moves threads if a setting asks for it.
ranks=$((2 * $(nproc)))
if ((ranks <= 16)); then
  for affinity in own start; do
    TUTTI_AFFINITY=$affinity job "$ranks" shm,tcp affinity 0
    ((status == 0)) || fail "$ranks ranks: a call changes the affinity of its thread, TUTTI_AFFINITY=$affinity"
  done
  echo "ok: $ranks ranks, no thread moved after the first second"
  if (($(nproc) > 1)); then
    # Ranks that happen to be on their processors are not moved.
    for try in {1..10}; do
      TUTTI_AFFINITY=move job "$ranks" shm,tcp affinity 0
      ((status == 0)) || break
    done
    ((status != 0)) || fail "$ranks ranks: TUTTI_AFFINITY=move moves no rank in $try jobs"
    echo "ok: $ranks ranks, moved where that is asked for"
  fi
fi

# With Yama's mode 1, which is simulated: another file covers the kernel's file with the mode. The same for the number
# by which ranks recognise their machine.
mkdir -p "$folder/kernel/yama" "$folder/kernel/random"
cat /proc/sys/kernel/random/boot_id >"$folder/kernel/random/boot_id"
echo 1 >"$folder/kernel/yama/ptrace_scope"
export run_ranks program folder
under_yama='mount --bind "$folder/kernel" /proc/sys/kernel && exec "$run_ranks" 2 "$program" ptracer 0'
if unshare -m sh -c 'mount --bind "$folder/kernel" /proc/sys/kernel' 2>/dev/null; then
  unset TUTTI_CROSS_MEMORY TUTTI_AFFINITY
  # LeakSanitizer would let its own thread attach to the process at the end.
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
  status=0
  unshare -m sh -c "$under_yama" >"$folder/out" 2>"$folder/err" || status=$?
  ((status == 0)) || fail 'a rank lets others attach to it'
  echo 'ok: no process may attach to ranks'
  export TUTTI_CROSS_MEMORY=always
  status=0
  unshare -m sh -c "$under_yama" >"$folder/out" 2>"$folder/err" || status=$?
  ((status != 0)) || fail 'TUTTI_CROSS_MEMORY=always does not let ranks read each other'
  echo 'ok: ranks that are asked to let others attach'
fi
