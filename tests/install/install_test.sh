#!/bin/bash
# What `meson install` puts in place is enough for a C program that knows only pkg-config, or CMake.
# Usage: install_test.sh BUILD_FOLDER CLIENT_SOURCE CC
set -euo pipefail
build=$1 client=$2 cc=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
pc=$(find "$root" -name tutti.pc)
[[ -n $pc ]] || { echo 'no tutti.pc was installed'; exit 1; }
export PKG_CONFIG_LIBDIR=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$root
[[ $(pkg-config --modversion tutti) == "$(meson introspect "$build" --projectinfo | sed 's/.*"version": "\([^"]*\)", "descriptive_name.*/\1/')" ]]
read -ra flags <<<"$(pkg-config --cflags --libs tutti)"
"$cc" -std=c99 -pedantic-errors -Wall -Werror -o "$root/client" "$client" "${flags[@]}"
libraries=$(dirname "$(find "$root" -name 'libtutti.so.*' -type f)")
LD_LIBRARY_PATH=$libraries timeout 60 "$root/client"
# Each program has its manual page and its completion.
for program in $(find "$root" -path '*/bin/*' \( -name tutti -o -name '*_perf' \) -printf '%f\n'); do
  [[ -n $(find "$root" -path "*/man/man1/$program.1") ]] || { echo "no manual page of $program was installed"; exit 1; }
  [[ -n $(find "$root" -path "*/share/bash-completion/completions/$program") ]] ||
    { echo "no completion of $program was installed"; exit 1; }
done
# The same by CMake, from a folder that has been moved.
moved=$root/moved
prefix=$(dirname "$(dirname "$(find "$root" -name tutti.h)")")
mv "${prefix%/include}" "$moved"
libraries=$(dirname "$(find "$moved" -name 'libtutti.so.*' -type f)")
mkdir "$root/project"
cp "$client" "$root/project/client.c"
cat >"$root/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(client C)
find_package(tutti 0.1 REQUIRED)
add_executable(client client.c)
target_link_libraries(client tutti::tutti)
CMAKE
CC=$cc cmake -S "$root/project" -B "$root/project/build" -DCMAKE_PREFIX_PATH="$moved" >"$root/log" 2>&1 &&
  cmake --build "$root/project/build" >>"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
timeout 60 "$root/project/build/client"
sed -i 's/tutti 0.1 /tutti 0.2 /' "$root/project/CMakeLists.txt"
if cmake -S "$root/project" -B "$root/project/later" -DCMAKE_PREFIX_PATH="$moved" >"$root/log" 2>&1; then
  echo 'CMake takes this version for a later one'
  exit 1
fi
grep -q 'with requested version "0.2"' "$root/log" || { cat "$root/log"; exit 1; }
# Nothing but the C interface may be visible, or programs could come to depend on it.
foreign=$(nm -D --defined-only "$libraries"/libtutti.so | awk '$2 != "A" {print $3}' | grep -v '^tutti[A-Z]' || true)
[[ -z $foreign ]] || { echo "exported, but no part of the interface: $foreign"; exit 1; }
