#!/bin/bash
# tutti run with real processes: variables, signals, output, input, exit statuses, ends.
# Usage: run_test.sh TUTTI
set -uo pipefail
tutti=$(realpath "$1")  # some calls are made in another folder
failed=0
folder=$(mktemp -d)
out=$folder/out
err=$folder/err
trap 'rm -rf "$folder"' EXIT
unset "${!TUTTI_@}"

wrong() {
  echo "wrong: $*"
  failed=1
}

# expect STATUS ARGUMENTS...: runs it to its end, with its output in $out and $err.
expect() {
  local status=$1 got=0
  shift
  timeout -k 1 100 "$tutti" run "$@" >"$out" 2>"$err" </dev/null || got=$?
  ((got == status)) || wrong "tutti run $*: exit status $got instead of $status: $(head -c 2000 "$out" "$err")"
}
# says FILE LINES: sorted, these are all lines.
says() {
  [[ $(sort "$1") == "$2" ]] || wrong "$3: $(head -c 2000 "$1") instead of $2"
}

# until_true COMMAND...: waits until it succeeds, on a machine that may be loaded.
until_true() {
  local end=$((SECONDS + 60))
  until "$@"; do
    ((SECONDS < end)) || { wrong "never: $*"; return 1; }
    sleep 0.05
  done
}
# A zombie, which may not have been reaped yet, does not run.
runs() { [[ -r /proc/$1/stat && $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) == [^ZX]* ]]; }
gone() { ! runs "$1"; }
state() { [[ $(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null) == "$2" ]]; }
lines() { [[ -e $2 && $(wc -l <"$2") -ge $1 ]]; }

# begin ARGUMENTS...: in the background as pid $run; ranks append their pids to $folder/pids. Without env, programs that
# a script starts in the background ignore SIGINT and SIGQUIT.
begin() {
  : >"$folder/pids"
  env --default-signal "$tutti" run "$@" >"$out" 2>"$err" </dev/null &
  run=$!
}
ended() {
  local status=$1 got=0
  shift
  until_true gone "$run" || kill -KILL "$run"
  { wait "$run"; } 2>/dev/null || got=$?
  ((got == status)) || wrong "$*: exit status $got instead of $status: $(head -c 2000 "$out" "$err")"
  local pid
  while read -r pid; do until_true gone "$pid" || kill -KILL "$pid"; done <"$folder/pids"
}
export pids=$folder/pids err
# Each rank with a child that would outlive it.
readonly quiet='sleep 600 & echo $! >>"$pids"; echo $$ >>"$pids"; wait'
readonly deaf='trap "" INT TERM HUP; (while :; do sleep 1; done) & echo $! >>"$pids"; echo $$ >>"$pids"; while :; do wait; done'

# Variables: one job, with a port and a secret that no other job has.
expect 0 -n 3 -- bash -c 'echo $TUTTI_RANK $TUTTI_WORLD_SIZE $TUTTI_LOCAL_RANK $TUTTI_LOCAL_SIZE'
says "$out" $'0 3 0 3\n1 3 1 3\n2 3 2 3' 'variables'
readonly show='echo $TUTTI_ROOT $TUTTI_SECRET; while [[ ! -e $go ]]; do sleep 0.05; done'
export go=$folder/go
for i in {1..8}; do "$tutti" run -n 2 bash -c "$show" >"$folder/job$i" </dev/null & done
for i in {1..8}; do until_true lines 2 "$folder/job$i"; done
touch "$go"
wait
for i in {1..8}; do
  [[ $(sort -u "$folder/job$i") =~ ^127\.0\.0\.1:[1-9][0-9]*\ [0-9a-f]{64}$ ]] || wrong "root and secret: $(cat "$folder/job$i")"
