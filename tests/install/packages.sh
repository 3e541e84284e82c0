#!/bin/bash
# Builds Debian's packages from the files that git has of this folder, according to debian/control and debian/rules, and
# uses them from a separate folder: they are not installed here. With "chroot" apt also installs them, with what they
# depend on, into a base system of Debian. The last line has the counts. Usage: packages.sh FOLDER [chroot]: everything
# there is made again, and the packages stay there; chroot needs root, mmdebstrap and a minute more.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
root=$folder/root
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
. "$(dirname "${BASH_SOURCE[0]}")/ways.sh"

# Debian's own Python, and compilers through the cache. Packages with debugging information take twice as long.
build() {
  cd "$folder/tutti"
  export PATH=/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)"
  export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache} CCACHE_BASEDIR=$folder DEB_CXXFLAGS_STRIP=-g DEB_CFLAGS_STRIP=-g
  dpkg-buildpackage -us -uc -b
}

unpack() {
  local package
  for package in libtutti0 libtutti-dev tutti-tools tutti-mpi python3-tutti; do
    dpkg-deb -x "$folder/$package"_*.deb "$root"
  done
}

# The package is named after the soname, and packages that need the library depend on it.
dependencies() {
  readelf -d "$libraries/libtutti.so.0" | grep -F '[libtutti.so.0]'
  local package
  for package in tutti-tools tutti-mpi python3-tutti libtutti-dev; do
    dpkg-deb -f "$folder/$package"_*.deb Depends | grep -w libtutti0
  done
  for package in libtutti0 tutti-mpi; do
    ! dpkg-deb -f "$folder/$package"_*.deb Depends | grep -E 'openmpi|mpich|pmix|verbs' || exit 1
  done
}

readme_program() { awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$source/README.md"; }

lint() { lintian --fail-on error --allow-root "$folder"/tutti_*.changes; }

programs() {
  "$root/usr/bin/all_reduce_perf" -p 2 -b 8 -e 64K -n 5 | grep '# Out of bounds values : 0 OK'
  "$root/usr/bin/tutti" verify --max-ranks 4
  [[ -e $root/usr/share/man/man1/all_reduce_perf.1.gz && -e $root/usr/share/bash-completion/completions/tutti ]]
}

# README's program under tutti run.
example() {
  local flags
  readme_program >"$folder/example.c"
  read -ra flags <<<"$(pkg_config_of "$root" --cflags --libs tutti)"
  cc -Wall -Werror "$folder/example.c" -o "$folder/example" "${flags[@]}"
  "$root/usr/bin/tutti" run -n 2 "$folder/example" | grep 'rank 1 of 2: sum 1'
}

ways() {
  by_pkg_config "$root" "$folder"
  by_archive "$root" "$folder"
  by_cmake "$root/usr" "$folder"
}

mpi() { by_mpi "$libraries" "$folder"; }

python_module() {
  local modules=$root/usr/lib/python3/dist-packages
  PYTHONPATH=$modules TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 /usr/bin/python3 -c '
import importlib.metadata, numpy, tutti
assert importlib.metadata.version("tutti") == "0.1.0"
with tutti.Communicator.from_environment() as comm:
    assert comm.all_reduce(numpy.ones(3))[2] == 1'
}

# As README and the documentation say, with apt, and a compiler for libtutti-dev.
base_system() {
  local base=$folder/base files
  unset LD_LIBRARY_PATH
  files=$(printf ',%s' "$folder"/*.deb)
  # The hook shows the files to apt inside.
  mmdebstrap --quiet --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
    --include="gcc,libc6-dev,pkg-config$files" bookworm "$base"
  readme_program >"$base/program.c"
  cat >"$base/module.py" <<'PYTHON'
import numpy, tutti
with tutti.Communicator.from_environment() as comm:
    print(f"rank {comm.rank}: {comm.all_reduce(numpy.ones(3))[2]}")
PYTHON
  # With /proc, as every system has it; the mount ends with the namespace.
  unshare --mount sh -ec 'mount -t proc proc "$1/proc"; exec chroot "$1" /bin/sh -ec "$2"' sh "$base" '
    cd /tmp
    cc /program.c -o program $(pkg-config --cflags --libs tutti)
    tutti run -n 2 ./program | grep "rank 1 of 2: sum 1"
    tutti run -n 2 -- all_reduce_perf -b 8 -e 64K -n 5 | grep "# Out of bounds values : 0 OK"
    tutti run -n 2 -- python3 /module.py | grep "rank 1: 2.0"
    tutti info | grep -E "^  verbs +yes"'
  rm -rf "$base"
}

rm -rf "${folder:?}"/*
mkdir -p "$folder/tutti" "$root"
(cd "$source" && git ls-files -z | xargs -0 cp --parents -t "$folder/tutti")
check 'build' build
! $succeeded || check 'unpack' unpack
if $succeeded; then
  (cd "$folder" && ls -l ./*.deb | awk '{ print "      " $9 ": " int($5 / 1024) " KiB" }')
  libraries=$(dirname "$(find "$root" -name libtutti.so.0)")
  export LD_LIBRARY_PATH=$libraries
  for test in dependencies lint programs example ways mpi python_module; do check "$test" "$test"; done
  [[ ${2:-} != chroot ]] || check 'in a base system' base_system
fi
check 'subproject' "$source/tests/install/subproject_test.sh" "$source" whole
echo "$passed passed, $failed failed"
((failed == 0))
