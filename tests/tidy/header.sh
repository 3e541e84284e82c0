#!/bin/bash
# The public headers alone compile: tutti.h as C99 and as C++11 and later, tutti.hpp as C++17 and later.
# Usage: header.sh INCLUDE_FOLDER CC CXX
set -euo pipefail
include=$1
flags=(-Wall -Wextra -Wpedantic -pedantic-errors -Wconversion -Werror -fsyntax-only -I "$include")
echo '#include <tutti/tutti.h>' | ${2:?} -std=c99 -Wstrict-prototypes "${flags[@]}" -x c -
for standard in c++11 c++20; do
  echo '#include <tutti/tutti.h>' | ${3:?} -std=$standard "${flags[@]}" -x c++ -
done
for standard in c++17 c++20; do
  echo '#include <tutti/tutti.hpp>' | ${3:?} -std=$standard "${flags[@]}" -Wshadow -x c++ -
done
