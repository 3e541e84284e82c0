#!/bin/bash
# tutti doctor on hosts with problems: lowered limits, namespaces with another network, other mounts, or no mounts.
# Usage: doctor_test.sh TUTTI
# If the system does not permit namespaces, cases that need them are skipped, with a line that says so.
set -euo pipefail
tutti=$(realpath "$1")
failed=0
folder=$(mktemp -d)
out=$folder/out
trap 'rm -rf "$folder"' EXIT
for name in $(env | sed -nE 's/^((TUTTI|SLURM|PMI|PMIX|OMPI)_[A-Za-z_]*)=.*/\1/p'); do unset "$name"; done
unset RANK WORLD_SIZE HWLOC_XMLFILE HWLOC_SYNTHETIC

# says STATUS PATTERN COMMAND...: the exit status, and a line of the output.
says() {
  local status=$1 pattern=$2 got=0
  shift 2
  "$@" >"$out" 2>&1 || got=$?
  if ((got != status)) || ! grep -qE -e "$pattern" "$out"; then
    echo "$*: exit status $got instead of $status, or no line \"$pattern\" in:"
    cat "$out"
    failed=1
  fi
}

# The same after a shell command, such as a lower limit.
after() { says "$2" "$3" bash -c "$1; \"\$@\"" after "${@:4}"; }

json() {
  python3 -c "import json, sys; j = json.load(open(sys.argv[1])); assert $1, j" "$out" || failed=1
}

says 2 'nonsense' "$tutti" doctor --nonsense
says 2 'subcommand|nonsense|not expected' "$tutti" doctor nonsense
says 2 '0' "$tutti" doctor -n 0
says 0 '^2 ranks can run on this host$' "$tutti" doctor -n 2
says 0 '^ok    shared memory: memfd_create\(2\) works' "$tutti" doctor
says 0 '^ok    TCP port: .* was bound and connected to' "$tutti" doctor
says 0 '^ok    encryption: TCP connections are not encrypted' "$tutti" doctor
says 0 '^ok    encryption: all TCP connections \(TLS 1\.3\), by .*RDMA is not used' env TUTTI_ENCRYPT=on "$tutti" doctor
says 0 '^ok    encryption: TCP connections that leave the networks' env TUTTI_ENCRYPT=wan "$tutti" doctor
says 0 '^ok    topology: ' "$tutti" doctor
says 0 '^ok    wall clock: ' "$tutti" doctor
says 0 '"format": "tutti doctor"' "$tutti" doctor --json -n 2
json "j['problem'] is False and len(j['checks']) >= 14"
json "all(c['verdict'] in ('ok', 'warning') and c['found'] for c in j['checks'])"
json "all(c['fix'] for c in j['checks'] if c['verdict'] != 'ok')"
says 1 '"format": "tutti doctor"' env TUTTI_BIND=socket "$tutti" doctor --json
json "j['problem'] is True"
json "[c['verdict'] for c in j['checks'] if c['check'] == 'TUTTI_BIND'] == ['problem']"

# Settings and launchers.
says 1 '^FAIL  TUTTI_BIND: TUTTI_BIND="socket" is not none, core or numa\. Fix: ' env TUTTI_BIND=socket "$tutti" doctor
says 0 '^warn  TUTTI_SOCKET_IFNAME: .*did you mean TUTTI_INTERFACE' env TUTTI_SOCKET_IFNAME=eth0 "$tutti" doctor
says 1 '^FAIL  interface: no interface with an address matches "nosuch" \(TUTTI_INTERFACE or config\.interface\)\. Available: .*Fix: ' \
  env TUTTI_INTERFACE=nosuch "$tutti" doctor
says 1 '^FAIL  launcher: plain \(rank \? of 2\): that is not usable\. Fix: ' \
  env TUTTI_RANK=-1 TUTTI_WORLD_SIZE=2 "$tutti" doctor
says 1 '^FAIL  launcher: two launchers contradict each other: plain \(rank 1 of 2\) .* torchrun \(rank 0 of 2\)' \
  env TUTTI_RANK=1 TUTTI_WORLD_SIZE=2 RANK=0 WORLD_SIZE=2 "$tutti" doctor
says 0 '^warn  launcher: slurm .*an allocation without a started rank.*srun' env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 \
  "$tutti" doctor

# Limits.
after 'ulimit -n 64' 1 '^FAIL  open files: each of 4 ranks may need .* the hard one 64.*Fix: ulimit -n' \
  "$tutti" doctor -n 4
