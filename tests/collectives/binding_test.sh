#!/bin/bash
# TUTTI_BIND on this machine: each rank's thread, and the threads that it starts, may use the correct processors and no
# others. Usage: binding_test.sh BOUND_RANK ALL_REDUCE_PERF RUN_RANKS; ALL_REDUCE_PERF "none" if programs are not built.
set -euo pipefail
bound_rank=$(realpath "$1")
all_reduce=$2
run_ranks=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset TUTTI_BIND TUTTI_LOCAL_RANK TUTTI_LOCAL_SIZE LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK \
  MPI_LOCALRANKID SLURM_LOCALID
export TUTTI_TIMEOUT_MS=60000 TUTTI_INIT_TIMEOUT_MS=60000

fail() {
  echo "not ok: $*"
  cat "$folder"/said* 2>/dev/null || true
  exit 1
}

# members LIST: "0-2,5" as a line of its numbers.
members() {
  local part
  for part in ${1//,/ }; do seq -s ' ' "${part%-*}" "${part#*-}"; done | tr '\n' ' ' | sed 's/ *$//'
}

# within LIST LIST: all of the first are in the second.
within() {
  local one
  for one in $(members "$1"); do [[ " $(members "$2") " == *" $one "* ]] || return 1; done
}

allowed=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
read -ra processors <<<"$(members "$allowed")"
first=${processors[0]}

# run_pair COMMAND...: two ranks, each started by COMMAND with its local rank in the environment; sets `bound` to the
# processors to which they were bound, and `statuses` to their exit statuses.
run_pair() {
  local rank pids=()
  rm -rf "$folder/job"
  mkdir "$folder/job"
  for rank in 0 1; do
    TUTTI_LOCAL_RANK=$rank TUTTI_LOCAL_SIZE=2 "$@" "$bound_rank" "$rank" 2 "$folder/job" >"$folder/said.$rank" 2>&1 &
    pids+=($!)
  done
  bound=()
  statuses=()
  for rank in 0 1; do
    local status=0
    wait "${pids[rank]}" || status=$?
    statuses+=("$status")
    bound+=("$(cat "$folder/job/bound.$rank" 2>/dev/null || true)")
  done
}
# The same, and both succeed.
bound_pair() {
  run_pair "$@"
  [[ ${statuses[*]} == '0 0' ]] || fail "$*: exit statuses ${statuses[*]}"
}

core_of() { cat "/sys/devices/system/cpu/cpu$1/topology/thread_siblings_list" 2>/dev/null || echo "$1"; }
cores=$(for one in "${processors[@]}"; do core_of "$one"; done | sort -u | wc -l)

for bind in none ''; do
  bound_pair env TUTTI_BIND="$bind"
  [[ ${bound[*]} == "$allowed $allowed" ]] || fail "TUTTI_BIND=$bind: bound to ${bound[*]}, not $allowed"
done

bound_pair env TUTTI_BIND=core
for one in "${bound[@]}"; do
  within "$one" "$allowed" || fail "core: $one is not within $allowed"
  [[ $(for p in $(members "$one"); do core_of "$p"; done | sort -u | wc -l) == 1 ]] || fail "core: $one is not one core"
done
if ((cores > 1)); then
  [[ ${bound[0]} != "${bound[1]}" ]] || fail "core: both ranks are bound to ${bound[0]}"
fi
echo "ok: core: ${bound[*]} of $allowed"

bound_pair env TUTTI_BIND=numa
for one in "${bound[@]}"; do within "$one" "$allowed" || fail "numa: $one is not within $allowed"; done
nodes=$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l)
if ((nodes == 1)); then
  [[ ${bound[*]} == "$allowed $allowed" ]] || fail "numa: bound to ${bound[*]}, but the machine has one node"
fi
echo "ok: numa: ${bound[*]} of $allowed"

