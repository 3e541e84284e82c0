#!/bin/bash
# Each public header alone compiles: the C ones as C99 and as C++11 and later, the C++ ones as C++17 and later;
# tutti_mpi.h, which needs MPI's, is compiled with the examples. tutti.h and tutti.hpp include all others of their kind.
# Usage: header.sh INCLUDE_FOLDER CC CXX
set -euo pipefail
include=$1
flags=(-Wall -Wextra -Wpedantic -pedantic-errors -Wconversion -Werror -fsyntax-only -I "$include")
in_umbrella() { grep -qF "#include \"tutti/$1\"" "$include/tutti/$2" || { echo "$2 does not include $1"; exit 1; }; }

for path in "$include"/tutti/*.h; do
  header=${path##*/}
  [[ $header != tutti_mpi.h ]] || continue
  [[ $header == tutti.h ]] || in_umbrella "$header" tutti.h
  # Twice: a header that is included again must add nothing.
  lines=$(printf '#include <tutti/%s>\n' "$header" "$header")
  ${2:?} -std=c99 -Wstrict-prototypes "${flags[@]}" -x c - <<<"$lines"
  for standard in c++11 c++20; do ${3:?} -std=$standard "${flags[@]}" -x c++ - <<<"$lines"; done
done
for path in "$include"/tutti/*.hpp; do
  header=${path##*/}
  [[ $header == tutti.hpp ]] || in_umbrella "$header" tutti.hpp
  lines=$(printf '#include <tutti/%s>\n' "$header" "$header")
  for standard in c++17 c++20; do ${3:?} -std=$standard "${flags[@]}" -Wshadow -x c++ - <<<"$lines"; done
done