done
[[ $(cat "$folder"/job? | cut -d ' ' -f 1 | sort -u | wc -l) == 8 ]] || wrong 'two jobs have one port'
[[ $(cat "$folder"/job? | cut -d ' ' -f 2 | sort -u | wc -l) == 8 ]] || wrong 'two jobs have one secret'
TUTTI_SECRET=mine TUTTI_RANK=7 expect 0 -n 1 --bind core -- bash -c 'echo $TUTTI_SECRET $TUTTI_RANK $TUTTI_BIND; export -p | grep -c TUTTI_RANK'
says "$out" $'1\nmine 0 core' 'what is set already'
# They form a job, also beside each other.
"$tutti" run -n 2 "$tutti" topo >"$folder/beside" 2>&1 </dev/null &
expect 0 -n 2 "$tutti" topo
wait $! || wrong "a job beside another: $(cat "$folder/beside")"
grep -q 'ranks 0-1' "$out" || wrong "no job: $(cat "$out" "$err")"
# The ranks inherit nothing from the launcher. timeout(1) changes signals as well.
expect 0 -n 2 grep -E 'SigBlk|SigIgn' /proc/self/status
says "$out" "$(for i in 1 2; do timeout 100 grep -E 'SigBlk|SigIgn' /proc/self/status; done | sort)" 'signals of ranks'
expect 0 -n 2 bash -c 'ulimit -Sn'
says "$out" "$(for i in 1 2; do ulimit -Sn; done)" 'limits of ranks'
expect 0 -n 2 bash -c 'exec ls /proc/self/fd'
says "$out" "$(for i in 1 2; do bash -c 'exec ls /proc/self/fd' </dev/null; done | sort)" 'descriptors of ranks'

# The program's own arguments, with and without "--".
expect 0 -n 1 --no-label printf '<%s>\n' -n 2 -- '[1,2]' '' --help
says "$out" $'<-->\n<--help>\n<-n>\n<2>\n<>\n<[1,2]>' 'arguments'
expect 0 -n1 --grace=1 -- printf '<%s>\n' -n -- run
says "$out" $'<-->\n<-n>\n<run>' 'arguments behind --'
expect 2 -n 2
expect 2 -n 2 --
expect 2 true
expect 2 -n 0 true
expect 2 -n 2 --nonsense true
# Like mpirun; for its other options, the fix.
expect 0 -np 2 -- true
expect 0 --np 2 -- true
expect 2 -n 2 --bind-to core true
grep -q 'unknown option --bind-to; is --bind meant?' "$err" || wrong "--bind-to: $(<"$err")"
expect 2 -n 2 -x A=1 true
grep -q 'tutti run: -x: ranks get the environment' "$err" || wrong "-x: $(<"$err")"
expect 2 -n 2 --host a,b true
grep -q 'on this machine only; for several machines take mpirun' "$err" || wrong "--host: $(<"$err")"
expect 2 -n 2 --bind socket true
expect 2 -n 2 --label --no-label true
expect 2 -n 2 --grace -1 true
expect 0 --help
grep -q 'Example: tutti run -n' "$out" && grep -q 'Exit status: 0 ' "$out" || wrong 'no example or no exit statuses in --help'

# Exit statuses, and one line that names the rank.
expect 0 -n 3 true
[[ ! -s $err && ! -s $out ]] || wrong 'a run without an error speaks'
expect 3 -n 3 --no-label -- bash -c '[[ $TUTTI_RANK != 1 ]] || exit 3'
says "$err" 'tutti run: rank 1 has ended with exit status 3' 'a failure'
expect 139 -n 2 -- bash -c 'ulimit -c 0; [[ $TUTTI_RANK != 1 ]] || kill -SEGV $$'
says "$err" 'tutti run: rank 1 was ended by signal 11 (Segmentation fault)' 'a signal'
# The rank that fails first counts, not the first in order, and the other ranks get their grace time.
expect 5 -n 3 --grace 60 -- bash -c 'case $TUTTI_RANK in 0) while [[ ! -s $err ]]; do sleep 0.05; done; echo late; exit 9 ;; 2) exit 5 ;; esac'
says "$out" late 'a rank that ends within the grace period'
export up=$folder/up
readonly fails='[[ $TUTTI_RANK != 1 ]] || { while [[ ! -e $up ]]; do sleep 0.05; done; exit 7; }; '
expect 7 -n 2 --grace 2 -- bash -c "$fails"'trap "echo told; exit 0" TERM; touch "$up"; while :; do sleep 0.05; done'
says "$out" told 'SIGTERM behind the grace period'
expect 7 -n 2 --grace 0.3 -- bash -c "$fails"'trap "" TERM; while :; do sleep 0.05; done'
expect 7 -n 2 --grace 0 --keep-going -- bash -c '[[ $TUTTI_RANK != 1 ]] || exit 7; sleep 1; echo through'
says "$out" through '--keep-going'

# The error about a program that cannot be started is printed once.
echo '#!/no/such/interpreter' >"$folder/script"
chmod +x "$folder/script"
(cd "$folder" && touch here && expect 127 -n 1 here; exit "$failed") || failed=1
grep -q '^tutti run: here: not found in any folder of PATH; is \./here meant?$' "$err" || wrong "here: $(<"$err")"
for case in '127 no-such-program' "127 $folder/none" "126 $folder" "126 $folder/out" "126 $folder/script"; do
  read -r status program <<<"$case"
  expect "$status" -n 4 "$program"
  [[ $(wc -l <"$err") == 1 ]] && grep -q "^tutti run: $program: " "$err" || wrong "$program: $(cat "$err")"
