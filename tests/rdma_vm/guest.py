"""One guest: its QEMU process, its output, its end."""

import ctypes
import pathlib
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
CONSOLE_TAIL_LINES = 60
KERNEL_OPTIONS = [
    "console=ttyS0",
    "loglevel=5",  # each character on the serial line leaves the emulation
    "panic=-1",  # restart at once, which -no-reboot turns into QEMU's end: a panic ends the guest without a status
    "oops=panic",  # a process that dies in the kernel would leave others waiting
    "nowatchdog",  # an emulated processor may pause for seconds
    "mitigations=off",  # slow under emulation, and the host's responsibility
    "tsc=reliable",  # the test of the clock fails if emulated processors share one, and a slow clock is used
]


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# Features that are fast on a processor and slow when emulated are left out: copies by one long instruction, and
# carry-less multiplication, with which the kernel would compute the check sum of each RoCE packet. ib_write_bw is 2.5
# times as fast.
CPU = "max,-erms,-fsrm,-pclmulqdq"


def numa_options(nodes, memory_mib, cpus):
    """The memory and the processors of a guest in `nodes` equal parts."""
    options = []
    for node in range(nodes):
        first, last = node * cpus // nodes, (node + 1) * cpus // nodes - 1
        options += ["-object", f"memory-backend-ram,id=memory{node},size={memory_mib // nodes}M",
                    "-numa", f"node,nodeid={node},memdev=memory{node},cpus={first}-{last}"]
    return options


class Guest:
    """Started by the constructor; `wait` or `kill` must follow. `shared` is the folder that guests and rig write;
    `wires` are sockets whose other ends another guest has."""

    def __init__(self, index, kernel, initrd, shared, prefix, options, wires=()):
        self.index = index
        self.shared = shared
        self.console = pathlib.Path(f"{shared}.console.{index}")
        self.began = time.time()
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            # No KVM: the rig behaves the same everywhere, and build machines rarely have it.
            "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp",
            f"{options.cpus},sockets={options.sockets}", "-m", f"{options.memory}M",
            "-kernel", str(kernel.image), "-initrd", str(initrd),
            "-append", " ".join(KERNEL_OPTIONS + [f"rdma_vm.guest={index}"]),
            "-serial", f"file:{self.console}",
            # multidevs: the host's root may be of several file systems, whose inode numbers must not clash.
            "-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={shared},mount_tag=shared,security_model=none",
            "-device", "virtio-serial-pci", "-chardev", "file,id=output,path=/dev/stdout",
            "-device", "virtserialport,chardev=output,name=output",
        ]
        if options.numa > 1:
            command += numa_options(options.numa, options.memory, options.cpus)
        for number, wire in enumerate(wires):
            command += ["-netdev", f"socket,id=net{number},fd={wire.fileno()}",
                        "-device", f"virtio-net-pci,netdev=net{number},romfile=,mac=52:54:00:77:{number:02}:{index:02}"]
        # The process is this one's child and ends with it.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
                                        pass_fds=[w.fileno() for w in wires])
        self.forwarder = threading.Thread(target=self.forward, args=(prefix,), daemon=True)
        self.forwarder.start()

    def forward(self, prefix):
        """Copies the guest's output to ours, line by line."""
        for line in self.process.stdout:
            sys.stdout.buffer.write(prefix + line)
            sys.stdout.buffer.flush()

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        if not self.ended():
            self.process.kill()
        self.process.wait()
        self.forwarder.join(timeout=5)

    def status(self):
        """The program's exit status, or None if the guest has ended otherwise. REQUIRES: it has ended."""
        self.forwarder.join(timeout=5)
        file = self.shared / f"status.{self.index}"
        return int(file.read_text()) if file.is_file() else None

    def console_tail(self):
        text = self.console.read_text(errors="replace") if self.console.is_file() else ""
        lines = text.replace("\r", "").splitlines()
        return "\n".join(lines[-CONSOLE_TAIL_LINES:]) or "(the console is empty)"
