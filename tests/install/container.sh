#!/bin/bash
# Builds the image of the Containerfile and runs its programs, without a registry: Debian's base system is made here.
# Usage: container.sh FOLDER: the folder of the base system and the images; existing ones are reused. The last line has
# the counts.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
# No user namespaces, no separate network, no overlay: it also works inside a container.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah=(buildah --root "$folder/images" --runroot "$folder/run")

base() {
  "${buildah[@]}" images debian:12 && return
  mmdebstrap --variant=minbase bookworm "$folder/base.tar"
  local container
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" add "$container" "$folder/base.tar" /
  "${buildah[@]}" commit "$container" docker.io/library/debian:12
  "${buildah[@]}" rm "$container"
  rm "$folder/base.tar"
}

image() { "${buildah[@]}" bud --pull-never --layers -t tutti "$source"; }

# inside COMMAND...: in a container of the image, as its user.
inside() { "${buildah[@]}" run "$container" -- "$@"; }

programs() {
  [[ $(inside id -un) == tutti ]]
  inside tutti info | grep -E '^  verbs +yes'
  inside tutti info | grep -E 'libibverbs.so.1 +/'
  inside tutti run -n 2 -- all_reduce_perf -b 8 -e 64K -n 5 | grep '# Out of bounds values : 0 OK'
  inside all_gather_perf -t 3 -b 8 -e 64K -n 5 | grep '# Out of bounds values : 0 OK'
  inside tutti simulate --hosts 4 --per-host 8 -s 1M | grep 'the best'
  inside tutti doctor -n 2 | grep -E '^(ok|warn|FAIL) +shared memory'
}

check 'base system' base
! $succeeded || check 'image of the Containerfile' image
if $succeeded; then
  container=$("${buildah[@]}" from --pull-never tutti)
  check 'programs in a container' programs
  size=$("${buildah[@]}" images --format '{{.Size}}' tutti)
  "${buildah[@]}" rm "$container" >/dev/null
  echo "the image has $size"
fi
echo "$passed passed, $failed failed"
((failed == 0))
