#!/bin/bash
# Makes each typical mistake and compares the messages with docs/troubleshooting.md.
# Usage: mistakes_test.sh TUTTI RANK_PROGRAM OTHER_PROGRAM DOCUMENT
# OTHER_PROGRAM: the same with the library of version 9.8.7. In the document, each section's block has the expected lines,
# with <...> for text that differs from run to run.
set -euo pipefail
tutti=$1 program=$2 other_program=$3 document=$4
failed=0
folder=$(mktemp -d)
out=$folder/out
trap 'rm -rf "$folder"' EXIT
for name in $(env | sed -nE 's/^((TUTTI|SLURM|PMI|PMIX|OMPI)_[A-Za-z_]*)=.*/\1/p'); do unset "$name"; done
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LD_LIBRARY_PATH
export TUTTI_INIT_TIMEOUT_MS=6000 TUTTI_TIMEOUT_MS=20000 TUTTI_WAIT_NOTICE_MS=2000

free_port() {
  python3 "$(dirname "$0")/../free_port.py"
}

# rank RANK SIZE COMMAND...: a rank with plain variables, beside other ranks of this job.
ranks=()
rank() {
  TUTTI_RANK=$1 TUTTI_WORLD_SIZE=$2 TUTTI_ROOT=127.0.0.1:$port timeout 100 "${@:3}" >>"$out" 2>&1 &
  ranks+=($!)
}

# A job whose ranks must fail. begin; rank ...; rank ...; failing STATUS COUNT: COUNT ranks end with that status.
begin() {
  : >"$out"
  port=$(free_port)
}
failing() {
  local pid count=0 got all=
  for pid in "${ranks[@]}"; do
    got=0
    wait "$pid" || got=$?
    all+=" $got"
    ((got != $1)) || ((++count))
  done
  ranks=()
  ((count == $2)) || { echo "$count ranks instead of $2 ended with status $1, but$all:"; cat "$out"; failed=1; }
}

# documented TITLE [WITHOUT]: each line of the section's blocks is in the output, except lines with the text WITHOUT,
# which this machine cannot produce.
documented() {
  [[ -z ${2:-} ]] || echo "left out: what has \"$2\""
  python3 - "$document" "$1" "$out" "${2:-}" <<'PYTHON' || failed=1
import re, sys
document, title, out, without = sys.argv[1:]
text = open(document).read()
sections = [s for s in re.split(r'^## ', text, flags=re.M) if s.startswith(title)]
assert len(sections) == 1, f'{document} has not one section "{title}"'
blocks = re.findall(r'^```\n(.*?)^```', sections[0], flags=re.M | re.S)
said = open(out).read()
lines = [line for block in blocks for line in block.splitlines() if not without or without not in line]
assert lines, f'the section "{title}" promises nothing'
for line in lines:
    pattern = '.+'.join(re.escape(part) for part in re.split(r'<[^<>]*>', line))
    if not re.search('^' + pattern + '$', said, flags=re.M):
        sys.exit(f'"{title}" promises\n  {line}\nwhich was not said:\n{said}')
PYTHON
}

# 1: a rank that does not exist, and the same rank twice.
begin
rank 2 2 "$program"
failing 1 1
port=$(free_port)
for r in 0 1 1; do rank "$r" 3 "$program"; done
failing 1 3
port=$(free_port)
rank 0 2 "$program"
sleep 0.5
rank 0 2 "$program"
failing 1 2
documented 'A wrong rank'

# 2: no launcher.
begin
"$program" >"$out" 2>&1 && failed=1
documented 'No launcher'

begin
TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 RANK=1 WORLD_SIZE=2 "$program" >"$out" 2>&1 && failed=1
timeout 100 "$tutti" run -n 2 -- sh -c 'RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$1"; exit $?' alone \
  "$program" >>"$out" 2>&1 || true
documented 'Two launchers'

# 3: Slurm's batch script without srun.
begin
SLURM_JOB_ID=77 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_NODELIST=n1 "$program" >"$out" 2>&1 && failed=1
SLURM_JOB_ID=77 SLURM_NNODES=2 SLURM_PROCID=0 SLURM_JOB_NODELIST='n[1-2]' "$program" >>"$out" 2>&1 && failed=1
documented 'sbatch without srun'

# 4: a rank that is not started, and rank 0.
begin
rank 0 3 "$program"
rank 1 3 "$program"
failing 1 2
port=$(free_port)
rank 1 2 "$program"
failing 1 1
documented 'A forgotten rank'

# 5: counts that differ.
begin
rank 0 2 "$program" 4
rank 1 2 "$program" 5
failing 1 2
documented 'Different counts'

# A rank whose program ends without tuttiCommDestroy.
begin
rank 0 2 "$program"
rank 1 2 "$program" exit
failing 1 1
documented 'A rank that has ended'

# 6: an unreachable port: a host that does not answer.
if unshare -n true 2>/dev/null && command -v ip >/dev/null; then
  begin
  unshare -n bash -c "ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up &&
    ip addr add 10.234.9.1/24 dev d0 &&
    TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 TUTTI_ROOT=10.234.9.2:29400 exec '$program'" >"$out" 2>&1 && failed=1
  documented 'A closed port'
else
  echo 'left out: a closed port, since a network of its own may not be made'
fi

# 7: an interface that does not exist; another library's name for the variable.
begin
TUTTI_INTERFACE=ib7 rank 0 2 "$program"
TUTTI_INTERFACE=ib7 rank 1 2 "$program"
failing 1 2
TUTTI_SOCKET_IFNAME=eth0 TUTTI_RANK=0 TUTTI_WORLD_SIZE=1 "$program" >>"$out" 2>&1 || failed=1
without=' ib7: down'
if unshare -n true 2>/dev/null && command -v ip >/dev/null; then
  without=
  unshare -n bash -c "ip link set lo up && ip link add ib7 type veth peer name d1 &&
    TUTTI_INTERFACE=ib7 TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 TUTTI_ROOT=127.0.0.1:29400 exec '$program'" >>"$out" 2>&1 &&
    failed=1
fi
documented 'A wrong interface' "$without"

# 8: too few open files.
begin
(
  ulimit -n 10
  rank 0 2 "$program"
  rank 1 2 "$program"
  failing 1 2
  exit "$failed"
) || failed=1
(ulimit -n 64 && "$tutti" doctor -n 4) >>"$out" 2>&1 && failed=1
documented 'Too few open files'

# 9: too little memory that may be locked. Only a host without RDMA devices says that it does not matter.
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]] &&
  setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock true 2>/dev/null; then
  (ulimit -l 64 && setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$tutti" doctor -n 2) >"$out" 2>&1 || failed=1
  documented 'Too little locked memory'
else
  echo 'left out: the limit of locked memory, as CAP_IPC_LOCK cannot be given up, or there are RDMA devices'
fi

# 10: two versions of the library.
begin
rank 0 2 "$program"
rank 1 2 "$other_program"
failing 1 2
documented 'Different versions'
((failed == 0)) || ldd "$program" "$other_program" | grep libtutti
exit "$failed"
