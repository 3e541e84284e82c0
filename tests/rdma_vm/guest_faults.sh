# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0: what the ranks hear when something breaks.

# killed TRANSPORTS BYTES RANKS: the last rank is killed; all others name it.
killed() {
  export TUTTI_TRANSPORTS=$1
  local last=$(($3 - 1)) others=()
  mapfile -t others < <(seq 0 $((last - 1)))
  break_loop "$3" "$2" kill_rank "$last"
  expect_outcome 5 "^6 .*rank $last" "${others[@]}"
}

run_case 'a killed rank, TCP' 60 killed tcp 100000 3
