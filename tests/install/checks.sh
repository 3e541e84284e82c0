# For scripts whose last line has the counts: `passed` and `failed`. REQUIRES: $folder, for the log.
# shellcheck shell=bash
passed=0 failed=0

# check NAME COMMAND...: one test, in a subshell where each command must succeed.
check() {
  local name=$1 begun=$SECONDS
  shift
  if (set -euo pipefail; "$@") >"$folder/log" 2>&1; then
    echo "OK: $name ($((SECONDS - begun)) s)"
    passed=$((passed + 1))
  else
    echo "==> FAILED: $name"
    tail -40 "$folder/log" | sed 's/^/    /'
    failed=$((failed + 1))
    return 1
  fi
}
