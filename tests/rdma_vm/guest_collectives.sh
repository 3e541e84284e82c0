# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0, rxe1 and siw0: all collectives between processes.

# collectives TRANSPORTS BYTES RANKS
collectives() {
  export TUTTI_TRANSPORTS=$1
  all_ranks "$3" "${rank_command[@]}" check "$2"
}

for ranks in 2 4; do
  run_case "collectives of $ranks ranks over TCP" 60 collectives tcp 300000 "$ranks"
done
