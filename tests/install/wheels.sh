#!/bin/bash
# Makes the wheels with tools/wheels, and uses them like a user without other packages: in empty virtual environments,
# and with "chroot" also in a base system of Debian without a compiler and without a library of this project. The last
# line has the counts. Usage: wheels.sh FOLDER [chroot]: the environments are made again; chroot needs root, mmdebstrap
# and a minute more.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
wheels=$source/build-wheels/dist
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
. "$(dirname "${BASH_SOURCE[0]}")/ways.sh"
# Settings that would find another tutti.
unset PYTHONPATH LD_LIBRARY_PATH LD_PRELOAD PKG_CONFIG_PATH TUTTI_LIBRARY
cd "$folder"

make() { "$source/tools/wheels"; }

# environment NAME PYTHON WHEEL...: an empty one with these wheels and their dependencies.
environment() {
  rm -rf "${folder:?}/$1"
  "$2" -m venv "$folder/$1"
  "$folder/$1/bin/pip" install -q "${@:3}"
}

install_tutti() { environment alone "$python" "$wheels"/tutti-*.whl; }

# Every program in the wheel finds its libraries there, except those of a Linux with a C++ library.
contained() {
  local file foreign
  while read -r file; do
    foreign=$(ldd "$file" | sed -n 's/.*=> \(.*\) (.*/\1/p' | grep -v "^$folder/alone/" |
      grep -vE '/(ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so\.[0-9]+$' || true)
    [[ -z $foreign ]] || { echo "$file needs $foreign"; exit 1; }
    ! ldd "$file" | grep 'not found' || exit 1
  done < <(find "$packages"/tutti* -type f -exec sh -c 'readelf -h "$1" >/dev/null 2>&1' sh {} \; -print)
  [[ -s $packages/tutti-$version.dist-info/licenses/libssl3.copyright ]]
}

programs() {
  local bin=$folder/alone/bin
  "$bin/tutti" info | grep -E '^  verbs +yes' || exit 1
  "$bin/all_reduce_perf" -p 2 -b 8 -e 64K -n 5 | grep '# Out of bounds values : 0 OK' || exit 1
  PATH=$bin:$PATH tutti run -n 2 -- all_gather_perf -b 8 -e 64K -n 5 | grep '# Out of bounds values : 0 OK' || exit 1
  "$bin/tutti" verify --max-ranks 4 || exit 1
  # An error is printed by the program itself, under its own name.
  ! "$bin/tutti" nonsense >said 2>&1 || exit 1
  grep nonsense said || exit 1
  [[ -e $folder/alone/share/man/man1/all_reduce_perf.1 ]]
}

module() {
  cat >module.py <<'PYTHON'
import importlib.metadata, numpy, tutti
assert importlib.metadata.version("tutti") == tutti.__version__
assert "Private :: Do Not Upload" in importlib.metadata.metadata("tutti").get_all("Classifier")
assert tutti.prefix().startswith(importlib.metadata.distribution("tutti").locate_file("").as_posix())
with tutti.Communicator.from_environment() as comm:
    assert comm.all_reduce(numpy.ones(3))[2] == 2
    print(f"rank {comm.rank} of {comm.size}")
PYTHON
  "$folder/alone/bin/tutti" run -n 2 -- "$folder/alone/bin/python" module.py | tee said
  grep 'rank 1 of 2' said
}

ways() {
  local prefix
  prefix=$("$folder/alone/bin/python" -c 'import tutti; print(tutti.prefix())')
  by_pkg_config "$prefix" "$folder"
  by_cmake "$prefix" "$folder"
}

mpi() { by_mpi "$packages/tutti/lib" "$folder"; }

# Both in one command, as in the documentation.
install_torch() { environment training "$python_of_torch" "$wheels"/tutti-*.whl "$wheels"/tutti_torch-*.whl; }

