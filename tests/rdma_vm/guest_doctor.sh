# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0 on d0, rxe1 and siw0: the output of `tutti doctor rdma` for working
# devices, and for a machine with problems.

# doctor_says STATUS PATTERN... [-- COMMAND...]: its exit status, and lines that match. COMMAND runs it.
doctor_says() {
  local wanted=$1 status=0 patterns=() pattern
  shift
  while (($# > 0)) && [[ $1 != -- ]]; do
    patterns+=("$1")
    shift
  done
  "${@:2}" "$tutti_program" doctor rdma >"$case_folder/said" 2>&1 || status=$?
  cat "$case_folder/said"
  ((status == wanted)) || { echo "exit status $status, not $wanted"; return 1; }
  for pattern in "${patterns[@]}"; do
    grep -qE -- "$pattern" "$case_folder/said" || { echo "no line with $pattern"; return 1; }
  done
}

# Both without effect on other programs. without_folder FOLDER COMMAND...: it is empty.
# shellcheck disable=SC2016
without_folder() { unshare -m bash -c 'mount -t tmpfs none "$1" && shift && exec "$@"' bash "$@"; }
with_little_memory() {
  (ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$@")
}

usable() {
  doctor_says 0 '^ok .*registration cache' '^ok .*GID of rxe0:1: .*RoCE v2, 10\.77\.0\.1 in 10\.77\.0\.0/24' \
    '^ok .*choice: rxe0:1, rxe1:1$' '^ok .*loopback over rxe0:1: 1 MiB' '^ok .*loopback over rxe1:1: 1 MiB' \
    '^RDMA can be used'
}
usable_iwarp() {
  TUTTI_VERBS=device=siw0 doctor_says 0 '^ok .*port siw0:1: iWARP, active' '^ok .*loopback over siw0:1: 1 MiB'
}
iwarp_by_exchange() {
  TUTTI_VERBS=device=siw0,connect=exchange doctor_says 1 '^FAIL .*choice: .*iWARP connects only through librdmacm'
}
usable_by_manager() {
  TUTTI_VERBS=device=rxe0,connect=cm doctor_says 0 '^ok .*loopback over rxe0:1: 1 MiB'
}
interface_down() {
  ip link set d0 down
  doctor_says 0 '^warn .*port rxe0:1: the port is down.*ip link set d0 up' '^ok .*choice: rxe1:1$'
  TUTTI_VERBS=device=rxe0 doctor_says 1 '^FAIL .*choice: .*the port is down'
}
small_mtu() {
  ip link set d0 mtu 1500
  doctor_says 0 '^warn .*MTU of rxe0:1: 1024 bytes.*ip link set d0 mtu 4200'
}
no_access() {
  doctor_says 1 '^warn .*access to rxe0: .*Fix: .*--device=/dev/infiniband' '^FAIL .*choice' '^RDMA cannot be used' \
    -- without_folder /dev/infiniband
}
no_provider() {
  doctor_says 1 '^warn .*port rxe0:1: .*Fix: install the package ibverbs-providers' '^FAIL .*choice' \
    -- without_folder /etc/libibverbs.d
}
little_memory() {
  doctor_says 1 '^FAIL .*memory lock limit: .*Fix: ulimit -l unlimited' '^FAIL .*loopback over rxe0:1' \
    -- with_little_memory
}

run_case 'doctor: soft-RoCE can be used' 120 usable
run_case 'doctor: soft-iWARP can be used' 120 usable_iwarp
run_case 'doctor: soft-iWARP cannot be connected by exchange' 120 iwarp_by_exchange
run_case 'doctor: soft-RoCE can be used through the connection manager' 120 usable_by_manager
run_case 'doctor: an interface that is down' 120 interface_down
ip link set d0 up
run_case 'doctor: a small MTU' 120 small_mtu
ip link set d0 mtu 4500
run_case 'doctor: devices are not passed on' 120 no_access
run_case 'doctor: no provider library' 120 no_provider
run_case 'doctor: little memory may be locked' 120 little_memory
