#!/bin/bash
# The files that `meson install` installs are sufficient for a C program that only knows pkg-config, or CMake: to link
# the shared library, and the archive if the build has one (-Ddefault_library=both or static). Before that, the build
# folder's own file for pkg-config is. Usage: install_test.sh BUILD_FOLDER CLIENT_SOURCE CC
set -euo pipefail
build=$1 client=$2
export CC=$3
. "$(dirname "${BASH_SOURCE[0]}")/ways.sh"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
  echo "$*"
  exit 1
}
# uses LIBRARY.so PROGRAM: whether the program needs it from the loader.
uses() { readelf -d "$2" | grep -q "NEEDED.*\[$1\."; }

by_pkg_config "$build/meson-uninstalled" "$root" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
# Like a prefix that was unpacked in another folder: no file may contain the original path.
include=$(find "$root" -type d -path '*/include/tutti')
moved=$root/moved
mv "${include%/include/tutti}" "$moved"
shared=$(find "$moved" -name 'libtutti.so.*' -type f) archive=$(find "$moved" -name libtutti.a)
[[ -n $(find "$moved" -name tutti.pc) ]] || fail 'no tutti.pc was installed'
[[ $(pkg_config_of "$moved" --modversion tutti) == \
  "$(meson introspect "$build" --projectinfo | sed 's/.*"version": "\([^"]*\)", "descriptive_name.*/\1/')" ]]
compile=("$CC" -std=c99 -pedantic-errors -Wall -Werror "$client")
if [[ -n $shared ]]; then
  by_pkg_config "$moved" "$root" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
  read -ra flags <<<"$(pkg_config_of "$moved" --cflags --libs tutti)"
  "${compile[@]}" -o "$root/client" "${flags[@]}"
  uses libtutti.so "$root/client" || fail 'the program is not linked with libtutti.so'
  LD_LIBRARY_PATH=${shared%/*} timeout 60 "$root/client"
fi
if [[ -n $archive ]]; then
  by_archive "$moved" "$root" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
  by_cmake "$moved" "$root" tutti::tutti_static >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
  ! uses libtutti.so "$root/by_cmake/build/answer" || fail 'tutti::tutti_static is not the archive'
fi
# If the archive is the only library, programs get it by default.
if [[ -z $shared ]]; then
  read -ra flags <<<"$(pkg_config_of "$moved" --cflags --libs tutti)"
  "${compile[@]}" -o "$root/client_plain" "${flags[@]}"
fi
by_cmake "$moved" "$root" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
sed -i 's/tutti 0.1 /tutti 0.2 /' "$root/by_cmake/CMakeLists.txt"
if cmake -S "$root/by_cmake" -B "$root/by_cmake/later" -DCMAKE_PREFIX_PATH="$moved" >"$root/log" 2>&1; then
  fail 'CMake takes this version for a later one'
fi
grep -q 'with requested version "0.2"' "$root/log" || { cat "$root/log"; exit 1; }
# If the library is not in one of the loader's folders, installed programs find it from any prefix, by a path relative
# to their own.
program=$(find "$moved" -path '*/bin/tutti')
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
# Each program has its manual page and its completion, except one that only names the program to run instead.
for program in $(find "$root" -path '*/bin/*' \( -name tutti -o -name '*_perf' \) ! -name hypercube_perf -printf '%f\n'); do
  [[ -n $(find "$root" -path "*/man/man1/$program.1") ]] || fail "no manual page of $program was installed"
  [[ -n $(find "$root" -path "*/share/bash-completion/completions/$program") ]] ||
    fail "no completion of $program was installed"
done
[[ -n $shared ]] || exit 0
# Only the C interface may be visible, or programs could come to depend on other symbols.
foreign=$(nm -D --defined-only "$(find "$moved" -name libtutti.so)" | awk '$2 != "A" {print $3}' | grep -v '^tutti[A-Z]' || true)
[[ -z $foreign ]] || fail "exported, but no part of the interface: $foreign"
