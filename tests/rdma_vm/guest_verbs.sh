# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0, rxe1 and siw0: all collectives over verbs, between processes, and
# random programs with sends, receives and groups.

# over_devices OPTIONS BYTES RANKS DEVICE...: all collectives up to BYTES with TUTTI_VERBS=OPTIONS; each soft-RoCE
# DEVICE must have sent a large part of it.
over_devices() { verbs_job check "$@"; }
# programs_over OPTIONS BYTES RANKS DEVICE...: the same with random programs.
programs_over() { verbs_job programs "$@"; }

# verbs_job WHAT OPTIONS BYTES RANKS DEVICE...
verbs_job() {
  local what=$1 options=$2 bytes=$3 ranks=$4 device
  shift 4
  local before=()
  for device in "$@"; do before+=("$(sent_packets "$device")"); done
  TUTTI_TRANSPORTS=verbs TUTTI_VERBS=$options all_ranks "$ranks" "$rank_program" "$what" "$bytes"
  for device in "$@"; do
    note "$device sent $(($(sent_packets "$device") - before[0])) packets"
    (($(sent_packets "$device") - before[0] > 100 * ranks)) || { echo "$device was not used"; return 1; }
    before=("${before[@]:1}")
  done
}

# splits_over OPTIONS BYTES RANKS DESCRIPTORS: communicators that are split from each other, at the same time; each uses
# DESCRIPTORS descriptors.
splits_over() {
  local rank counts
  TUTTI_TRANSPORTS=verbs TUTTI_VERBS=$1 all_ranks "$3" "$rank_program" splits "$2"
  for ((rank = 0; rank < $3; ++rank)); do
    counts=$(sort -n "$case_folder/job/descriptors.$rank" | uniq -c | awk '{ print $1 " x " $2 }' | paste -sd ' ')
    # Beside these the process keeps up to four epoll sets in which its threads have slept.
    awk -v each="$4" '{ more += $1 - each } END { exit more < 0 || more > 4 }' \
      "$case_folder/job/descriptors.$rank" ||
      { echo "rank $rank: $counts descriptors for each communicator, not $4"; return 1; }
  done
}

# Each case tests a path that no other case takes. Jobs of two ranks are those with and without kept memory. Jobs of
# three ranks are those over two rails and those by the connection manager.
run_case '4 ranks over rxe0' 100 over_devices device=rxe0 300000 4 rxe0
# Of eight it is the number of queue pairs that matters.
run_case '8 ranks over rxe0' 100 over_devices device=rxe0 4000 8 rxe0
with_checksums() { TUTTI_CHECKSUM=1 over_devices "$@"; }
run_case '3 ranks over rxe0, with checksums' 100 with_checksums device=rxe0 300000 3 rxe0
run_case '2 ranks over two rails' 60 over_devices device=rxe0+rxe1,rails=2 1100000 2 rxe0 rxe1
run_case '3 ranks over two rails with two queue pairs each' 60 \
  over_devices device=rxe0+rxe1,rails=2,queue_pairs=2 300000 3 rxe0 rxe1
run_case '2 ranks, path MTU 1024' 60 over_devices device=rxe0,mtu=1024 300000 2 rxe0
run_case '2 ranks, no memory kept registered' 60 over_devices device=rxe0,cache=off 1100000 2 rxe0
run_case '2 ranks, memory kept registered' 60 over_devices device=rxe0 1100000 2 rxe0
run_case '3 ranks over rxe0 by the connection manager' 60 over_devices device=rxe0,connect=cm 300000 3 rxe0
for ranks in 2 4; do
  run_case "$ranks ranks over siw0" 100 over_devices device=siw0 300000 "$ranks"
done
run_case '2 ranks that name ports of two fabrics' 60 over_devices device=rxe0+siw0,rails=2 300000 2 rxe0
run_case '2 ranks over what is chosen' 60 over_devices '' 300000 2
run_case 'programs of 2 ranks over rxe0' 100 programs_over device=rxe0 100000 2 rxe0
run_case 'programs of 4 ranks over two rails' 100 programs_over device=rxe0+rxe1,rails=2 100000 4 rxe0 rxe1
run_case 'programs of 3 ranks over rxe0, no memory kept registered' 100 \
  programs_over device=rxe0,cache=off 100000 3 rxe0
run_case 'programs of 3 ranks over siw0' 100 programs_over device=siw0 100000 3
# For each communicator: the epoll set of its links, a channel per device, a socket per link. The algorithms that three
# ranks choose on one processor need little scratch memory; on two they need a memory file for it, one more.
run_case 'splits of 2 ranks over rxe0' 100 splits_over device=rxe0 50000 2 3
run_case 'splits of 3 ranks over two rails' 100 splits_over device=rxe0+rxe1,rails=2 50000 3 5
run_case 'splits of 2 ranks over rxe0, no memory kept registered' 100 splits_over device=rxe0,cache=off 50000 2 3