done

# Output: labels, whole lines, separate streams, a last line without an end.
export said=$folder/said
expect 0 -n 2 --label -- bash -c 'echo to out; echo to err >&2;
  [[ $TUTTI_RANK == 1 ]] && touch "$said" || { while [[ ! -e $said ]]; do sleep 0.05; done; printf rest; }'
says "$out" $'[0] rest\n[0] to out\n[1] to out' 'labelled output'
says "$err" $'[0] to err\n[1] to err' 'labelled errors'
[[ $(tail -c 4 "$out") == rest ]] || wrong 'a line that has not ended was changed'
expect 0 -n 2 -- echo plain
says "$out" $'plain\nplain' 'a file has no labels unless they are asked for'
expect 0 -n 1 --label -- echo one
says "$out" '[0] one' 'the label of a single rank'
expect 0 -n 4 --label -- bash -c 'for ((i = 0; i < 3000; ++i)); do printf "line of "; echo $TUTTI_RANK; done'
[[ $(sort "$out" | uniq -c | tr -s ' ') == "$(for i in 0 1 2 3; do echo " 3000 [$i] line of $i"; done)" ]] || wrong 'lines are mixed'
# Closed standard streams: the ranks run to their end, and a file that they open does not become one of these streams.
for closed in '2>&-' '1>&-' '0<&-' '0<&- 1>&- 2>&-'; do
  rm -f "$folder/done"
  got=0
  # shellcheck disable=SC2016  # the inner shell's
  sh -c "exec $closed"'; exec "$@"' sh timeout -k 1 100 "$tutti" run -n 2 -- bash -c 'echo out; echo err >&2; sleep 0.3
    echo done >>"$0"; [[ $(readlink /proc/self/fd/{0,1,2} | grep -c done) == 0 ]]' "$folder/done" >"$out" 2>"$err" || got=$?
  ((got == 0)) || wrong "tutti run $closed: exit status $got"
  [[ $(cat "$folder/done") == $'done\ndone' ]] || wrong "tutti run $closed: the ranks did not run to their end"
done
# A line without an end, and a reader that does not read, do not use memory. A rank checks the launcher's peak.
export peak=$folder/peak
readonly look='sed -n "s/VmHWM:[^0-9]*\([0-9]*\) kB/\1/p" /proc/$PPID/status >"$peak"'
is_small() { [[ -s $peak && $(<"$peak") -lt 600000 ]]; }
bytes=$("$tutti" run -n 2 -- bash -c "[[ \$TUTTI_RANK == 0 ]] || { head -c 1G /dev/zero; $look; }" | wc -c)
[[ $bytes == $((1 << 30)) ]] && is_small || wrong "an endless line: $bytes bytes, $(<"$peak") kB of memory"
rm "$peak"
"$tutti" run -n 2 --label -- bash -c "[[ \$TUTTI_RANK != 0 ]] || exec yes; sleep 1; $look; exec sleep 600" | until_true test -s "$peak"
[[ ${PIPESTATUS[0]} == 141 ]] && is_small || wrong "a reader that does not read: $(<"$peak") kB of memory"
: >"$folder/pids"
"$tutti" run -n 2 --grace 1 -- bash -c 'trap "" TERM PIPE; echo $$ >>"$pids"; while :; do echo more; done' 2>"$err" | head -n 1 >"$out"
[[ ${PIPESTATUS[0]} == 141 && ! -s $err ]] || wrong "without a reader: $(cat "$err")"
while read -r pid; do until_true gone "$pid"; done <"$folder/pids"
[[ ! -e /dev/full ]] || { "$tutti" run -n 2 echo x >/dev/full 2>"$err"; [[ $? == 1 ]] && grep -q 'cannot write' "$err" || wrong '/dev/full'; }
expect 0 -n 2 --output "$folder/made/here" -- bash -c 'echo out $TUTTI_RANK; printf "err $TUTTI_RANK" >&2'
for rank in 0 1; do
  [[ $(cat "$folder/made/here/rank$rank.out") == "out $rank" && $(cat "$folder/made/here/rank$rank.err") == "err $rank" ]] ||
    wrong "--output: $(head "$folder"/made/here/*)"
