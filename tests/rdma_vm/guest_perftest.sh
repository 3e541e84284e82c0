# shellcheck shell=bash disable=SC2154,SC2317
# For the parts of guest_cases.sh: perftest's programs between two processes of one guest.

# perftest PROGRAM ADDRESS COLUMN UNIT DEVICE DEVICE OPTION...: the first device serves at ADDRESS, the second writes
# to it. Notes that column of the result.
perftest() {
  local program=$1 address=$2 column=$3 unit=$4 serving=$5 writing=$6 server
  shift 6
  "$program" -d "$serving" "$@" >"$case_folder/server" 2>&1 &
  server=$!
  wait_for_port 18515
  if ! "$program" -d "$writing" "$@" "$address" | tee "$case_folder/client" || ! wait "$server"; then
    echo 'the server printed:'
    cat "$case_folder/server"
    return 1
  fi
  # The row of numbers is the last that begins with the message's size.
  note "$program from $writing to $serving, $*:" \
    "$(awk -v c="$column" '$1 ~ /^[0-9]+$/ { value = $c } END { print value }' "$case_folder/client") $unit"
}

wait_for_port() {
  local tries
  for ((tries = 0; tries < 1200; ++tries)); do
    [[ -z $(ss -Hlnt "sport = :$1") ]] || return 0
    sleep 0.05
  done
  echo "no process listens at port $1"
  return 1
}
