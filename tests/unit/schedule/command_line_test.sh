#!/bin/sh
# The tutti command's exit statuses and what it prints. Usage: command_line_test.sh TUTTI
tutti=$1
failed=0
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

# expect STATUS TEXT ARGUMENTS...: the exit status, and a text in the output.
expect() {
  status=$1
  text=$2
  shift 2
  "$tutti" "$@" >"$out" 2>&1
  got=$?
  if [ "$got" -ne "$status" ] || ! grep -q -e "$text" "$out"; then
    echo "tutti $*: exit status $got instead of $status, or no \"$text\" in:"
    cat "$out"
    failed=1
  fi
}

expect 0 'verify ' --help
expect 0 '--max-ranks' verify --help
expect 0 'Exit status' verify --help
expect 0 '--hosts' schedule --help
expect 0 'broadcast: .*double_tree' schedule --help
expect 0 '^direct$' schedule direct
expect 0 '^total ' verify --max-ranks 6
expect 0 '^all_gather *bruck *3 ' verify --max-ranks 3 --algorithm bruck
expect 0 '^reduce *chain *6 ' verify --max-ranks 3 --collective reduce
expect 0 'recv_reduce from 0' schedule ring -n 4 -r 1
expect 0 'rank 3 of 4.*root 2' schedule chain -n 4 -r 3 --collective broadcast --root 2
expect 0 'recv_reduce from 3' schedule hierarchical -n 4 -r 1 --hosts 2,2
expect 0 '^alltoall *bruck *3 ' verify --max-ranks 3 --collective all_to_all
for collective in gather scatter scan exscan; do
  expect 0 "^$collective " verify --max-ranks 4 --collective $collective
done
expect 0 'alltoall, rank 0 of 5' schedule bruck -n 5 --collective alltoall
expect 0 'copy  *chunk 7 -> 4  *scratch -> output  *after 4$' schedule bruck -n 5 --collective alltoall
# Columns as wide as the widest text in them.
"$tutti" schedule bruck -n 300 --collective alltoall >"$out"
if [ "$(sed -n 's/\(.*chunk .* \)input -> .*/\1/p' "$out" | awk '{ print length }' | sort -u | wc -l)" -ne 1 ]; then
  echo 'tutti schedule: columns are not aligned in:'
  cat "$out"
  failed=1
fi
expect 0 'gather, rank 0 of 3.*root 2' schedule k_nomial:2 -n 3 --collective gather --root 2
expect 0 'reduce  *chunk 1 -> 0  *scratch, input -> scratch  *after 1$' schedule recursive_doubling -n 5 -r 1 \
  --collective exscan
expect 0 '^k_nomial:5$' schedule k_nomial:5 -n 9 --collective broadcast
expect 0 '^scatter *k_nomial:5 *6 ' verify --max-ranks 3 --algorithm k_nomial:5
expect 2 'no algorithm "bruck" for all_reduce; .*; with --collective it is one of all_gather, alltoall' schedule bruck
expect 2 'no algorithm "ring" for scan; there are recursive_doubling, chain' verify --algorithm ring --collective scan
expect 2 'k_nomial:2, .*k_nomial:K for any K from 2' verify --algorithm k_nomial
expect 2 'k_nomial:2, .*k_nomial:K for any K from 2' schedule k_nomial:1 --collective reduce
expect 2 'subcommand'
expect 2 'nonsense' --nonsense
expect 2 'nonsense' verify --nonsense
expect 2 'nothing' verify --algorithm nothing
expect 2 'nothing' verify --collective nothing
expect 2 'max-ranks' verify --max-ranks x
expect 2 'max-ranks' verify --max-ranks 0
expect 2 'there are .*ring' schedule nothing
expect 2 'rank 4' schedule ring -n 4 -r 4
expect 2 'add up to 4' schedule hierarchical -n 4 --hosts 2,1
expect 2 '"x"' schedule hierarchical -n 4 --hosts 2,x
expect 2 'it needs groups' schedule hierarchical -n 4
exit $failed
