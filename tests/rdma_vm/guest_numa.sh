# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest of two packages, which are a NUMA node of two processors each: their
# description, jobs of ranks that are bound to them, and the placement of links' memory (numa_rank.cc).

export TUTTI_TRANSPORTS=shm
programs=${rank_program%/*}
# Of node 0 and node 1.
node_processors=(0-1 2-3)

topo() {
  local line
  "$tutti_program" topo >"$case_folder/topo"
  for line in 'package0 .*processors 0-1' 'package1 .*processors 2-3' 'NUMA node 0: processors 0-1' \
    'NUMA node 1: processors 2-3'; do
    grep -q "$line" "$case_folder/topo" || { cat "$case_folder/topo"; return 1; }
  done
  taskset -c 2 "$tutti_program" topo | grep 'of which this process may use 1 (2)'
}
run_case 'packages and NUMA nodes' 60 topo

# Neighbours on different nodes; neighbours together; some bound and some not.
on_nodes_in_turn() { taskset -c "${node_processors[$3 % 2]}" "$rank_program" "$@"; }
on_nodes_in_blocks() { taskset -c "${node_processors[2 * $3 / $4]}" "$rank_program" "$@"; }
on_processors() { taskset -c "$(($3 % 4))" "$rank_program" "$@"; }
some_anywhere() { if (($3 % 3 == 0)); then on_nodes_in_turn "$@"; else "$rank_program" "$@"; fi; }

# collectives BYTES RANKS COMMAND
collectives() { all_ranks "$2" "$3" check "$1"; }

for command in "$rank_program" on_nodes_in_turn on_nodes_in_blocks on_processors some_anywhere; do
  run_case "collectives of 4 ranks, ${command##*/}" 120 collectives 60000 4 "$command"
done
# More ranks than processors on a node.
run_case 'collectives of 6 ranks, on_nodes_in_turn' 120 collectives 60000 6 on_nodes_in_turn

# Packages divide ranks that are bound to them, and them alone: else these algorithms are refused.
hierarchical=$(printf '%s:hierarchical,' all_reduce reduce_scatter all_gather broadcast reduce)
across_packages() { TUTTI_ALGORITHM=${hierarchical%,} collectives 60000 "$@"; }
without_packages() {
  ! TUTTI_ALGORITHM=${hierarchical%,} collectives 60000 4 "$rank_program" 2>"$case_folder/refused" || return 1
  grep 'hierarchical.* does not support 4 ranks' "$case_folder/refused"
}
run_case 'hierarchies across packages, 4 ranks' 120 across_packages 4 on_nodes_in_turn
run_case 'no hierarchies of ranks that are bound to no package' 60 without_packages

# Nothing but slots serves what is long, so that they are used.
pages() {
  export TUTTI_CROSS_MEMORY=never
  all_ranks 2 "$@"
}
bound_pages() { taskset -c "${node_processors[$1]}" "$programs/numa_rank" blocking "$@"; }
queued_pages() { "$programs/numa_rank" queued "$@"; }
run_case 'pages of a link between nodes' 60 pages bound_pages
run_case 'pages of a link that is made by a queued operation' 60 pages queued_pages

# bound_to RANKS PROCESSORS COMMAND...: local ranks are bound by TUTTI_BIND to these, in their order.
bound_rank() {
  TUTTI_LOCAL_RANK=$1 TUTTI_LOCAL_SIZE=$2 "$programs/../collectives/bound_rank" "$@"
}
bound_after() { taskset -cp "${node_processors[2 * $1 / $2]}" "$BASHPID" && bound_rank "$@"; }
bound_to() {
  local wanted=$2 bound
  all_ranks "$1" "${@:3}"
  bound=$(for ((rank = 0; rank < $1; ++rank)); do cat "$case_folder/job/bound.$rank"; done | xargs)
  note "$bound"
  [[ $bound == "$wanted" ]]
}
bound_pages_by_setting() { TUTTI_LOCAL_RANK=$1 TUTTI_LOCAL_SIZE=2 "$programs/numa_rank" blocking "$@"; }
rank_by_setting() { TUTTI_LOCAL_RANK=$3 TUTTI_LOCAL_SIZE=$4 "$rank_program" "$@"; }
export programs TUTTI_BIND=numa
run_case 'TUTTI_BIND=numa, 2 ranks' 60 bound_to 2 '0-1 2-3' bound_rank
run_case 'TUTTI_BIND=numa, 4 ranks' 60 bound_to 4 '0-1 0-1 2-3 2-3' bound_rank
run_case 'TUTTI_BIND=numa, 6 ranks' 60 bound_to 6 '0-1 0-1 0-1 2-3 2-3 2-3' bound_rank
run_case 'TUTTI_BIND=numa within taskset' 60 bound_to 2 '0-1 2-3' bound_after
# As if it were bound when it starts.
run_case 'TUTTI_BIND=numa, pages of a link' 60 pages bound_pages_by_setting
run_case 'TUTTI_BIND=numa, collectives of 4 ranks' 120 collectives 60000 4 rank_by_setting
export TUTTI_BIND=core
run_case 'TUTTI_BIND=core, 2 ranks' 60 bound_to 2 '0 2' bound_rank
run_case 'TUTTI_BIND=core, 4 ranks' 60 bound_to 4 '0 1 2 3' bound_rank
# Four ranks that are bound to two nodes have two cores each, shared by ranks that are not known.
run_case 'TUTTI_BIND=core within taskset' 60 bound_to 4 '0-1 0-1 2-3 2-3' bound_after
run_case 'TUTTI_BIND=core, collectives of 4 ranks' 120 collectives 60000 4 rank_by_setting
