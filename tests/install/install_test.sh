#!/bin/bash
# What `meson install` puts in place is enough for a C program that knows only pkg-config.
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
# Nothing but the C interface may be visible, or programs could come to depend on it.
foreign=$(nm -D --defined-only "$libraries"/libtutti.so | awk '$2 != "A" {print $3}' | grep -v '^tutti[A-Z]' || true)
[[ -z $foreign ]] || { echo "exported, but no part of the interface: $foreign"; exit 1; }