after 'ulimit -n 4' 1 '^FAIL  TCP port: .*Too many open files .*Fix: raise the limit that is named there$' "$tutti" doctor
after 'ulimit -n 64' 1 '^4 ranks cannot run on this host$' "$tutti" doctor -n 4
after 'ulimit -f 100' 1 '^FAIL  shared memory: .*RLIMIT_FSIZE' "$tutti" doctor -n 2
says 0 "^warn  processors: .*: 999 ranks take turns" "$tutti" doctor -n 999
if command -v setpriv >/dev/null && setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock true 2>/dev/null; then
  if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
    after 'ulimit -l 0' 0 '^warn  memory lock limit: 0 KiB: room for 0 links.*only RDMA needs it.*Fix: ulimit -l' \
      setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$tutti" doctor -n 2
  fi
else
  echo 'left out: the memory lock limit, as CAP_IPC_LOCK cannot be given up'
fi

# Calls that a filter refuses, as in containers. refusing NUMBER COMMAND...: the system call fails with EPERM.
cat >"$folder/refusing.py" <<'PYTHON'
import ctypes, os, platform, struct, sys

assert platform.machine() == 'x86_64'
LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050001
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in [
    (LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, int(sys.argv[1])), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]))
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.create_string_buffer(program)) != 0:
    sys.exit(77)
os.execvp(sys.argv[2], sys.argv[2:])
PYTHON
if python3 "$folder/refusing.py" 310 true; then
  says 0 "^warn  reading other ranks' memory: process_vm_readv\(2\): Operation not permitted.*Fix: sysctl" \
    python3 "$folder/refusing.py" 310 "$tutti" doctor -n 2
  says 0 "^ok    reading other ranks' memory: TUTTI_CROSS_MEMORY=never" env TUTTI_CROSS_MEMORY=never \
    python3 "$folder/refusing.py" 310 "$tutti" doctor -n 2
  says 1 '^FAIL  shared memory: memfd_create: Operation not permitted\. Fix: allow memfd_create' \
    python3 "$folder/refusing.py" 319 "$tutti" doctor -n 2
else
  echo 'left out: filters of system calls, which may not be made'
fi

# Another host, made of namespaces. in_namespaces UNSHARE_OPTIONS SETUP STATUS PATTERN COMMAND...
in_namespaces() { says "$3" "$4" unshare $1 bash -c "$2 && exec \"\$@\"" in_namespaces "${@:5}"; }
if unshare -m true 2>/dev/null; then
  in_namespaces -m 'mount -t tmpfs -o size=64k tmpfs /dev/shm' 0 '^warn  /dev/shm: 64 KiB of 64 KiB.*Fix: mount -o' \
    "$tutti" doctor -n 2
  # Ranks run nevertheless.
  in_namespaces -m 'mount -t tmpfs -o size=64k tmpfs /dev/shm' 0 'ok    shared memory' "$tutti" doctor -n 2
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$folder/hosts"
  if [[ -n $(ip -o -4 addr show up scope global 2>/dev/null) ]]; then
    in_namespaces -m "mount --bind '$folder/hosts' /etc/hosts" 0 \
      "^warn  host name: $(hostname) is 127\.0\.1\.1 here, loopback.*Fix: in /etc/hosts, give $(hostname) the address" \
      "$tutti" doctor -n 2
  fi
  printf '127.0.0.1 localhost\n203.0.113.9 %s\n' "$(hostname)" >"$folder/hosts"
  in_namespaces -m "mount --bind '$folder/hosts' /etc/hosts" 0 \
    "^warn  host name: $(hostname) is 203\.0\.113\.9 here, but ranks listen at other addresses" "$tutti" doctor -n 2
else
  echo 'left out: mounts of its own, which may not be made'
fi
if unshare -n true 2>/dev/null && command -v ip >/dev/null; then
  in_namespaces -n 'true' 1 '^FAIL  interface: this host has no interface with an IPv4 or IPv6 address\. Fix: ' \
    "$tutti" doctor -n 2
  in_namespaces -n 'ip link set lo up' 0 '^warn  interface: lo, 127\.0\.0\.1, there is no other' "$tutti" doctor -n 2
  # Without a loopback device, packets that this host sends to itself do not arrive: as if a packet filter dropped them.
  in_namespaces -n 'ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up &&
    ip addr add 10.234.9.1/24 dev d0' 1 \
    '^FAIL  TCP port: listening works, but a connection to .*10\.234\.9\.1:[0-9]+ has no answer within 3 s\. Fix: let' \
    "$tutti" doctor -n 2
else
  echo 'left out: a network of its own, which may not be made'
fi
exit "$failed"
