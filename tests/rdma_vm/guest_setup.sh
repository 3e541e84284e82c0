#!/bin/bash
# Runs in a guest as root of the host's files: makes the devices, runs the program, returns its exit status.
# The rig has written guest.INDEX, with the variables used here, and "command", the program.
set -euo pipefail
shared=/run/rdma_vm
index=$(sed -n 's/.*rdma_vm\.guest=\([0-9]*\).*/\1/p' /proc/cmdline)
# shellcheck disable=SC1090
. "$shared/guest.$index"
: "${guests:?} ${devices:?} ${mtu:?} ${directory:?} ${netem=} ${siw_module=}"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

# The port's number depends on the order in which the kernel finds it.
output_port() {
  local port
  for port in /sys/class/virtio-ports/*; do
    if [[ $(<"$port/name") == output ]]; then
      echo "/dev/${port##*/}"
      return 0
    fi
  done
  echo 'rdma_vm: no output port' >&2
  return 1
}

# A pair of interfaces joined by a virtual wire stands for each network adapter; between guests it is a real one.
# make_adapter NUMBER prints its name.
make_adapter() {
  local number=$1 left=d$((2 * $1)) right=d$((2 * $1 + 1))
  if ((guests > 1)); then
    left=eth$number
  else
    ip link add "$left" type veth peer name "$right"
    ip link set "$right" mtu "$mtu" up
  fi
  ip link set "$left" mtu "$mtu" up
  ip addr add "10.77.$number.$((index + 1))/24" dev "$left"
  echo "$left"
}

# wire_adapter NUMBER: the right end gets an address and a device, too, and packets between the two ends travel
# over the wire although both addresses are local. For that the main table, in which each is reached through the
# other's end, comes before the table of local addresses, except for packets that arrive.
wire_adapter() {
  local number=$1 left=d$((2 * $1)) right=d$((2 * $1 + 1)) end
  ip addr add "10.77.$number.2/24" dev "$right"
  ip route add "10.77.$number.2/32" dev "$left" src "10.77.$number.1"
  ip route add "10.77.$number.1/32" dev "$right" src "10.77.$number.2"
  for end in "$left" "$right"; do
    echo 1 >"/proc/sys/net/ipv4/conf/$end/accept_local"
    echo 0 >"/proc/sys/net/ipv4/conf/$end/rp_filter"
    # Each end answers for its own address only, and finds itself without asking the other.
    echo 1 >"/proc/sys/net/ipv4/conf/$end/arp_ignore"
    ip rule add pref 1 iif "$end" lookup local
  done
  ip neigh add "10.77.$number.1" lladdr "$(<"/sys/class/net/$left/address")" dev "$left" nud permanent
  ip neigh add "10.77.$number.2" lladdr "$(<"/sys/class/net/$right/address")" dev "$right" nud permanent
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  ip rule add pref 2 to "10.77.$number.0/24" lookup main
  [[ -n $(ip rule list pref 3) ]] || ip rule add pref 3 lookup local
  [[ -z $(ip rule list pref 0) ]] || ip rule del pref 0
}

add_netem() {
  # shellcheck disable=SC2086
  [[ -z $netem ]] || tc qdisc add dev "$1" root netem $netem
}

# Devices are numbered by kind: rxe0, rxe1, siw0. "wire" is an rxe device at both ends: rxe0 and rxe1 are joined.
make_devices() {
  local kind count adapter number=0 rxe=0 siw=0 one
  for one in ${devices//,/ }; do
    kind=${one%:*}
    count=${one#*:}
    for (( ; count > 0; --count)); do
      adapter=$(make_adapter "$number")
      case $kind in
        rxe) rdma link add "rxe$((rxe++))" type rxe netdev "$adapter" ;;
        siw) rdma link add "siw$((siw++))" type siw netdev "$adapter" ;;
        wire)
          wire_adapter "$number"
          rdma link add "rxe$((rxe++))" type rxe netdev "$adapter"
          rdma link add "rxe$((rxe++))" type rxe netdev "d$((2 * number + 1))"
          add_netem "d$((2 * number + 1))"
          ;;
      esac
      add_netem "$adapter"
      number=$((number + 1))
    done
  done
}

set_up() {
  hostname "rdma$index"
  ip link set lo up
  # rdma_ucm is librdmacm's way into the kernel, ib_umad perftest's.
  modprobe -a rdma_rxe rdma_ucm ib_umad sch_netem veth
  ((guests == 1)) || modprobe virtio_net
  if [[ -n $siw_module ]]; then
    modprobe -a iw_cm libcrc32c
    insmod "$siw_module"
  fi
  make_devices
  ulimit -l unlimited
  # The limit of open files that Debian's systemd gives.
  ulimit -n 1048576
}

set_up
export RDMA_VM_GUEST=$index RDMA_VM_GUESTS=$guests RDMA_VM_SHARED=$shared/files
cd "$directory"
date +%s.%N >"$shared/started.$index"
# Through a pipe, because a port can be opened only once and programs may open /dev/stderr anew.
port=$(output_port)
exec 3> >(exec cat >"$port")
writer=$!
status=0
bash "$shared/command" </dev/null >&3 2>&1 3>&- || status=$?
# The rig must have the output before the power goes; something left behind may hold the pipe open.
exec 3>&-
timeout 5 tail -s 0.05 --pid="$writer" -f /dev/null || true
# In one step, for the rig reads it when the guest has ended, however it has ended.
echo "$status" >"$shared/status.$index.new"
mv "$shared/status.$index.new" "$shared/status.$index"
