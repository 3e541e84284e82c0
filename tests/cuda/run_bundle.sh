#!/usr/bin/env bash
# What tools/device_bundle calls FOLDER/run.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
report=$1/report.txt
: >"$report"
failed=0

# section SECONDS COMMAND...: what it prints goes to the report, under its name.
section() {
  local seconds=$1 status=0
  shift
  printf '\n==> %s\n' "$*" >>"$report"
  timeout "$seconds" "$@" >>"$report" 2>&1 || status=$?
  ((status == 0)) || printf '==> exit status %s\n' "$status" >>"$report"
  return "$status"
}

# As section, of what must succeed.
test_section() { section "$@" || failed=$((failed + 1)); }

section 10 nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader
section 10 uname -srm
test_section 300 "$here/bin/reduction_device_test"
test_section 300 "$here/bin/strands_device_test" -d yes
test_section 300 "$here/bin/direct_device_test" -d yes
export LD_LIBRARY_PATH=$here/lib
test_section 200 "$here/bin/device_order" -d yes
test_section 200 "$here/bin/device_graphs" -d yes
test_section 300 "$here/bin/device_collectives" -d yes
for transports in shm tcp; do
  TUTTI_TRANSPORTS=$transports test_section 60 "$here/bin/all_reduce_perf" -p 3 -g 1 -b 48 -e 12M -f 16 -n 5
done
if command -v compute-sanitizer >/dev/null; then
  short=('channels*,lanes go on*')
  test_section 120 compute-sanitizer --error-exitcode 9 --tool memcheck "$here/bin/strands_device_test" "${short[@]}"
  test_section 120 compute-sanitizer --error-exitcode 9 --tool synccheck "$here/bin/strands_device_test" "${short[@]}"
  for tool in memcheck synccheck; do
    test_section 120 compute-sanitizer --error-exitcode 9 --tool "$tool" "$here/bin/direct_device_test" '*graph*'
  done
  test_section 120 compute-sanitizer --error-exitcode 9 --tool memcheck "$here/bin/reduction_device_test" 'copies'
fi
section 200 "$here/bin/device_speed" 256
for ranks in 2 4; do
  section 60 "$here/bin/all_reduce_perf" -g "$ranks" -b 8 -e 256M -f 8
  section 60 "$here/bin/all_reduce_perf" -g "$ranks" -b 8 -e 256M -f 8 -n 20 -G 10
  section 60 "$here/bin/all_reduce_perf" -p "$ranks" -g 1 -b 8 -e 256M -f 8
done
section 60 "$here/bin/sendrecv_perf" -p 2 -g 1 -b 8 -e 256M -f 8
section 20 "$here/bin/yardstick"
for ranks in 2 4 8 16; do
  (($(nproc) < ranks)) || section 60 "$here/bin/all_reduce_perf" -p "$ranks" -b 8 -e 64M -f 8
done
echo "$failed failed" | tee -a "$report"
((failed == 0))
