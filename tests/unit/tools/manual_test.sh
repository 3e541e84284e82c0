#!/bin/bash
# Manual pages and completions contain everything from --help; groff and man read the pages, bash the completions.
# Usage: manual_test.sh FOLDER PLOT PLOT_PAGE PROGRAM...
# FOLDER has the output of write_manual; tutti_plot's page was written by hand.
set -euo pipefail
written=$(realpath "$1")
plot=$2 plot_page=$3
shift 3
programs=("$@")
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
unset TUTTI_TOPOLOGY TUTTI_SCHEDULES

fail() {
  echo "$*"
  failed=1
}

# options COMMAND...: the names of the options that --help lists.
options() { "$@" --help | sed -nE 's/^  (-[^ ]*).*/\1/p' | tr , '\n'; }

# show PAGE: the page as on a terminal, without attributes.
show() { groff -man -Tascii -P -cbou -rLL=200n "$1"; }

# completions PROGRAM WORD...: the completions of the last word, one a line. The words are bash's words of a line, in
# which ":" and "=" are separate words.
completions() {
  bash -euc 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_$1"; printf "%s\n" "${COMPREPLY[@]}"' \
    bash "$written/$1" "$@"
}

# expect WANTED PROGRAM WORD...: all completions, in order, with blanks between them.
expect() {
  local wanted=$1 got
  shift
  got=$(completions "$@" | xargs) || fail "$*: no completion"
  [[ $got == "$wanted" ]] || fail "$* is completed to \"$got\", not to \"$wanted\""
}

# look PAGE NAME COMMAND...: the command's page. Leaves it in $shown.
look() {
  local page=$1 name=$2 option warnings
  shift 2
  [[ -s $page ]] || { fail "no page $name"; return; }
  warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1) || fail "$name: groff fails"
  [[ -z $warnings ]] || fail "$name: $warnings"
  ! LC_ALL=C grep -n '[^ -~]' "$page" || fail "$name: characters outside ASCII need to be escaped"
  grep -q ": \"$name - [^\"]" <<<"$(lexgrog "$page")" || fail "$name: apropos finds no description"
  shown=$(show "$page")
  [[ $(options "$@" | wc -l) -ge 2 ]] || fail "$*: --help lists no options"
  for option in $(options "$@"); do
    grep -qE -e "^ +(-.*, )?$option( [A-Za-z|]+)?(,.*| \.\.\.)?( |\$)" <<<"$shown" || fail "the page $name lacks $option"
  done
  for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' 'SEE ALSO'; do
    grep -qx "$section" <<<"$shown" || fail "the page $name has no section $section"
  done
  grep -qE '^ +2 +Invalid (arguments|command line)' <<<"$shown" || fail "the page $name lacks exit status 2"
}

# check PAGE COMMAND...: the command's page and its completion.
check() {
  local name=$1 option shown='' completed
  shift
  look "$written/$name.1" "$name" "$@"
  grep -qx ENVIRONMENT <<<"$shown" || fail "the page $name has no section ENVIRONMENT"
  completed=$(completions "${1##*/}" "${@:2}" -)
  for option in $(options "$@"); do
    grep -qxF -e "$option" <<<"$completed" || fail "the completion of $* lacks $option"
  done
}

shown=''
look "$plot_page" tutti_plot python3 "$plot"

mkdir -p "$folder/man/man1"
cp "$written"/*.1 "$folder/man/man1"
for program in "${programs[@]}"; do
  name=${program##*/}
  check "$name" "$program"
  # Like users look it up.
  grep -q "$name" <<<"$(man -M "$folder/man" "$name" 2>"$folder/errors")" || fail "man $name: $(cat "$folder/errors")"
  [[ ! -s $folder/errors ]] || fail "man $name: $(cat "$folder/errors")"
  # The completion belongs to this program.
  bash -euc 'source "$0"; complete -p "$1"' "$written/$name" "$name" >/dev/null || fail "no completion of $name"
done
subcommands=$("${programs[0]}" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[[ $(wc -w <<<"$subcommands") -ge 7 ]] || fail "few subcommands: $subcommands"
expect "$(xargs <<<"$subcommands")" tutti ''
for subcommand in $subcommands; do
  check "tutti-$subcommand" "${programs[0]}" "$subcommand"
  grep -qF "tutti-$subcommand(1)" <<<"$(show "$written/tutti.1")" || fail "tutti(1) does not name tutti-$subcommand"
done
grep -q '^ *TUTTI_TIMEOUT_MS$' <<<"$(show "$written/tutti.1")" || fail 'tutti(1) lacks TUTTI_TIMEOUT_MS'
grep -qE "^ +A file: tutti's JSON" <<<"$(show "$written/tutti-simulate.1")" || fail 'an apostrophe is lost'
grep -qE '^ +tutti doctor rdma$' <<<"$(show "$written/tutti-doctor.1")" || fail 'tutti-doctor(1) lacks rdma'
grep -qE '^ +tutti doctor \[OPTION\]\.\.\. \[COMMAND\]$' <<<"$(show "$written/tutti-doctor.1")" ||
  fail 'tutti-doctor(1) demands a command'
grep -qE '^ +tutti \[OPTION\]\.\.\. COMMAND$' <<<"$(show "$written/tutti.1")" || fail 'tutti(1) demands no command'

cd "$folder"
[[ $(show "$written/tutti-run.1") == *'tutti run -n N [OPTIONS] [--] PROGRAM [ARGUMENT...]'* ]] ||
  fail 'tutti-run.1 does not say what it starts'
for status in 0 1 2 124 126 127; do
  grep -qE "^ +$status +[A-Z]" <<<"$(show "$written/tutti-run.1")" || fail "tutti-run.1 lacks exit status $status"
done
touch picture.svg 'with blank.svg'
expect 'simulate' tutti si
expect '--collective --cores' tutti topo --c
expect 'all_reduce' tutti topo --collective all_r
expect 'all_reduce' tutti topo --collective = all_r
expect 'tcp verbs' tutti simulate --transport ''
expect 'tcp verbs' tutti simulate --transport =
expect 'rdma' tutti doctor ''
expect '' tutti simulate --hosts ''
expect 'all_reduce,broadcast' tutti tune --collectives all_reduce,bro
expect 'alltoall alltoall_v' tutti explain --root 1 allt
expect 'picture.svg' tutti topo --svg pic
expect 'with blank.svg' tutti topo --svg with
expect 'picture.svg' tutti verify picture.svg pic
grep -qx 4 <<<"$(completions tutti simulate --algorithm k_nomial :)" || fail 'an algorithm with a parameter is not completed'
grep -qx ring <<<"$(completions tutti schedule '')" || fail 'algorithms are not completed'
grep -qx picture.svg <<<"$(completions tutti schedule '')" || fail 'files of algorithms are not completed'
for program in "${programs[@]}"; do
  case ${program##*/} in
    all_reduce_perf) expect 'avg all' all_reduce_perf -o a ;;
    scan_perf) expect 'all' scan_perf -d float -o a ;;
    gather_perf) expect 'float' gather_perf -b 8 --datatype flo ;;
  esac
done
exit "$failed"
