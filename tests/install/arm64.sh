#!/bin/bash
# Builds the library, the programs and the unit tests for arm64, with Debian's cross compiler, and runs the unit tests in
# QEMU's emulation of a process. What is linked comes from Debian's packages for arm64, unpacked into a folder: nothing
# of another architecture is installed. The last line counts. The emulation gives up little memory: 16 GiB are needed.
# Usage: arm64.sh FOLDER: what is there of packages and of the build serves again.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
root=$folder/root
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# Packages for arm64, by apt with lists and states of its own.
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

# Those of the suite that are programs themselves: what a script runs would need the kernel to know of the emulation.
unit_tests() {
  python3 - "$folder/build" <(meson introspect "$folder/build" --tests) <<'PYTHON'
import json, os, sys
build, tests = sys.argv[1:]
for test in json.load(open(tests)):
    program = next((part for part in test["cmd"] if part.startswith(build + "/tests/unit/")), None)
    if "tutti:unit" in test["suite"] and program and test["cmd"][-1] == program:
        print(test["name"], os.path.relpath(program, build), sep="\t")
PYTHON
}

echo "==> packages for arm64"
unpack >"$folder/packages.log" 2>&1 || { tail -20 "$folder/packages.log"; exit 1; }
cross_file >"$folder/cross.ini"
if [[ ! -f $folder/build/build.ninja ]]; then
  meson setup "$folder/build" "$source" --cross-file "$folder/cross.ini" --buildtype release -Dwerror=true -Dcuda=disabled \
    -Dpeers=disabled -Dmpi=disabled -Dpmix=disabled >"$folder/setup.log" || { tail -20 "$folder/setup.log"; exit 1; }
fi
mapfile -t tests < <(unit_tests)
((${#tests[@]} > 40)) || { echo "only ${#tests[@]} unit tests were found"; exit 1; }
ninja -C "$folder/build" src/api/libtutti.so.0.1.0 tools/tutti perf/all_reduce_perf "${tests[@]#*$'\t'}"

emulated=(timeout 3000 qemu-aarch64 -L "$root")
cd "$folder/build"
check 'all-reduce between two threads' "${emulated[@]}" perf/all_reduce_perf -t 2 -b 8 -e 64K -n 20 || true
check 'all-reduce between two processes' "${emulated[@]}" perf/all_reduce_perf -p 2 -b 8 -e 64K -n 20 || true
for test in "${tests[@]}"; do check "${test%%$'\t'*}" "${emulated[@]}" "${test#*$'\t'}" || true; done
echo "$passed passed, $failed failed"
((failed == 0))
