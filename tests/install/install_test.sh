#!/bin/bash
# What `meson install` puts in place is enough for a C program that knows only pkg-config, or CMake: to link the shared
# library, and the archive where the build has one (-Ddefault_library=both or static).
# Usage: install_test.sh BUILD_FOLDER CLIENT_SOURCE CC
set -euo pipefail
build=$1 client=$2 cc=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
  echo "$*"
  exit 1
}
# uses LIBRARY.so PROGRAM: whether it asks the loader for it.
uses() { readelf -d "$2" | grep -q "NEEDED.*\[$1\."; }

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
pc=$(find "$root" -name tutti.pc)
[[ -n $pc ]] || fail 'no tutti.pc was installed'
shared=$(find "$root" -name 'libtutti.so.*' -type f) archive=$(find "$root" -name libtutti.a)
# No other library's pkg-config file is needed.
export PKG_CONFIG_LIBDIR=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$root
[[ $(pkg-config --modversion tutti) == "$(meson introspect "$build" --projectinfo | sed 's/.*"version": "\([^"]*\)", "descriptive_name.*/\1/')" ]]
compile=("$cc" -std=c99 -pedantic-errors -Wall -Werror "$client")
if [[ -n $shared ]]; then
  read -ra flags <<<"$(pkg-config --cflags --libs tutti)"
  "${compile[@]}" -o "$root/client" "${flags[@]}"
  uses libtutti.so "$root/client" || fail 'the program is not linked with libtutti.so'
  LD_LIBRARY_PATH=${shared%/*} timeout 60 "$root/client"
fi
if [[ -n $archive ]]; then
  read -ra flags <<<"$(pkg-config --static --cflags --libs tutti)"
  # As docs/installing.md has it where both libraries are installed.
  "${compile[@]}" -o "$root/client_static" "${flags[@]/#-ltutti/-l:libtutti.a}"
  ! uses libtutti.so "$root/client_static" || fail 'a program that is linked with libtutti.a uses libtutti.so'
  timeout 60 "$root/client_static"
fi
# Where there is nothing else, one need not ask for it.
if [[ -z $shared ]]; then
  read -ra flags <<<"$(pkg-config --cflags --libs tutti)"
  "${compile[@]}" -o "$root/client_plain" "${flags[@]}"
fi
# Where the library is not in a folder of the loader's, and from any prefix, what is installed finds it, by a path from
# where it lies.
program=$(find "$root" -path '*/bin/tutti')
bin=${program%/*}
while read -r file; do
  uses libtutti.so "$file" || continue
  readelf -d "$file" | grep -q 'R.*PATH.*\[\$ORIGIN' || fail "${file#"$root"} does not find libtutti.so: it has no run path"
  missing=$(env -u LD_LIBRARY_PATH ldd "$file" | grep 'libtutti.* not found' || true)
  [[ -z $missing ]] || fail "${file#"$root"}: $missing"
done < <(find "$root" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec sh -c 'readelf -h "$1" >/dev/null 2>&1' sh {} \; -print)
if [[ -n $program ]]; then
  env -u LD_LIBRARY_PATH "$bin/tutti" --version >"$root/log" || fail 'the installed tutti does not start'
  env -u LD_LIBRARY_PATH "$bin/tutti" run -n 2 -- "$bin/all_reduce_perf" -b 8 -e 8 -n 1 >"$root/log" ||
    { cat "$root/log"; exit 1; }
fi
# Each program has its manual page and its completion, but for one that only says what to run instead.
for program in $(find "$root" -path '*/bin/*' \( -name tutti -o -name '*_perf' \) ! -name hypercube_perf -printf '%f\n'); do
  [[ -n $(find "$root" -path "*/man/man1/$program.1") ]] || fail "no manual page of $program was installed"
  [[ -n $(find "$root" -path "*/share/bash-completion/completions/$program") ]] ||
    fail "no completion of $program was installed"
done
# The same by CMake, from a folder that has been moved.
moved=$root/moved
prefix=$(dirname "$(dirname "$(find "$root" -name tutti.h)")")
mv "${prefix%/include}" "$moved"
mkdir "$root/project"
cp "$client" "$root/project/client.c"
cat >"$root/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(client C)
find_package(tutti 0.1 REQUIRED)
add_executable(client client.c)
target_link_libraries(client tutti::tutti)
if(TARGET tutti::tutti_static)
  add_executable(client_static client.c)
  target_link_libraries(client_static tutti::tutti_static)
endif()
CMAKE
CC=$cc cmake -S "$root/project" -B "$root/project/build" -DCMAKE_PREFIX_PATH="$moved" >"$root/log" 2>&1 &&
  cmake --build "$root/project/build" >>"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
timeout 60 "$root/project/build/client"
if [[ -n $archive ]]; then
  timeout 60 "$root/project/build/client_static"
  ! uses libtutti.so "$root/project/build/client_static" || fail 'tutti::tutti_static is not the archive'
fi
sed -i 's/tutti 0.1 /tutti 0.2 /' "$root/project/CMakeLists.txt"
if cmake -S "$root/project" -B "$root/project/later" -DCMAKE_PREFIX_PATH="$moved" >"$root/log" 2>&1; then
  fail 'CMake takes this version for a later one'
fi
grep -q 'with requested version "0.2"' "$root/log" || { cat "$root/log"; exit 1; }
[[ -n $shared ]] || exit 0
# Nothing but the C interface may be visible, or programs could come to depend on it.
foreign=$(nm -D --defined-only "$(find "$moved" -name libtutti.so)" | awk '$2 != "A" {print $3}' | grep -v '^tutti[A-Z]' || true)
[[ -z $foreign ]] || fail "exported, but no part of the interface: $foreign"