# Bound already: no more processors than that.
for bind in core numa; do
  bound_pair env TUTTI_BIND="$bind" taskset -c "$first"
  [[ ${bound[*]} == "$first $first" ]] || fail "$bind under taskset: bound to ${bound[*]}, not $first"
done
echo "ok: within taskset's $first"

# The local rank is not known: every rank's error says what to do, and none waits for another.
run_pair env TUTTI_BIND=core TUTTI_LOCAL_RANK= TUTTI_LOCAL_SIZE=
[[ ${statuses[*]} == '1 1' ]] || fail "without a local rank: exit statuses ${statuses[*]}"
grep -q 'TUTTI_BIND: .*Set TUTTI_LOCAL_RANK, from 0 on, and TUTTI_LOCAL_SIZE' "$folder/said.0" || fail 'no fix named'
# A job of one rank has the machine for itself.
[[ $all_reduce == none ]] || env -u TUTTI_LOCAL_RANK TUTTI_BIND=core TUTTI_LOG=info TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 \
  "$all_reduce" -b 8 -e 8 -n 1 -w 0 >"$folder/said" 2>&1 || fail 'a job of one rank cannot be bound'
[[ $all_reduce == none ]] || grep -q "TUTTI_BIND: local rank 0 of 1 is bound to processors $first.* of the $allowed that" \
  "$folder/said" || grep -q 'local rank 0 of 1 stays with' "$folder/said" || fail 'nor says which processors it has'
# A wrong setting is reported there too.
[[ $all_reduce == none ]] || ! env TUTTI_BIND=core TUTTI_LOCAL_RANK=5 TUTTI_LOCAL_SIZE=2 TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 \
  "$all_reduce" -b 8 -e 8 -n 1 -w 0 >"$folder/said" 2>&1 || fail 'a job of one rank takes an unusable local rank'
[[ $all_reduce == none ]] || grep -q 'TUTTI_LOCAL_RANK="5" is not usable' "$folder/said" || fail 'nor names it'
# One rank alone: the other hears of it.
# shellcheck disable=SC2016
run_pair bash -c '[[ $TUTTI_LOCAL_RANK == 0 ]] || export TUTTI_LOCAL_RANK=2; TUTTI_BIND=core exec "$@"' -
[[ ${statuses[*]} == '1 1' ]] || fail "one rank of no use: exit statuses ${statuses[*]}"
grep -q 'TUTTI_LOCAL_RANK="2" is not usable' "$folder/said.0" || fail 'rank 0 does not say what is wrong with rank 1'
# Before there is a unique id for which another rank could wait.
! TUTTI_BIND=socket "$bound_rank" 0 1 "$folder/job" >"$folder/said.0" 2>&1 || fail 'TUTTI_BIND=socket was taken'
grep -q 'TUTTI_BIND="socket" is not none, core or numa' "$folder/said.0" || fail 'no value named'
echo 'ok: a binding that cannot be done is reported'

if [[ $all_reduce != none ]]; then
  started() {
    "$@" >"$folder/said" 2>&1 || fail "$* has failed"
    local rank
    for rank in 0 1; do
      grep -q "TUTTI_BIND: local rank $rank of 2 " "$folder/said" || fail "$*: rank $rank says nothing"
    done
  }
  export TUTTI_BIND=core TUTTI_LOG=info
  started "$all_reduce" -p 2 -b 8 -e 8 -n 1 -w 0
  started "$run_ranks" 2 "$all_reduce" -b 8 -e 8 -n 1 -w 0
  # Ranks that are threads made together are not local ranks, and are not bound.
  "$all_reduce" -t 2 -b 8 -e 8 -n 1 -w 0 >"$folder/said" 2>&1 || fail 'all_reduce_perf -t 2 has failed'
  ! grep -q 'TUTTI_BIND: ' "$folder/said" || fail 'a thread of tuttiCommInitAll was bound'
  echo 'ok: all_reduce_perf -p and run_ranks.sh say which rank is which'
fi
