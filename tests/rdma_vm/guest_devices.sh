# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0, rxe1 and siw0: the devices themselves, and what they can do, which
# is what the library's own numbers in the same guest are compared with.

# active DEVICE TRANSPORT
active() {
  ibv_devinfo -d "$1" >"$case_folder/info"
  cat "$case_folder/info"
  note "$1: $(awk '/transport:|state:|active_mtu:/ { printf "%s %s  ", $1, $2 }' "$case_folder/info")"
  grep -q "transport:[[:space:]]*$2" "$case_folder/info"
  grep -q 'state:[[:space:]]*PORT_ACTIVE' "$case_folder/info"
}

# Between two processes over one device. perftest PROGRAM ADDRESS COLUMN UNIT OPTION...
perftest() {
  local program=$1 address=$2 column=$3 unit=$4 server
  shift 4
  "$program" "$@" >"$case_folder/server" 2>&1 &
  server=$!
  wait_for_port 18515
  "$program" "$@" "$address" | tee "$case_folder/client"
  wait "$server"
  # The row of numbers is the last that begins with the message's size.
  note "$program $*: $(awk -v c="$column" '$1 ~ /^[0-9]+$/ { value = $c } END { print value }' "$case_folder/client") $unit"
}

wait_for_port() {
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    [[ -z $(ss -Hlnt "sport = :$1") ]] || return 0
    sleep 0.05
  done
  echo "nobody listens at port $1"
  return 1
}

rping_over() {
  local server
  rping -s -a "$1" -C 10 &
  server=$!
  sleep 1
  rping -c -a "$1" -C 10 -v
  wait "$server"
}

run_case 'rxe0 is an active InfiniBand device' 10 active rxe0 InfiniBand
run_case 'rxe1 is an active InfiniBand device' 10 active rxe1 InfiniBand
run_case 'siw0 is an active iWARP device' 10 active siw0 iWARP
run_case 'write bandwidth of rxe0' 30 perftest ib_write_bw 10.77.0.1 4 MB/s -d rxe0 -x 1 -s 1048576 -n 100
run_case 'write latency of rxe0' 30 perftest ib_write_lat 10.77.0.1 6 us -d rxe0 -x 1 -s 8 -n 1000
run_case 'write bandwidth of rxe1' 30 perftest ib_write_bw 10.77.1.1 4 MB/s -d rxe1 -x 1 -s 1048576 -n 100
run_case 'rping over siw0' 30 rping_over 10.77.2.1
run_case 'write bandwidth of siw0' 30 perftest ib_write_bw 10.77.2.1 4 MB/s -d siw0 -R -s 1048576 -n 100
