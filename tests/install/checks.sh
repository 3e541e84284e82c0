# For scripts whose last line has the counts: `passed` and `failed`. REQUIRES: $folder, for the log.
# shellcheck shell=bash
passed=0 failed=0

# check NAME COMMAND...: one test, in a subshell where each command must succeed; `succeeded` says whether all did.
# bash ignores `set -e` in a condition, also in functions that the condition calls. A call such as `check ... || true`
# would therefore accept commands that fail, and ends the script instead.
check() {
  local name=$1 begun=$SECONDS status
  shift
  set +e
  (set -e; false; true)
  if (($? == 0)); then
    echo "check '$name': a condition must not contain check; call it as a separate command" >&2
    exit 1
  fi
  (set -euo pipefail; "$@") >"$folder/log" 2>&1
  status=$?
  set -e
  if ((status == 0)); then
    echo "OK: $name ($((SECONDS - begun)) s)"
    passed=$((passed + 1)) succeeded=true
  else
    echo "==> FAILED: $name"
    tail -40 "$folder/log" | sed 's/^/    /'
    failed=$((failed + 1)) succeeded=false
  fi
}
