# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0, rxe1 and siw0: the devices themselves and their speed, with
# which the library's speed in the same guest is compared.

# active DEVICE TRANSPORT
active() {
  ibv_devinfo -d "$1" >"$case_folder/info"
  cat "$case_folder/info"
  note "$1: $(awk '/transport:|state:|active_mtu:/ { printf "%s %s  ", $1, $2 }' "$case_folder/info")"
  grep -q "transport:[[:space:]]*$2" "$case_folder/info"
  grep -q 'state:[[:space:]]*PORT_ACTIVE' "$case_folder/info"
}

# The command line tool finds them, and would use the soft-RoCE devices.
topo() {
  "$tutti_program" topo | tee "$case_folder/topo"
  grep -q '^  rxe0:1  RoCE, active' "$case_folder/topo"
  grep -q '^  siw0:1  iWARP, active' "$case_folder/topo"
  grep -q 'chosen, number 2' "$case_folder/topo"
}

# The client retries until the server listens, of which there is no notification.
rping_over() {
  local server tries
  rping -s -a "$1" -C 10 &
  server=$!
  for ((tries = 0; tries < 20; ++tries)); do
    sleep 0.5
    if rping -c -a "$1" -C 10 -v; then
      wait "$server"
      return 0
    fi
  done
  return 1
}

run_case 'rxe0 is an active InfiniBand device' 60 active rxe0 InfiniBand
run_case 'rxe1 is an active InfiniBand device' 60 active rxe1 InfiniBand
run_case 'siw0 is an active iWARP device' 60 active siw0 iWARP
run_case 'tutti topo shows the devices' 60 topo
# -u 17: half a second before a packet is resent. The default, 67 ms seven times, ends the connection if the machine
# leaves the guest without a processor for half a second.
run_case 'write bandwidth of rxe0' 120 perftest ib_write_bw 10.77.0.1 4 MB/s rxe0 rxe0 -x 1 -u 17 -s 1048576 -n 100
run_case 'write latency of rxe0' 120 perftest ib_write_lat 10.77.0.1 6 us rxe0 rxe0 -x 1 -u 17 -s 8 -n 1000
run_case 'write bandwidth of rxe1' 120 perftest ib_write_bw 10.77.1.1 4 MB/s rxe1 rxe1 -x 1 -u 17 -s 1048576 -n 100
run_case 'rping over siw0' 120 rping_over 10.77.2.1
