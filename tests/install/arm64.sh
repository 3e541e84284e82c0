#!/bin/bash
# Builds the library, the programs and the unit tests for arm64, with Debian's cross compiler, and runs the unit tests
# in QEMU's emulation of a process. Linked libraries come from Debian's packages for arm64, unpacked into a folder: no
# package of another architecture is installed. The last line has the counts. The emulation releases little memory: 16
# GiB are needed. Usage: arm64.sh FOLDER: existing packages and build outputs there are reused.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
root=$folder/root
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# Packages for arm64, by apt with separate lists and states.
unpack() {
  local apt=$folder/apt package
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$root"
  : >"$apt/status"
  cat >"$apt/conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
CONF
  export APT_CONFIG=$apt/conf
  apt-get update
  "$source/tools/install_packages" --list build features | grep -E -e '-dev$' | grep -v pmix |
    xargs apt-get -y --no-install-recommends --download-only install catch2 libc6-dev libstdc++-12-dev
  for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
}

cross_file() {
  cat <<CROSS
[constants]
root = '$root'
[binaries]
c = ['ccache', 'aarch64-linux-gnu-gcc']
cpp = ['ccache', 'aarch64-linux-gnu-g++']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', root]
[built-in options]
c_args = ['--sysroot=' + root]
cpp_args = ['--sysroot=' + root]
c_link_args = ['--sysroot=' + root]
cpp_link_args = ['--sysroot=' + root]
[properties]
sys_root = root
pkg_config_libdir = root / 'usr/lib/aarch64-linux-gnu/pkgconfig:' + root / 'usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
CROSS
}

# The tests of the suite that are programs themselves: programs that a script runs would need a kernel that knows the
# emulation. For each its name, its program, and the files that it needs, with blanks between them.
unit_tests() {
  python3 - "$folder/build" <(meson introspect "$folder/build" --tests) <(meson introspect "$folder/build" --targets) <<'PYTHON'
import json, os, sys
build, tests, targets = sys.argv[1:]
files = {target["id"]: [os.path.relpath(path, build) for path in target["filename"]] for target in json.load(open(targets))}
for test in json.load(open(tests)):
    program = next((part for part in test["cmd"] if part.startswith(build + "/tests/unit/")), None)
    if "tutti:unit" in test["suite"] and program and test["cmd"][-1] == program:
        needed = sorted({path for name in test["depends"] for path in files[name]})
        print(test["name"], os.path.relpath(program, build), *needed, sep="\t")
PYTHON
}

# Features that the emulation lacks, by test. It only pretends to obey madvise(2), and ends a process that was forked
# beside other threads when that process starts a thread (QEMU 7.2: qemu_plugin_vcpu_init_hook).
forked='threads of forked processes'
declare -A lacking=(
  [memory_monitor]=userfaultfd [memory_race]=userfaultfd [transport_shm_cross_memory]=process_vm_readv
  [healing]=$forked [init_deaths]=$forked
)
# The cases of a test that are skipped for that reason.
declare -A cases=(
  [transport_shm_pair]=$'~an arena hands out zeros*\n~rooms for payloads lie where they are read'
  [engine]='~a forked child has an engine of its own'
  [join]='~64 processes join'
  [failure_notices]=$'~a rank that has gathered has said its own part*\n~a killed process fails all others*'
  [split_tree]='~a death fails the communicators of the dead rank*'
  [inquiry]='~a stopped process is found by all ranks that are left*'
)

# run TEST PROGRAM: with as much time as an emulation takes.
run() {
  local left_out=()
  [[ -z ${cases[$1]:-} ]] || mapfile -t left_out <<<"${cases[$1]}"
  timeout 3000 qemu-aarch64 -L "$root" "$2" "${left_out[@]}"
}

check 'packages for arm64' unpack
$succeeded || exit 1
cross_file >"$folder/cross.ini"
if [[ ! -f $folder/build/build.ninja ]]; then
  meson setup "$folder/build" "$source" --cross-file "$folder/cross.ini" --buildtype release -Dwerror=true -Dcuda=disabled \
    -Dpeers=disabled -Dmpi=disabled -Dpmix=disabled >"$folder/setup.log" || { tail -20 "$folder/setup.log"; exit 1; }
fi
mapfile -t tests < <(unit_tests)
((${#tests[@]} > 40)) || { echo "only ${#tests[@]} unit tests were found"; exit 1; }
mapfile -t needed < <(printf '%s\n' "${tests[@]}" | cut -f 2- | tr '\t' '\n' | sort -u)
ninja -C "$folder/build" src/api/libtutti.so.0.1.0 tools/tutti perf/all_reduce_perf "${needed[@]}"

cd "$folder/build"
for ranks in -t -p; do
  check "all-reduce of two ranks, $ranks 2" timeout 600 qemu-aarch64 -L "$root" perf/all_reduce_perf "$ranks" 2 -b 8 -e 64K \
    -n 20
done
for test in "${tests[@]}"; do
  IFS=$'\t' read -r name program _ <<<"$test"
  if [[ -n ${lacking[$name]:-} ]]; then
    echo "left out: $name: the emulation lacks ${lacking[$name]}"
  else
    [[ -z ${cases[$name]:-} ]] || sed "s/^~/left out of $name, which the emulation cannot run: /" <<<"${cases[$name]}"
    check "$name" run "$name" "$program"
  fi
done
echo "$passed passed, $failed failed"
((failed == 0))
