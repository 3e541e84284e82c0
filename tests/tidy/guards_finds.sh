#!/bin/sh
# guards.py finds a guarded static variable, and nothing else.
set -eu
guards=$1
cxx=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src/base/lib.p"

check() {
  printf '%s\n' "$2" > "$folder/one.cc"
  $cxx -O2 -c "$folder/one.cc" -o "$folder/src/base/lib.p/one.cc.o"
  status=0
  python3 "$guards" "$folder" > "$folder/text" || status=$?
  if [ "$status" != "$1" ]; then
    echo "exit status $status instead of $1 for: $2"
    cat "$folder/text"
    exit 1
  fi
}

check 1 'int measure(); int f() { static const int once = measure(); return once; }'
check 1 'struct S { S(); int i; }; S& f() { static auto* const only = new S; return *only; }'
check 1 'struct S { ~S(); }; void use(S&); void f() { static S one; use(one); }'
check 0 'int f(int i) { static constexpr int all[] = {1, 2, 3}; return all[i]; }'
check 0 'int measure(); const int once = measure();'
rm "$folder/src/base/lib.p/one.cc.o"
if python3 "$guards" "$folder" 2> /dev/null; then
  echo "a folder without objects passes"
  exit 1
fi
