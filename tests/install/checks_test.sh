#!/bin/bash
# checks.sh: a command that fails inside a function fails its check, and a call in a condition ends the script.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
checks=$(dirname "${BASH_SOURCE[0]}")/checks.sh
# expect NAME STATUS OUTPUT: of the script on standard input; the output without times. The status is taken outside
# conditions, as checks.sh asks.
expect() {
  local output status
  { printf 'set -euo pipefail\nfolder=%q\n. %q\n' "$folder" "$checks"; cat; } >"$folder/script"
  set +e
  output=$(bash "$folder/script" 2>&1 | sed 's/ ([0-9]* s)$//')
  status=$?
  set -e
  if [[ $status != "$2" || $output != "$3" ]]; then
    printf '%s: status %s, not %s; output:\n%s\nnot:\n%s\n' "$1" "$status" "$2" "$output" "$3"
    exit 1
  fi
}

expect 'a first command that fails' 0 '==> FAILED: bad
    before
false 0 1' <<'BASH'
bad() { echo before; false; echo after; }
check 'bad' bad
echo "$succeeded $passed $failed"
BASH

expect 'in a function that the checked function calls' 0 '==> FAILED: outer
0 1' <<'BASH'
inner() { false; true; }
outer() { inner; echo after; }
check 'outer' outer
echo "$passed $failed"
BASH

expect 'the first command of a pipeline' 0 '==> FAILED: pipeline
0 1' <<'BASH'
pipeline() { false | cat; echo after; }
check 'pipeline' pipeline
echo "$passed $failed"
BASH

expect 'a later check' 0 '==> FAILED: bad
OK: good
true 1 1' <<'BASH'
bad() { false; }
good() { true; }
check 'bad' bad
check 'good' good
echo "$succeeded $passed $failed"
BASH

for condition in 'check x true || true' 'check x true && true' 'if check x true; then :; fi' '! check x true'; do
  expect "$condition" 1 "check 'x': a condition must not contain check; call it as a separate command" <<<"$condition"
done
