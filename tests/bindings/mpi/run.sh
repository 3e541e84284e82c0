#!/bin/bash
# Usage: run.sh MPIRUN RANKS LIBRARY PROGRAM ARGUMENTS...
# Runs the program with the library loaded before its MPI library, and checks that it took collectives: those of
# MUST_TAKE, or any; or that it printed each text of MUST_SAY, and each of MUST_SAY_ONCE once. The exit status must be
# MUST_END_WITH, by default 0; "any" if the launcher's own varies. MPIRUN_OPTIONS are further options of MPIRUN.
# Nonblocking calls of any length are taken, unless the test says otherwise.
set -euo pipefail -f
mpirun=$1 ranks=$2 library=$3
shift 3
case $mpirun in *openmpi*) options=(--oversubscribe) ;; *) options=() ;; esac
read -r -a more <<< "${MPIRUN_OPTIONS:-}"
output=$(timeout -k 5 200 "$mpirun" "${options[@]}" "${more[@]}" -n "$ranks" \
  env TUTTI_MPI_SUMMARY=1 TUTTI_MPI_NONBLOCKING="${TUTTI_MPI_NONBLOCKING-0}" LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$library" "$@" 2>&1) && status=0 || status=$?
printf '%s\n' "$output"
[[ ${MUST_END_WITH:=0} == any ]] || ((status == MUST_END_WITH)) || { echo "run.sh: it has ended with $status"; exit 1; }
for text in ${MUST_SAY_ONCE:-}; do
  times=$(grep -c "^tutti: *$text" <<< "$output") || true
  ((times == 1)) || { echo "run.sh: said $times times: $text"; exit 1; }
done
if [[ -n ${MUST_SAY:-} ]]; then
  for text in $MUST_SAY; do
    grep -q "^tutti: *$text" <<< "$output" || { echo "run.sh: no rank said: $text"; exit 1; }
  done
elif ((ranks > 1)); then
  for name in ${MUST_TAKE:-.*}; do
    grep -q "MPI_$name[:,].*taken" <<< "$output" || { echo "run.sh: no collective was taken: $name"; exit 1; }
  done
fi
