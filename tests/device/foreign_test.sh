#!/usr/bin/env bash
# Usage: foreign_test.sh ALL_REDUCE_PERF. Results are correct on devices for which the library has no code, and it logs
# a warning.
set -euo pipefail

said=$("$1" -g 2 -b 48 -e 1M -f 64 -n 3 2>&1)
grep -q 'Out of bounds values : 0 OK' <<<"$said"
grep -q 'cuda:[01] cannot run this library.*device_architectures' <<<"$said" || {
  printf 'no warning in:\n%s\n' "$said"
  exit 1
}
