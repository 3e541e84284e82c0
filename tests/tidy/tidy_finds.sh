#!/bin/bash
# The checks of style and format find one defect of each kind in a small tree.
set -euo pipefail
tidy=$1
format=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/src/base" "$tree/src/schedule" "$tree/src/executor"
echo "lib = static_library('base', 'status.cc', 'long.cc')" >"$tree/src/base/meson.build"
echo '#include "schedule/schedule.h"' >"$tree/src/base/status.cc"
echo 'int x = getenv("X") != nullptr;  ' >>"$tree/src/base/status.cc"
printf '\tint y;\n// TO%s: later\n' DO >>"$tree/src/base/status.cc"
echo 'int z;' >"$tree/src/schedule/schedule.h"
echo 'std::mutex unseen;' >>"$tree/src/schedule/schedule.h"
echo 'void nap() { usleep(1); }' >>"$tree/src/schedule/schedule.h"
echo 'int forgotten;' >"$tree/src/executor/forgotten.cc"
mkdir "$tree/src/net"
printf '#include "os/kernel.h"\nint id() { return ::getpid(); }\nint seen() { return os::kernel().getpid(); }\n' >"$tree/src/net/id.h"
printf '#include "executor/second.h"\n' >"$tree/src/executor/first.h"
printf '#include "executor/third.h"\n' >"$tree/src/executor/second.h"
printf '#include "executor/first.h"\n' >"$tree/src/executor/third.h"
printf '#include "executor/first.h"\n' | tee "$tree/src/executor/first.cc" "$tree/src/executor/first_part.cc" \
  >"$tree/src/executor/firsthand.cc"
{ echo 'int f() {'; for i in $(seq 80); do echo "  g($i);"; done; echo '}'; } >"$tree/src/base/long.cc"
{ echo 'template <class T> int h(T t) {'; for i in $(seq 90); do echo "  g($i);"; done; echo '}'; } >"$tree/src/base/template.h"
for _ in $(seq 500); do echo 'int many();'; done >>"$tree/src/base/long.cc"
mkdir -p "$tree/docs" "$tree/tools/drawing"
printf 'Set it. The remedy is\nfor\never there. There is no other.\n' >"$tree/docs/page.md"
printf '// whence\nauto help =\n    "What remains is "\n    "none of yours.";\n' >"$tree/tools/drawing/help.cc"
printf 'if x is None:  # whence\n' >"$tree/tools/drawing/help.py"
printf '// Waits for\n// ever.\nint whence;  // No\nint two;  // one.\n' >"$tree/src/base/waits.h"
if output=$(python3 "$tidy" "$tree"); then
  echo "defects were accepted: $output"
  exit 1
fi
for finding in 'may not include' 'src/executor may include src/transport, but does not' 'getenv outside' 'space at the end' 'tab' 'unfinished' 'is in no meson.build' \
  'a function of 82 lines' 'a function of 92 lines' 'a sleep outside' 'net/id.h:2: a call of the kernel' '582 lines' 'docs/page.md:1: "remedy": write: fix' 'docs/page.md:2: "for ever"' \
  'tools/drawing/help.cc:1: "whence"' 'tools/drawing/help.py:1: "whence"' 'tools/drawing/help.cc:3: "is none of"' 'base/waits.h:1: "for // ever"' 'schedule.h:2: a lock' 'schedule.h:2: std::mutex needs <mutex>' \
  'headers include each other: executor/first.h executor/second.h executor/third.h executor/first.h' \
  'executor/forgotten.cc:1: includes no header' 'executor/firsthand.cc:1: includes no header'; do
  if ! grep -q "$finding" <<<"$output"; then
    echo "not found: $finding in: $output"
    exit 1
  fi
done
if grep -q 'page.md:.*is no"\|waits.h:3\|help.py:.*None' <<<"$output"; then
  echo "words were refused in a sentence or a place where they are right: $output"
  exit 1
fi
if grep -q 'net/id.h:3: a call of the kernel' <<<"$output"; then
  echo "a call by way of os::kernel() was refused: $output"
  exit 1
fi
if grep -q 'first\(_part\)\?.cc:1: includes no header' <<<"$output"; then
  echo "a source and a part of it were refused: $output"
  exit 1
fi

# Without clang-format, the check of the format skips itself.
echo 'BasedOnStyle: Google' >"$tree/.clang-format"
status=0
output=$(python3 "$format" "$tree") || status=$?
if ((status != 77)) && { ((status != 1)) || ! grep -q 'status.cc:2:.*clang-formatted' <<<"$output"; }; then
  echo "what clang-format would change was not found (exit status $status): $output"
  exit 1
fi
formatter=$(command -v clang-format-14 || command -v clang-format || echo true)
"$formatter" -i "$tree"/src/*/*.{cc,h}
status=0
output=$(python3 "$format" "$tree") || status=$?
if ((status != 77 && status != 0)); then
  echo "what is formatted was refused: $output"
  exit 1
fi
