#!/bin/bash
# The binary interface on which programs linked with libtutti.so rely.
# Usage: abi_test.sh symbols LIBRARY LIST: LIBRARY exports exactly the symbols of LIST, with these versions.
#        abi_test.sh types DESCRIBED_LIBRARY DUMP HEADERS: functions and types are those of DUMP.
#        abi_test.sh renew DESCRIBED_LIBRARY DUMP HEADERS LIST: writes both anew.
set -euo pipefail
export LC_ALL=C
what=$1 library=$2
fix="If that is meant, run: ninja -C BUILD renew-abi (see CONTRIBUTING.md, Binary interface)"

symbols() { nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | sort; }
dump() {
  abidw --exported-interfaces-only --headers-dir "$1" --drop-private-types --no-show-locs --no-corpus-path \
    --no-comp-dir-path --no-elf-needed "$library"
}

# Exit status 77 (skipped) only where libabigail's programs are not installed.
require_abigail() {
  command -v abidw abidiff >/dev/null || { echo 'needs abidw and abidiff (Debian: abigail-tools)'; exit 77; }
}

case $what in
  symbols)
    diff -u "$3" <(symbols) || { echo "other symbols leave the library than $3 lists. $fix"; exit 1; }
    ;;
  types)
    require_abigail
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    dump "$4" >"$scratch/now.abi"
    abidiff --no-show-locs "$3" "$scratch/now.abi" || { echo "the interface is not that of $3. $fix"; exit 1; }
    ;;
  renew)
    require_abigail
    dump "$4" >"$3"
    symbols >"$5"
    ;;
  *) echo "unknown: $what" && exit 2 ;;
esac
