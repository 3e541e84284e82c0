#!/usr/bin/env bash
# tools/device_bundle calls this as FOLDER/run.
set -uo pipefail

all_parts=(device torch sanitizer speed host)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-}
parts=("${@:2}")
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
  if [[ -z $folder || " ${all_parts[*]} " != *" $part "* ]]; then
    echo "Usage: run REPORT_FOLDER [PART...]; parts: ${all_parts[*]}" >&2
    exit 2
  fi
done
mkdir -p "$folder"
report=$folder/report.txt
: >"$report"
failed=0
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# section SECONDS COMMAND...: the output goes to the report, under that name.
section() {
  local seconds=$1 status=0 began=$SECONDS
  shift
  printf '\n==> %s\n' "$*" >>"$report"
  timeout "$seconds" "$@" >>"$report" 2>&1 || status=$?
  printf '==> %s s, exit status %s\n' $((SECONDS - began)) "$status" >>"$report"
  return "$status"
}

# Like section, for a command that must succeed.
test_section() {
  section "$@" && return
  failed=$((failed + 1))
  return 1
}

run_device() {
  test_section 300 "$here/bin/reduction_device_test"
  test_section 300 "$here/bin/direct_device_test" -d yes
  test_section 200 "$here/bin/device_order" -d yes
  test_section 200 "$here/bin/device_graphs" -d yes
  test_section 300 "$here/bin/device_collectives" -d yes
  for transports in shm tcp; do
    TUTTI_TRANSPORTS=$transports test_section 60 "$here/bin/all_reduce_perf" -p 3 -g 1 -b 48 -e 12M -f 16 -n 5
  done
}

run_torch() {
  if ! python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>>"$report"; then
    echo '==> no PyTorch here' >>"$report"
    return
  fi
  # A torch that cannot be imported, or is not for CUDA, fails.
  test_section 60 python3 -c 'import torch; print(torch.__version__); assert torch.version.cuda' || return
  (
    cd "$here/backend" || exit
    PATH=$here/backend/pkg-config:$PATH MAX_JOBS=$(nproc) timeout 200 python3 setup.py -q build_ext --inplace
  ) >>"$report" 2>&1
  PYTHONPATH=$here/backend:$here/backend/tests test_section 300 \
    python3 -m pytest -q --tb=short --durations=0 -p no:cacheprovider "$here/backend/tests"
}

run_sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo '==> no compute-sanitizer here' >>"$report"
    return
  fi
  for tool in memcheck synccheck; do
    test_section 120 compute-sanitizer --error-exitcode 9 --tool "$tool" "$here/bin/direct_device_test" '*graph*'
  done
  test_section 120 compute-sanitizer --error-exitcode 9 --tool memcheck "$here/bin/reduction_device_test" 'copies'
}

run_speed() {
  section 200 "$here/bin/device_speed" 256
  for ranks in 2 4; do
    section 60 "$here/bin/all_reduce_perf" -g "$ranks" -b 8 -e 256M -f 8
    section 60 "$here/bin/all_reduce_perf" -g "$ranks" -b 8 -e 256M -f 8 -n 20 -G 10
    section 60 "$here/bin/all_reduce_perf" -p "$ranks" -g 1 -b 8 -e 256M -f 8
  done
  section 60 "$here/bin/sendrecv_perf" -p 2 -g 1 -b 8 -e 256M -f 8
}

run_host() {
  section 20 "$here/bin/yardstick"
  section 20 "$here/bin/tutti" topo
  for ranks in 2 4 8 16; do
    (($(nproc) < ranks)) || section 60 "$here/bin/all_reduce_perf" -p "$ranks" -b 8 -e 64M -f 8
  done
  for collective in all_gather alltoall broadcast gather reduce reduce_scatter scatter sendrecv; do
    section 60 "$here/bin/${collective}_perf" -p "$(nproc)" -b 8 -e 16M -f 8
  done
  section 60 "$here/bin/barrier_perf" -p "$(nproc)"
  for times in times again; do
    rm -f "$folder/$times".{csv,json}
    test_section 200 "$here/bin/tutti" tune -n 2,4,8,16 --seconds 40 --times "$folder/$times.csv" -o "$folder/$times.json"
  done
}

section 10 nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader
section 10 uname -srm
for part in "${parts[@]}"; do
  "run_$part"
done
echo "$failed failed" | tee -a "$report"
((failed == 0))
