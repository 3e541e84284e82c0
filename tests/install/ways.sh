# Sourced: builds tests/install/answer.c in each way to use an installed tutti; all must print the same answer. A prefix
# is a folder with include and lib below it, at any path.
# shellcheck shell=bash
ways_source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/answer.c
# tuttiGetVersion() of the version that meson.build states, and 1 + 2 + 3 on each of three ranks.
ways_answer=$(sed -n "s/^  version: '\([0-9]*\)\.\([0-9]*\)\.\([0-9]*\)',\$/\1 \2 \3/p" \
  "${ways_source%/tests/*}/meson.build" |
  awk '{ printf "tutti %d, sums 6 6 6", $1 * 10000 + $2 * 100 + $3 }')

# answers COMMAND...: the command prints the answer.
answers() {
  local said
  said=$(timeout 60 "$@") || return 1
  [[ $said == "$ways_answer" ]] || { echo "$*: said \"$said\", not \"$ways_answer\""; return 1; }
}

# pkg_config_of PREFIX ARGUMENT...: sees no other library's file. A folder meson-uninstalled is a prefix, too.
pkg_config_of() {
  local file
  file=$(find "$1" -name tutti.pc -o -name tutti-uninstalled.pc)
  PKG_CONFIG_LIBDIR=${file%/*} pkg-config "${@:2}"
}

# by_pkg_config PREFIX FOLDER: the program gets the shared library, and the loader its folder.
by_pkg_config() {
  local flags folder
  rm -f "$2/by_pkg_config"
  read -ra flags <<<"$(pkg_config_of "$1" --cflags --libs tutti)"
  "${CC:-cc}" -std=c99 -Wall -Werror "$ways_source" -o "$2/by_pkg_config" "${flags[@]}"
  read -r folder <<<"$(pkg_config_of "$1" --keep-system-libs --libs-only-L tutti)"
  answers env "LD_LIBRARY_PATH=${folder#-L}" "$2/by_pkg_config"
}

# by_archive PREFIX FOLDER: libtutti.a, linked as in docs/installing.md for a system with both libraries.
by_archive() {
  local flags
  rm -f "$2/by_archive"
  read -ra flags <<<"$(pkg_config_of "$1" --static --cflags --libs tutti)"
  "${CC:-cc}" -std=c99 -Wall -Werror "$ways_source" -o "$2/by_archive" "${flags[@]/#-ltutti/-l:libtutti.a}"
  ! readelf -d "$2/by_archive" | grep -q 'NEEDED.*libtutti' || { echo 'the program uses libtutti.so'; return 1; }
  answers env -u LD_LIBRARY_PATH "$2/by_archive"
}

# by_cmake PREFIX FOLDER [TARGET]: CMake writes the run path.
by_cmake() {
  local project=$2/by_cmake target=${3:-tutti::tutti}
  rm -rf "$project"
  mkdir -p "$project"
  cp "$ways_source" "$project/answer.c"
  cat >"$project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(answer C)
find_package(tutti 0.1 REQUIRED)
add_executable(answer answer.c)
target_link_libraries(answer $target)
CMAKE
  cmake -S "$project" -B "$project/build" "-DCMAKE_PREFIX_PATH=$1" && cmake --build "$project/build"
  answers env -u LD_LIBRARY_PATH "$project/build/answer"
}

# by_mpi LIBRARIES FOLDER: the libraries for MPI programs in the folder LIBRARIES serve one of each MPI family.
by_mpi() {
  local family
  cat >"$2/mpi.c" <<'C'
#include <mpi.h>
int main(int argc, char **argv) {
  int one = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return sum == 2 ? 0 : 1;
}
C
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for family in openmpi mpich; do
    "mpicc.$family" "$2/mpi.c" -o "$2/mpi_$family"
    "mpirun.$family" -n 2 env "LD_PRELOAD=$1/libtutti_$family.so" TUTTI_MPI_SUMMARY=1 "$2/mpi_$family" 2>&1 |
      grep 'MPI_Allreduce: .* taken' || return 1
  done
}
