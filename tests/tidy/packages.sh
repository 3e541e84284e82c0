#!/bin/bash
# tools/install_packages installs the requested sections and no more; the fakes below replace a Debian system without
# installed packages.
set -euo pipefail
root=$1
fakes=$(mktemp -d)
trap 'rm -rf "$fakes"' EXIT
printf '#!/bin/sh\nexit 1\n' >"$fakes/dpkg-query"
printf '#!/bin/sh\necho "apt-get $*"\n' >"$fakes/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$fakes/sudo"
chmod +x "$fakes"/*

fail() {
  echo "$*"
  exit 1
}

install() { PATH="$fakes:$PATH" "$root/tools/install_packages" "$@"; }

output=$(install build)
grep -q '^apt-get install .* g++ .*libhwy-dev' <<<"$output" || fail "g++ would not be installed: $output"
for package in catch2 mpich libgloo-dev qemu-system-x86; do
  ! grep -qw -e "$package" <<<"$output" || fail "the library does not need $package: $output"
done
output=$(install build tests guests)
for package in g++ catch2 clang-format qemu-system-x86; do
  grep -qF " $package" <<<"$output" || fail "$package would not be installed: $output"
done
! output=$(install build test 2>&1) || fail "a section that does not exist was accepted: $output"
grep -q 'no section test' <<<"$output" || fail "the unknown section is not named: $output"

# Each package is in one section, and the scripts ask for sections that exist.
twice=$(sed -e 's/#.*//' -e '/^\[/d' -e '/^[[:space:]]*$/d' "$root/tools/packages.txt" | sort | uniq -d)
[[ -z $twice ]] || fail "in more than one section: $twice"
install --list build features tests python analysis plots peers guests packages frameworks >/dev/null

# Debian's package is built with the needs of the library, the programs and the features; except what every package is
# built with (g++, dpkg-dev), and what each of its kind has.
needed=$(sed -n '/^Build-Depends:/,/^[^ B]/p' "$root/debian/control" | grep -o '[a-z][-a-z0-9+]*\( (.*)\)\?,\?$' |
  sed -e 's/[ ,].*//' -e 's/^debhelper-compat$/debhelper/' -e 's/^dh-sequence-python3$/dh-python/' | sort)
missing=$(comm -13 <(echo "$needed") <(install --list build features | sort) | grep -vx -e g++ -e dpkg-dev || true)
[[ -z $missing ]] || fail "debian/control does not build with: $missing"
foreign=$(comm -23 <(echo "$needed") <(install --list build features tests peers packages | sort))
[[ -z $foreign ]] || fail "debian/control builds with what tools/packages.txt has not: $foreign"
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$root/meson.build")
[[ $(head -1 "$root/debian/changelog") == "tutti ($version) "* ]] || fail "debian/changelog is not at $version"


# A name that is not a peer is refused before anything is installed.
status=0
output=$("$root/tools/install_peers" mpich5 mpich6 2>&1) || status=$?
((status == 2)) || fail "an unknown peer: exit status $status: $output"
grep -q 'unknown peer mpich6' <<<"$output" || fail "the unknown peer is not named: $output"
"$root/tools/install_peers" --help | grep -q oneccl || fail 'no help'

