#!/bin/bash
# Feeds arbitrary input to the readers of topology, tuning and schedule files, beginning with the corpus: the same
# inputs each time, for some seconds; or, with SECONDS, other inputs for that time. Usage: fuzz_readers.sh CLANG++
# READERS.CC SOURCES FOLDER VERSION [SECONDS]
set -euo pipefail
compiler=$1 readers=$(realpath "$2") sources=$3 folder=$4 version=$5
here=$sources/tests/fuzz
mkdir -p "$folder/objects"
cd "$sources"
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
  "$compiler" -fsanitize=fuzzer,address -x c++ - -o "$folder/probe" 2>/dev/null; then
  echo "this compiler has no libFuzzer: install the [tests] of tools/packages.txt"
  exit 77
fi
# Compiled again only if a source has changed, in any clone.
cache=$(command -v ccache || true)
# Reports need only lines, and complete debug information takes long to write.
flags=(-std=c++20 -O1 -gline-tables-only -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -D_GNU_SOURCE
  "-DTUTTI_VERSION_TEXT=\"$version\"" -Isrc -Iinclude)
files=("$readers" src/base/{control_group,json_file,status,types,fmt,log,config,similar,variables,descriptors,message_costs,version}.cc
  src/os/*.cc src/schedule/*.cc
  src/algorithms/*.cc src/topology/{graph,graph_json,host_graph,nccl_xml,detect}.cc src/selection/{tuning,costs_json}.cc)
export compiler folder cache
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c '
  object=$folder/objects/$(echo "$1" | tr / _).o
  ${cache:+"$cache"} "$compiler" "${@:2}" -c "$1" -o "$object"' - {} "${flags[@]}"
"$compiler" -fsanitize=fuzzer,address,undefined "$folder"/objects/*.o -lpugixml -lhwloc -lpthread -ldl -o "$folder/readers"

# The first byte names the reader.
rm -rf "$folder/corpus"
mkdir -p "$folder/corpus"
number=0
for kind in topology tuning schedule nccl; do
  for file in "$here/corpus/$kind"/*; do
    { printf "\\x$number"; cat "$file"; } >"$folder/corpus/$kind-$(basename "$file")"
  done
  number=$((number + 1))
done
cd "$folder"
if (($# > 5)); then length=(-max_total_time="$6"); else length=(-seed=1 -runs=15000); fi
# Readers log their assumptions.
TUTTI_LOG=error ./readers "${length[@]}" -timeout=60 -rss_limit_mb=3000 -max_len=8000 -verbosity=0 corpus
