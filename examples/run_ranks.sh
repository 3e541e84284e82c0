#!/bin/bash
# Starts N ranks of a program on this machine with nothing but tutti's own variables.
# Usage: run_ranks.sh N PROGRAM [ARGUMENT...]
set -euo pipefail
if (($# < 2)); then
  echo "Usage: ${0##*/} N PROGRAM [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift
# A port on which nobody listens; the kernel draws its own from 32768 upwards.
port=$((20000 + RANDOM % 12000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((20000 + RANDOM % 12000)); done
export TUTTI_WORLD_SIZE=$ranks TUTTI_ROOT=127.0.0.1:$port
pids=()
for ((rank = 0; rank < ranks; ++rank)); do
  TUTTI_RANK=$rank "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
