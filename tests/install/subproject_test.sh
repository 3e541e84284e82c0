#!/bin/bash
# A C project with tutti as a Meson subproject gets a static library, and nothing else of this project. Usage:
# subproject_test.sh SOURCE_FOLDER [whole]: with "whole" it is compiled and used, which takes minutes without the
# compiler cache.
set -euo pipefail
source=$1 whole=${2:-}
. "$(dirname "${BASH_SOURCE[0]}")/ways.sh"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
  echo "$*"
  exit 1
}
mkdir "$root/subprojects"
ln -s "$source" "$root/subprojects/tutti"
cp "$ways_source" "$root/client.c"
cat >"$root/meson.build" <<'MESON'
project('client', 'c', default_options: ['c_std=c99', 'default_library=static', 'optimization=0', 'debug=false', 'werror=true'])
tutti = dependency('tutti', fallback: ['tutti', 'tutti_dep'])
assert(dependency('tutti').type_name() == 'internal', 'the project knows it by its variable alone')
executable('client', 'client.c', dependencies: tutti)
MESON
build=$root/build
# An installed tutti is not used either. Kernels for devices take nvcc minutes, and are tested elsewhere.
meson setup "$build" "$root" --wrap-mode=forcefallback -Dtutti:cuda=disabled >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
meson introspect "$build" --tests | grep -qx '\[\]' || fail 'its tests are run with those of the project'
beside=$(meson introspect "$build" --targets | python3 -c '
import json, sys
for target in json.load(sys.stdin):
    if target["build_by_default"] and target["name"] != "client" and target["type"] not in ("static library", "custom"):
        print(target["name"])')
[[ -z $beside ]] || fail "built beside the library: $beside"
leaked=$(python3 -c '
import json, sys
command = next(c["command"] for c in json.load(open(sys.argv[1])) if c["file"].endswith("/client.c"))
print(*(w for w in command.split() if w.startswith(("-D_GNU", "-DTUTTI", "-fvis")) or w.endswith("tutti/src")))' \
  "$build/compile_commands.json")
[[ -z $leaked ]] || fail "arguments of tutti for sources of the project: $leaked"
# All targets are known, and the program finds the headers.
ninja -C "$build" -n >"$root/log" 2>&1 && ninja -C "$build" client.p/client.c.o >"$root/log" 2>&1 ||
  { tail -50 "$root/log"; exit 1; }
[[ -n $whole ]] || exit 0
ninja -C "$build" >"$root/log" 2>&1 || { tail -50 "$root/log"; exit 1; }
answers "$build/client"
! readelf -d "$build/client" | grep -q 'NEEDED.*libtutti' || fail 'the program is not linked with a static library'