# A program that names the backend, and nothing else of tutti.
training() {
  cat >train.py <<'PYTHON'
import sys, torch, torch.distributed as dist
dist.init_process_group("tutti")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
inputs = torch.full((8, 4), dist.get_rank() + 1.0)
model(inputs).sum().backward()
assert model.module.weight.grad.eq(12).all(), model.module.weight.grad  # 8 * (1 + 2) / 2
assert "tutti_torch" in sys.modules and dist.get_backend() == "tutti"
dist.destroy_process_group()
PYTHON
  "$folder/training/bin/torchrun" --standalone --nproc-per-node 2 train.py
}

example() {
  "$folder/training/bin/torchrun" --standalone --nproc-per-node 2 -m tutti_torch.examples.train | tee said
  grep -E 'tutti, 2 ranks: .*accuracy 9[7-9]|tutti, 2 ranks: .*accuracy 100' said
}

# The module and the backend use one library, not two copies.
one_library() {
  "$folder/training/bin/python" -c '
import importlib.metadata, tutti, tutti_torch
assert tutti.version() == tutti_torch.version()
assert "Private :: Do Not Upload" in importlib.metadata.metadata("tutti-torch").get_all("Classifier")
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libtutti.so" in line}
assert maps == {tutti.prefix() + "/lib/libtutti.so.0"}, maps'
}

# Without the wheel tutti the backend's error names it.
without_tutti() {
  "$folder/training/bin/pip" uninstall -q -y tutti
  ! "$folder/training/bin/python" -c 'import tutti_torch' >said 2>&1 || exit 1
  grep 'install the wheel tutti' said
}

base_system() {
  local root=$folder/root
  rm -rf "$root" "$folder/wheelhouse"
  "$python_of_torch" -m pip download -q -d "$folder/wheelhouse" "$wheels"/tutti-*.whl "$wheels"/tutti_torch-*.whl
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv bookworm "$root"
  mv "$folder/wheelhouse" "$root/wheels"
  cp train.py module.py "$root/"
  # torchrun's rendezvous uses a name of this machine.
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"
  # With /proc, by which the loader finds a program's folder; the mount ends with the namespace.
  unshare --mount sh -ec 'mount -t proc proc "$1/proc"; exec chroot "$1" /bin/sh -ec "$2"' sh "$root" '
    if command -v cc; then exit 1; fi
    [ -z "$(find /usr/lib -name "libhwloc*" -o -name "libtutti*")" ]
    python3 -m venv /venv
    /venv/bin/pip install -q --no-index /wheels/*.whl
    /venv/bin/all_reduce_perf -p 2 -b 8 -e 64K -n 5
    /venv/bin/tutti run -n 2 -- /venv/bin/python /module.py
    /venv/bin/torchrun --standalone --nproc-per-node 2 /train.py' || exit 1
  rm -rf "$root"
}

check 'make' make
if $succeeded; then
  ls -l "$wheels" | awk 'NR > 1 { print "      " $9 ": " int($5 / 1024) " KiB" }'
  version=$(basename "$wheels"/tutti-*.whl | cut -d- -f2)
  # Debian's Python if it has that version, because it has nothing installed.
  series=$(basename "$wheels"/tutti_torch-*.whl | sed -n 's/.*-cp3\([0-9]*\)-.*/3.\1/p')
  python_of_torch=$(PATH=/usr/bin:$PATH command -v "python$series")
  python=/usr/bin/python3
  [[ -x $python ]] || python=$python_of_torch
  check 'install tutti' install_tutti
  if $succeeded; then
    packages=$(dirname "$("$folder/alone/bin/python" -c 'import tutti; print(tutti.prefix())')")
    for test in contained programs module ways mpi; do check "tutti: $test" "$test"; done
  fi
  check 'install tutti-torch' install_torch
  if $succeeded; then
    for test in training example one_library without_tutti; do check "tutti-torch: $test" "$test"; done
  fi
  [[ ${2:-} != chroot ]] || check 'in a base system' base_system
fi
echo "$passed passed, $failed failed"
((failed == 0))
