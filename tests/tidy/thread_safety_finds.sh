#!/bin/bash
# The check of locks (thread_safety.py) accepts a source that uses os/mutex.h correctly, and refuses each kind of
# misuse. Skipped without Clang. Usage: thread_safety_finds.sh THREAD_SAFETY.PY SOURCE_ROOT
set -euo pipefail
check=$1
root=$2
command -v clang++ >/dev/null || command -v clang++-14 >/dev/null || exit 77
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/src/os" "$tree/build"
cp "$root"/src/os/{mutex,clock,fork,scheduler}.h "$tree/src/os"

cat >"$tree/src/box.h" <<'TEXT'
#include "os/fork.h"
#include "os/mutex.h"
using namespace tutti::internal;
struct Box {
  void put(int value);
  int take() TUTTI_EXCLUDES(mutex);
  int look() TUTTI_REQUIRES(mutex) { return content; }
  Mutex mutex;
  ConditionVariable changed;
  int content TUTTI_GUARDED_BY(mutex) = 0;
};
struct Process {
  ForkMutex mutex;
  int content TUTTI_GUARDED_BY(mutex) = 0;
};
TEXT

# try SOURCE: whether the check accepts a source that includes box.h. refused FINDING SOURCE: it must not.
try() {
  printf '#include "box.h"\n%s\n' "$1" >"$tree/src/box.cc"
  printf '[{"directory": "%s", "file": "../src/box.cc", "command": "c++ -I../src -std=c++20 -fno-such -c ../src/box.cc"}]' \
    "$tree/build" >"$tree/build/compile_commands.json"
  output=$(python3 "$check" "$tree" "$tree/build" 2>&1)
}
refused() {
  if try "$2" || ! grep -q -e "$1" <<<"$output"; then
    echo "'$1' was expected of '$2': $output"
    exit 1
  fi
}

right='void Box::put(int value) {
  const MutexLock lock(mutex);
  content = value;
  changed.notify_all();
}
int Box::take() {
  MutexLock lock(mutex);
  while (content == 0 && changed.wait_until(mutex, Deadline::after_ms(1))) {
  }
  lock.unlock();
  lock.lock();
  return look();
}
int in_process(Process& process) {
  const MutexLock lock(process.mutex);
  return process.content;
}'
try "$right" || { echo "what is right was refused: $output"; exit 1; }

refused "writing variable 'content' requires holding mutex" 'void Box::put(int value) { content = value; }'
refused "reading variable 'content' requires holding mutex" 'int f(Process& p, Process& q) {
  const MutexLock lock(p.mutex);
  return q.content;
}'
refused "calling function 'look' requires holding mutex" 'int f(Box& box) { return box.look(); }'
refused "calling function 'wait' requires holding mutex" 'void f(Box& box) { box.changed.wait(box.mutex); }'
refused "cannot call function 'take' while mutex 'box.mutex' is held" 'int f(Box& box) {
  const MutexLock lock(box.mutex);
  return box.take();
}'
refused "mutex 'box.mutex' is still held at the end of function" 'void f(Box& box) { box.mutex.lock(); }'
refused "writing variable 'content' requires holding mutex" 'void f(Box& box) {
  MutexLock lock(box.mutex);
  lock.unlock();
  box.content = 1;
}'
# A source that Clang cannot read is a finding, not silence.
refused 'error: unknown type name' 'nonsense f();'
