#!/bin/bash
# tutti info: every variable that any part of tutti reads, with its value and source, and answers to the questions that
# users ask about a build. Usage: info_test.sh TUTTI SOURCE_ROOT VERSION
set -euo pipefail
tutti=$1 root=$2 version=$3
failed=0
out=$(mktemp)
trap 'rm -rf "$out"' EXIT
for name in $(env | sed -nE 's/^(TUTTI_[A-Za-z_]*)=.*/\1/p'); do unset "$name"; done

# expect STATUS TEXT ARGUMENTS...: the exit status, and a text in the output.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  "$tutti" "$@" >"$out" 2>&1 || got=$?
  if ((got != status)) || ! grep -q -e "$text" "$out"; then
    echo "tutti $*: exit status $got instead of $status, or no \"$text\" in:"
    cat "$out"
    failed=1
  fi
}

# json EXPRESSION: what the last output must be, read into j.
json() {
  python3 -c "import json, sys; j = json.load(open(sys.argv[1])); assert $1, j" "$out" || failed=1
}

expect 2 'nonsense' info --nonsense
expect 0 "^tutti ${version//./\\.}, protocol [0-9]" info
expect 0 "^C library ${version//./\\.}: .*/libtutti\.so" info
expect 0 '^  shm  *yes ' info
expect 0 '^  libcuda\.so\.1  *\(not found\|/\)' info
if grep -q '^Unknown' "$out"; then cat "$out"; failed=1; fi
expect 0 '^  TUTTI_TIMEOUT_MS  *1800000, default$' info
TUTTI_TIMEOUT_MS=77 expect 0 '^  TUTTI_TIMEOUT_MS  *77, environment; default 1800000$' info
TUTTI_TIMEOUT_MS=long expect 0 'cannot be read: TUTTI_TIMEOUT_MS="long" is not a number' info
TUTTI_VERBS=rails=x expect 0 'cannot be read: .*rails' info
TUTTI_LOG=loud expect 0 'cannot be read: TUTTI_LOG="loud" is not error' info
TUTTI_TIMEOUT=5 expect 0 '^  TUTTI_TIMEOUT  *did you mean TUTTI_TIMEOUT_MS?$' info
TUTTI_SOCKET_IFNAME=eth0 expect 0 '^  TUTTI_SOCKET_IFNAME  *did you mean TUTTI_INTERFACE?$' info
TUTTI_RANK=first TUTTI_WORLD_SIZE=2 expect 0 'cannot be read: no rank' info
TUTTI_INTERFACE=$'eth\e[2J' expect 0 '^  TUTTI_INTERFACE  *eth\\x1b\[2J, environment' info
TUTTI_SECRET=hush expect 0 '^  TUTTI_SECRET  *(not shown), environment' info
if grep -q hush "$out"; then echo 'a secret is shown'; failed=1; fi

TUTTI_BIND=core TUTTI_SOMETHING_ELSE_ALTOGETHER=1 TUTTI_SECRET=hush expect 0 '"format": "tutti info"' info --json
json "j['version'] == '$version' == j['library']['version'] and j['protocol'] >= 1"
json "j['settings']['TUTTI_BIND'] == {'value': 'core', 'default': 'none', 'source': 'environment', 'error': '',
  'meaning': j['settings']['TUTTI_BIND']['meaning']} and j['settings']['TUTTI_BIND']['meaning']"
json "j['settings']['TUTTI_LOG']['source'] == 'default' and j['settings']['TUTTI_LOG']['value'] == 'warn'"
json "j['unknown'] == [{'name': 'TUTTI_SOMETHING_ELSE_ALTOGETHER', 'meant': ''}]"
json "j['features']['tcp']['has'] and all(o['found'] == bool(o['path']) != bool(o['error']) for o in j['opened'].values())"
json "'hush' not in str(j)"

# Every variable that the sources read, and every variable in the tables of docs/settings.md. Variables of Settings are
# read through their rows in variables.cc.
read_somewhere=$(grep -rhoE --include='*.cc' --include='*.h' --include='*.py' --exclude=variables.cc '"TUTTI_[A-Z_]+"' \
  "$root/src" "$root/bindings" | tr -d '"' | sort -u)
documented=$(sed -nE '/^\| `TUTTI_/s/^\| ([^|]*)\|.*/\1/p' "$root/docs/settings.md" | grep -oE 'TUTTI_[A-Z_]+' | sort -u)
(($(wc -w <<<"$read_somewhere") >= 20 && $(wc -w <<<"$documented") >= 20)) || { echo 'few variables are found'; failed=1; }
for name in $read_somewhere $documented; do
  json "'$name' in j['settings']"
done
# In the same order, so that users can compare both. The MPI binding's variables are on a separate page.
in_order() { grep -oE '^.{1,3}TUTTI_[A-Z_]+' | grep -oE 'TUTTI_[A-Z_]+' | grep -v '^TUTTI_MPI'; }
"$tutti" info | in_order >"$out"
diff "$out" <(sed -E '/^\| `TUTTI_/!d; s/^\| ([^|]*)\|.*/\1/; s/, /\n| /g' "$root/docs/settings.md" | in_order) ||
  { echo 'docs/settings.md has the variables in another order than tutti info'; failed=1; }
"$tutti" info --json >"$out"
read_by_row=$(python3 - "$root/src/base/variables.cc" <<'PY'
import re, sys
for row in re.split(r'\n    \{(?="TUTTI_)', open(sys.argv[1]).read())[1:]:
    if "kNotASetting" not in row.split("\n};")[0]:
        print(row.split('"')[1])
PY
)
(($(wc -w <<<"$read_by_row") >= 15)) || { echo 'few settings are found'; failed=1; }
# And no unknown one.
for name in $(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["settings"])' "$out"); do
  grep -qw "$name" "$root/docs/settings.md" || { echo "docs/settings.md lacks $name"; failed=1; }
  grep -qw "$name" <<<"$read_by_row" ||
    grep -qrw --include='*.cc' --include='*.h' --include='*.py' --exclude=variables.cc "\"$name\"" "$root/src" "$root/bindings" ||
    { echo "nothing reads $name"; failed=1; }
done
exit "$failed"
