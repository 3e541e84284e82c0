#!/bin/bash
# Usage: run.sh MPIRUN RANKS LIBRARY PROGRAM ARGUMENTS...
# Runs the program with the library loaded before its MPI library, and requires that it took collectives.
set -euo pipefail
mpirun=$1 ranks=$2 library=$3
shift 3
case $mpirun in *openmpi*) options=(--oversubscribe) ;; *) options=() ;; esac
output=$(timeout 60 "$mpirun" "${options[@]}" -n "$ranks" \
  env TUTTI_MPI_SUMMARY=1 LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$library" "$@" 2>&1) || {
  printf '%s\n' "$output"
  exit 1
}
printf '%s\n' "$output"
if ((ranks > 1)); then
  grep -q 'MPI_.*taken' <<< "$output" || { echo 'run.sh: no collective was taken'; exit 1; }
fi
