#!/bin/bash
# Usage: run.sh MPIRUN RANKS LIBRARY PROGRAM ARGUMENTS...
# Runs the program with the library loaded before its MPI library, and requires that it took collectives: of each name in
# MUST_TAKE, or any.
set -euo pipefail -f
mpirun=$1 ranks=$2 library=$3
shift 3
case $mpirun in *openmpi*) options=(--oversubscribe) ;; *) options=() ;; esac
output=$(timeout -k 5 60 "$mpirun" "${options[@]}" -n "$ranks" \
  env TUTTI_MPI_SUMMARY=1 LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$library" "$@" 2>&1) || {
  printf '%s\n' "$output"
  exit 1
}
printf '%s\n' "$output"
if ((ranks > 1)); then
  for name in ${MUST_TAKE:-.*}; do
    grep -q "MPI_$name[:,].*taken" <<< "$output" || { echo "run.sh: no collective was taken: $name"; exit 1; }
  done
fi
