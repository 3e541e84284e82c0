# Two network namespaces, and jobs across them. To be sourced, with `program` set. Exit status 77 (skipped) only if the
# system does not permit namespaces.
left=tutti$$l right=tutti$$r small=tutti$$s middle=tutti$$m
# Not in /tmp, which may be read-only for ranks.
work=$(mktemp -d -p /var/tmp)
pids=()
within=()  # the command by which ranks are started in their namespace

clean_up() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  ip netns del "$left" 2>/dev/null || true
  ip netns del "$right" 2>/dev/null || true
  ip netns del "$small" 2>/dev/null || true
  ip netns del "$middle" 2>/dev/null || true
  rm -rf "/etc/netns/$right"
  rm -rf "$work"
}
trap clean_up EXIT

if ! why=$(command -v ip >/dev/null && ip netns add "$left" 2>&1); then
  echo "skipped: cannot make a network namespace: ${why:-no ip command}"
  exit 77
fi
if ! why=$(ip -n "$left" link add probe type veth peer name probe2 2>&1); then
  echo "skipped: cannot make a virtual interface: $why"
  exit 77
fi
ip -n "$left" link del probe
ip netns add "$right"

# With a cable.
join_directly() {
  ip -n "$left" link add joint type veth peer name joint netns "$right"
  for ns in "$left" "$right"; do
    ip -n "$ns" link set lo up
    ip -n "$ns" link set joint up
  done
}
# With a switch, which may fail without a sign to either side: cut_switch, repair_switch.
join_by_switch() {
  ip netns add "$middle"
  ip -n "$middle" link add switch type bridge
  ip -n "$middle" link set switch up
  for ns in "$left" "$right"; do
    ip -n "$ns" link set lo up
    ip -n "$ns" link add joint type veth peer name "to$ns" netns "$middle"
    ip -n "$middle" link set "to$ns" master switch
    ip -n "$middle" link set "to$ns" up
    ip -n "$ns" link set joint up
  done
}
cut_switch() { ip -n "$middle" link set switch down; }
repair_switch() { ip -n "$middle" link set switch up; }

use_ipv4() {
  ip -n "$left" addr add 10.234.7.1/24 dev joint
  ip -n "$right" addr add 10.234.7.2/24 dev joint
}
use_ipv6() {
  ip -n "$left" addr flush dev joint
  ip -n "$right" addr flush dev joint
  ip -n "$left" addr add fd12:3456:789a::1/64 dev joint nodad
  ip -n "$right" addr add fd12:3456:789a::2/64 dev joint nodad
}

# start FOLDER RANKS [hold|again]: even ranks on the left, odd ranks on the right. All except rank 0 have
# OTHERS_TRANSPORTS, and rank 0 has FIRST_INTERFACE, if set. Their output is in FOLDER/out.RANK.
start() {
  local folder=$1 ranks=$2 rank ns transports interface
  mkdir "$folder"
  pids=()
  for ((rank = 0; rank < ranks; ++rank)); do
    ns=$left
    ((rank % 2 == 0)) || ns=$right
    transports=${TUTTI_TRANSPORTS:-}
    ((rank == 0)) || transports=${OTHERS_TRANSPORTS:-$transports}
    interface=${TUTTI_INTERFACE:-}
    ((rank != 0)) || interface=${FIRST_INTERFACE:-$interface}
    TUTTI_TRANSPORTS=$transports TUTTI_INTERFACE=$interface TUTTI_TIMEOUT_MS=${TIMEOUT_MS:-30000} \
      TUTTI_INIT_TIMEOUT_MS=${TIMEOUT_MS:-30000} TUTTI_RANK=$rank TUTTI_WORLD_SIZE=$ranks timeout 400 \
      ip netns exec "$ns" "${within[@]}" "$program" "$rank" "$ranks" "$folder" "${@:3}" >"$folder/out.$rank" 2>&1 &
    pids+=($!)
  done
}

# finish WHAT: all ranks of the last start succeed.
finish() {
  local what=$1 failed=0 pid
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  pids=()
  if ((failed)); then
    tail -n 20 "$work"/*/out.*
    echo "failed: $what"
    exit 1
  fi
  echo "passed: $what"
}

# job NAME RANKS
job() {
  start "$work/$1" "$2"
  finish "$1"
}

wait_ready() {
  local folder=$1 ranks=$2 rank tries
  for ((rank = 0; rank < ranks; ++rank)); do
    for ((tries = 0; tries < 3000; ++tries)); do
      [[ ! -e $folder/ready.$rank ]] || break
      sleep 0.1
    done
    [[ -e $folder/ready.$rank ]] || { echo "rank $rank is not ready"; exit 1; }
  done
}

# Local ports of a namespace's listening TCP sockets.
listening() {
  ip netns exec "$1" ss -Hlnt | awk '{n = split($4, part, ":"); print part[n]}' | sort -nu
}