done
[[ ! -s $out && ! -s $err ]] || wrong '--output leaves something'
# Output of more ranks of an earlier run is removed; other files are kept.
touch "$folder/made/here/rank7.out" "$folder/made/here/rank7.err" "$folder/made/here/rank.out" "$folder/made/here/rank7.outer"
expect 0 -n 1 --output "$folder/made/here" -- true
[[ $(cd "$folder/made/here" && echo *) == 'rank.out rank0.err rank0.out rank7.outer' ]] ||
  wrong "files of an earlier run: $(ls "$folder/made/here")"
expect 1 -n 2 --output "$folder/out/under-a-file" true

# Input goes to rank 0.
got=$(printf 'one\ntwo' | "$tutti" run -n 2 --label cat)
[[ $got == $'[0] one\n[0] two' ]] || wrong "input: $got"

# Signals reach the ranks and the processes that they have started; the run then ends with them.
for signal in INT:130 TERM:143 HUP:129; do
  begin -n 2 bash -c "$quiet"
  until_true lines 4 "$folder/pids"
  kill -s "${signal%:*}" "$run"
  ended "${signal#*:}" "SIG${signal%:*}"
  [[ ! -s $err ]] || wrong "SIG${signal%:*}: $(cat "$err")"
  begin -n 2 --grace 0.5 bash -c "$deaf"
  until_true lines 4 "$folder/pids"
  kill -s "${signal%:*}" "$run"
  ended "${signal#*:}" "SIG${signal%:*} to ranks that ignore it"
done
for signal in QUIT USR1 USR2; do
  begin -n 2 bash -c "trap 'echo got $signal; exit 0' $signal; echo \$\$ >>\"\$pids\"; while :; do sleep 0.05; done"
  until_true lines 2 "$folder/pids"
  kill -s $signal "$run"
  ended 0 "SIG$signal"
  says "$out" "got $signal"$'\n'"got $signal" "SIG$signal"
done
begin -n 2 bash -c "$quiet"
until_true lines 4 "$folder/pids"
kill -TSTP "$run"
for pid in $run $(cat "$folder/pids"); do until_true state "$pid" T; done
kill -CONT "$run"
for pid in $run $(cat "$folder/pids"); do until_true state "$pid" S; done
kill -TERM "$run"
ended 143 'SIGTSTP and SIGCONT'
# A signal that was ignored when the launcher was started does nothing, as with nohup.
: >"$folder/pids"
(trap '' HUP; exec "$tutti" run -n 2 bash -c 'echo $$ >>"$pids"; sleep 1; echo whole') >"$out" 2>"$err" </dev/null &
run=$!
until_true lines 2 "$folder/pids"
kill -HUP "$run"
ended 0 'an ignored SIGHUP'
says "$out" $'whole\nwhole' 'an ignored SIGHUP'

# Ranks die with a launcher that is killed.
begin -n 3 bash -c 'echo $$ >>"$pids"; exec sleep 600'
until_true lines 3 "$folder/pids"
kill -KILL "$run"
ended 137 SIGKILL

# A rank that has left its group is still a rank.
readonly leaves='import os, sys, time
rank = os.getpid()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    while os.getppid() == rank:
        time.sleep(0.05)
    os._exit(0)
while os.getpgid(child) != child:
    time.sleep(0.01)
os.setpgid(0, child)
open(os.environ["pids"], "a").write(f"{os.getpid()}\n")
if len(sys.argv) > 1:
    time.sleep(600)
sys.exit(4)'
: >"$folder/pids"
expect 4 -n 2 python3 -c "$leaves"
begin -n 1 python3 -c "$leaves" stays
until_true lines 1 "$folder/pids"
kill -TERM "$run"
ended 143 'a rank in another group'

# The time limit.
begin -n 2 --timeout 0.7 bash -c "$quiet"
ended 124 --timeout
grep -q 'not ended after 0.7 s' "$err" || wrong "--timeout: $(cat "$err")"
begin -n 2 --timeout 0.7 --grace 0.2 bash -c "$deaf"
ended 124 '--timeout, and ranks that ignore SIGTERM'
# Processes that ranks leave behind may finish, and are then ended.
expect 0 -n 2 -- bash -c '(sleep 0.5; echo later) & true'
says "$out" $'later\nlater' 'what a rank has started'
begin -n 2 --grace 60 bash -c 'setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >"$said$TUTTI_RANK"'
ended 0 'ranks that leave a daemon'
for rank in 0 1; do
  runs "$(<"$said$rank")" && kill "$(<"$said$rank")" || wrong 'a daemon was ended'
done
begin -n 2 --grace 0.3 bash -c 'sleep 600 & echo $! >>"$pids"'
ended 0 'what ranks leave behind'

exit $failed
