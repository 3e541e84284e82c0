#!/bin/bash
# Code for tests only is not in the library: neither the simulated network nor the faulty links. The same check finds
# that code in the library that the tests link instead.
set -euo pipefail
library=$1
library_for_tests=$2

symbols_of() {
  nm -C "$1" | grep -c "$2" || true
}

if [ "$(symbols_of "$library" 'tutti::internal::Communicator::')" = 0 ]; then
  echo "$library shows no symbols"
  exit 1
fi
for name in 'transport::sim::' 'Faulty' 'SimulatedNetwork'; do
  if [ "$(symbols_of "$library" "$name")" != 0 ]; then
    echo "in $library:"
    nm -C "$library" | grep "$name" | head
    exit 1
  fi
done
if [ "$(symbols_of "$library_for_tests" 'transport::sim::')" = 0 ]; then
  echo "not found in $library_for_tests, where it is: this test looks for the wrong names"
  exit 1
fi
