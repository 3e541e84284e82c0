#!/usr/bin/env bash
# Launchers that start each other: the last one determines the ranks.
# Usage: nested_launchers.sh PROGRAM MPI_PROGRAM NAME LAUNCHER...: MPI_PROGRAM is PROGRAM with that launcher's MPI, or
# none; NAME is tutti's name of the launcher, LAUNCHER its command up to the number of ranks. A shell replaces torchrun: it
# sets torchrun's variables and starts the ranks of one agent.
set -euo pipefail
program=$1 mpi_program=$2 name=$3
shift 3
outer=("$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TUTTI_RANK TUTTI_WORLD_SIZE TUTTI_ROOT

free_port() {
  python3 "$(dirname "$0")/../free_port.py"
}

# Two ranks of a world of $1; the agent's number is the outer launcher's rank, or 0.
cat >"$folder/agent" <<'AGENT'
#!/bin/sh
agent=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}
pids=
for l in 0 1; do
  rank=$((agent * 2 + l))
  RANK=$rank WORLD_SIZE=$1 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT \
    TORCHELASTIC_RUN_ID=none timeout 60 "$2" "${3:-linger}" &
  pids="$pids $!"
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
AGENT
# The same with a process in between that closes the launcher's connection, like Python's subprocess.
cat >"$folder/closing" <<'CLOSING'
import subprocess, sys
sys.exit(subprocess.run(sys.argv[1:], close_fds=True).returncode)
CLOSING
chmod +x "$folder/agent"

# joined WHAT RANKS LAUNCHER COMMAND...: RANKS ranks of one job, each once, found by that launcher's variables.
joined() {
  local what=$1 ranks=$2 launcher=$3 expected=
  shift 3
  for ((rank = 0; rank < ranks; ++rank)); do expected+="joined as $rank of $ranks by $launcher"$'\n'; done
  if ! PORT=$(free_port) timeout 100 "$@" >"$folder/out" 2>"$folder/err" ||
    [[ $(grep '^joined' "$folder/out" | sort) != "${expected%$'\n'}" ]]; then
    echo "FAILED: $what: expected"; echo "$expected"; cat "$folder/out" "$folder/err"
    failed=1
    return
  fi
  echo "passed: $what"
}

# refused WHAT TEXT COMMAND...
refused() {
  local what=$1 text=$2
  shift 2
  if PORT=$(free_port) timeout 100 "$@" >"$folder/out" 2>"$folder/err" || ! grep -q "$text" "$folder/err"; then
    echo "FAILED: $what: expected an error with \"$text\""; cat "$folder/out" "$folder/err"
    failed=1
    return
  fi
  echo "passed: $what"
}

stale=(env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1)
# A shell in between, so that the variables belong to another process than the ranks' launcher.
between=(sh -c '"$@"; exit $?' between)

joined "torchrun in $name, one agent" 2 torchrun "${outer[@]}" 1 "$folder/agent" 2 "$program"
joined "torchrun in $name, two agents" 4 torchrun "${outer[@]}" 2 "$folder/agent" 4 "$program"
joined "torchrun in $name, behind a process that closes descriptors" 2 torchrun \
  "${outer[@]}" 1 python3 "$folder/closing" "$folder/agent" 2 "$program"
# Without an MPI launcher, MPI_Init declares each process the only rank, in variables that look like the launcher's.
[[ $mpi_program == none ]] ||
  joined "torchrun around MPI_Init of processes on their own" 2 torchrun "$folder/agent" 2 "$mpi_program" alone
old_plain=(env TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1)
if [[ ${outer[0]} != srun ]]; then
  joined "$name in torchrun" 2 "$name" "${stale[@]}" TORCHELASTIC_RUN_ID=none "${between[@]}" "${outer[@]}" 2 "$program" linger
  joined "$name beside old variables of torchrun with other ranks" 2 "$name" \
    env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "${between[@]}" "${outer[@]}" 2 "$program" linger
  joined "$name beside old plain variables" 2 "$name" "${old_plain[@]}" "${between[@]}" "${outer[@]}" 2 "$program" linger
else
  # Slurm's daemon starts the ranks with the variables of the shell and its own: no ancestor shows which came first.
  refused "$name in torchrun" 'Set TUTTI_LAUNCHER=' "${stale[@]}" "${between[@]}" "${outer[@]}" 2 "$program"
  refused "$name beside old plain variables" 'Set TUTTI_LAUNCHER=' "${old_plain[@]}" "${outer[@]}" 2 "$program"
  joined "$name beside old plain variables, with TUTTI_LAUNCHER=$name" 2 "$name" \
    "${old_plain[@]}" TUTTI_LAUNCHER="$name" "${outer[@]}" 2 "$program" linger
fi
joined "plain variables in $name" 1 plain \
  "${outer[@]}" 1 "${between[@]}" env TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1 "$program"
# Nothing shows which one was set last.
refused "$name and torchrun's variables set by the same process" 'Set TUTTI_LAUNCHER=' \
  "${outer[@]}" 1 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$program"
joined "TUTTI_LAUNCHER=$name" 1 "$name" \
  "${outer[@]}" 1 env TUTTI_LAUNCHER="$name" RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$program"
joined 'TUTTI_LAUNCHER=torchrun' 1 torchrun \
  "${outer[@]}" 1 env TUTTI_LAUNCHER=torchrun RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "$program"
# A script gives the launcher's ranks the names of torchrun's variables, without an address.
joined "$name with its ranks as torchrun names them" 2 "$name" "${outer[@]}" 2 sh -c \
  'RANK=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}} WORLD_SIZE=2 "$1" linger; exit $?' renaming "$program"
# A script makes each of the launcher's ranks the only one of a job: that may be intended, but they log a warning.
PORT=1 timeout 100 "${outer[@]}" 2 sh -c \
  'RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$1"; exit $?' alone "$program" >"$folder/out" 2>"$folder/err" || true
if [[ $(grep -c '^joined as 0 of 1 by torchrun' "$folder/out") != 2 ]] ||
  ! grep -q "the only one of its job. If it is one of 2, set TUTTI_LAUNCHER=$name" "$folder/err"; then
  echo "FAILED: ranks of $name in jobs of one rank:"; cat "$folder/out" "$folder/err"
  failed=1
else
  echo "passed: ranks of $name in jobs of one rank"
fi
exit "$failed"
