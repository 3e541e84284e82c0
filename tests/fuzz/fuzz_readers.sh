#!/bin/bash
# Feeds arbitrary input to the readers of topology, tuning and schedule files, beginning with the corpus: the same
# inputs each time, for some seconds; or, with SECONDS, other inputs for that time. Usage: fuzz_readers.sh CLANG++
# READERS.CC SOURCES FOLDER VERSION [SECONDS]
set -euo pipefail
compiler=$1 readers=$(realpath "$2") sources=$3 folder=$4 version=$5
here=$sources/tests/fuzz
mkdir -p "$folder"
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
  "-DTUTTI_VERSION_TEXT=\"$version\"" -I. -Isrc -Iinclude)
rm -rf "$folder/objects"
mkdir -p "$folder/objects"
# together NAME SOURCE...: makes NAME.cc, which includes the sources. They are compiled in a third of the time that they
# take apart.
together() { printf '#include "%s"\n' "${@:2}" >"$folder/objects/$1.cc"; }
together readers "$readers"
together base src/base/{control_group,json_file,status,types,fmt,log,config,similar,variables,descriptors,message_costs,version}.cc src/os/*.cc
together schedule src/schedule/*.cc
together algorithms src/algorithms/*.cc
together topology src/topology/{graph,graph_json,host_graph,detect}.cc src/selection/{tuning,costs_json}.cc
together nccl_xml src/topology/nccl_xml.cc
export cache
printf '%s\0' "$folder"/objects/*.cc | xargs -0 -P "$(nproc)" -I{} bash -c \
  '${cache:+"$cache"} "$@" -c "$0" -o "${0%.cc}.o"' {} "$compiler" "${flags[@]}"
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
