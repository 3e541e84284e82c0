#!/bin/bash
# The reference of include/tutti can be made as it is, and neither a function without a comment nor a comment on what
# does not exist gets into it.
# Usage: reference_test.sh SOURCE_FOLDER DOXYGEN
set -euo pipefail
source=$1 doxygen=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
  echo "$*"
  exit 1
}
mkdir -p "$root/docs"
cp -r "$source/include" "$root"
cp -r "$source/docs/reference" "$root/docs"
reference() { "$root/docs/reference/make.sh" "$root" "$doxygen" 0 "$root/html" >"$root/log" 2>&1; }
reference || { cat "$root/log"; exit 1; }
for page in index collectives_8h classtutti_1_1Communicator; do
  [[ -s $root/html/$page.html ]] || fail "there is no page $page.html"
done
grep -q 'tuttiNumOps' "$root/html/types_8h.html" || fail 'the names of an enumeration are left out'

header=$root/include/tutti/memory.h
cp "$header" "$root/memory.h"
sed -i 's|^/\* Frees memory of tuttiMemAlloc|/* Frees memory of tuttiMemTake|' "$header"
! reference || fail 'a comment may name a function that there is not'
grep -q "memory.h.*'tuttiMemTake'" "$root/log" || { cat "$root/log"; exit 1; }
{ sed '/^TUTTI_EXPORT.*tuttiMemFree/q' "$root/memory.h" && echo 'TUTTI_EXPORT void tuttiMemDump(void);' &&
  sed '1,/^TUTTI_EXPORT.*tuttiMemFree/d' "$root/memory.h"; } >"$header"
! reference || fail 'a function may be without a comment'
grep -q 'memory.h.*tuttiMemDump.*not documented' "$root/log" || { cat "$root/log"; exit 1; }
