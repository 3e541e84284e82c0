#!/bin/bash
# Starts N ranks of a program on this machine with nothing but tutti's own variables.
# Usage: run_ranks.sh [--lose-one] N PROGRAM [ARGUMENT...]
set -euo pipefail

usage() {
  echo "Usage: ${0##*/} [--lose-one] N PROGRAM [ARGUMENT...]" >&2
  echo "Starts N ranks of PROGRAM on this machine (N from 1). --lose-one: exactly one of them must be killed." >&2
  exit 2
}

# Ends all ranks when this script is ended. They ignore SIGINT, as all background processes of a script do.
stop() {
  trap '' INT TERM HUP
  local pids
  pids=$(jobs -pr)
  [[ -z $pids ]] || kill -TERM $pids 2>/dev/null || true
  for ((i = 0; i < 30; ++i)); do
    [[ -n $(jobs -pr) ]] || break
    sleep 0.1
  done
  pids=$(jobs -pr)
  [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
  wait || true
  exit $((128 + $1))
}

expected=0
if [[ ${1:-} == --lose-one ]]; then
  expected=1
  shift
fi
(($# >= 2)) || usage
[[ $1 =~ ^[1-9][0-9]{0,5}$ ]] || usage
ranks=$1
shift
# Finds a port on which no process listens. It is below 32768: the kernel chooses ports from there upwards. Scripts that
# start at the same time have different process ids, and begin with different ports.
port=$((20000 + $$ % 12000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((20000 + RANDOM % 12000)); done
export TUTTI_WORLD_SIZE=$ranks TUTTI_LOCAL_SIZE=$ranks TUTTI_ROOT=127.0.0.1:$port
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 15' TERM
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  TUTTI_RANK=$rank TUTTI_LOCAL_RANK=$rank "$@" &
  pids+=($!)
done
status=0
killed=0
for pid in "${pids[@]}"; do
  ended=0
  wait "$pid" || ended=$?
  if ((ended == 128 + 9)); then killed=$((killed + 1)); elif ((ended != 0)); then status=1; fi
done
((killed == expected)) || status=1
exit $status
