"""The guests' kernel: which of /boot, its first file system, and the soft-iWARP driver built for it."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import subprocess

BUSYBOX = pathlib.Path("/bin/busybox")
# The modules that the first process needs to mount the host's files; the host's own modprobe loads all others from
# there. virtio_console carries the output of the programs.
FIRST_MODULES = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"]
SIW_SOURCE = "drivers/infiniband/sw/siw"
SIW_HEADER = "include/uapi/rdma/siw-abi.h"


class Unavailable(Exception):
    """Something that must be installed is not."""


@contextlib.contextmanager
def alone(lock):
    """Held by one process at a time: of tests that begin together, the first makes what all need."""
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Kernel:
    def __init__(self, release):
        self.release = release
        self.image = pathlib.Path("/boot") / f"vmlinuz-{release}"
        self.modules = pathlib.Path("/lib/modules") / release

    @staticmethod
    def newest():
        """The newest kernel of /boot whose modules are installed with it and have soft-RoCE. The running kernel
        may be another."""
        kernels = [Kernel(p.name.removeprefix("vmlinuz-")) for p in pathlib.Path("/boot").glob("vmlinuz-*")]
        kernels = [k for k in kernels if (k.modules / "modules.dep").is_file() and k.has_rxe()]
        if not kernels:
            raise Unavailable("no kernel with the module rdma_rxe in /boot and /lib/modules (linux-image-amd64)")
        return max(kernels, key=lambda k: [int(n) for n in re.findall(r"\d+", k.release)])

    def has_rxe(self):
        return any((self.modules / "kernel/drivers/infiniband/sw/rxe").glob("rdma_rxe.ko*"))

    def load_order(self, names):
        """Paths of the modules `names` with what they depend on, dependencies first."""
        paths = []
        for name in names:
            shown = subprocess.run(["modprobe", "-S", self.release, "--show-depends", name], check=True, text=True,
                                   capture_output=True).stdout
            # A line is "insmod PATH OPTIONS", or "builtin NAME".
            paths += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
        return list(dict.fromkeys(paths))

    def build_initrd(self, cache, init):
        """An uncompressed archive (an emulated processor unpacks slowly) of a static busybox, the first modules and
        the script `init`. Returns its path in the folder `cache`, where it is made once per kernel and script."""
        if not BUSYBOX.is_file():
            raise Unavailable(f"no {BUSYBOX} (busybox-static)")
        paths = self.load_order(FIRST_MODULES)
        content = init.read_bytes() + BUSYBOX.read_bytes() + "\n".join(paths).encode()
        archive = cache / f"initrd-{self.release}-{hashlib.sha256(content).hexdigest()[:16]}"
        if archive.is_file():
            return archive
        root = cache / f"initrd.{os.getpid()}"
        (root / "bin").mkdir(parents=True)
        (root / "modules").mkdir()
        (root / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
        (root / "init").write_bytes(init.read_bytes())
        for program in ("bin/busybox", "init"):
            (root / program).chmod(0o755)
        for path in paths:
            (root / "modules" / os.path.basename(path)).write_bytes(pathlib.Path(path).read_bytes())
        (root / "modules.order").write_text("".join(os.path.basename(p) + "\n" for p in paths))
        unfinished = archive.with_suffix(f".{os.getpid()}")
        names = "".join(f"{p.relative_to(root)}\n" for p in sorted(root.rglob("*")))
        with open(unfinished, "wb") as out:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=out, check=True)
        unfinished.rename(archive)
        subprocess.run(["rm", "-rf", str(root)], check=True)
        return archive

    def build_siw(self, cache):
        """Builds the soft-iWARP driver, which Debian ships as source only. Returns the module's path. Made once per
        kernel; takes half a minute, nearly all of it to unpack the source."""
        module = cache / f"siw-{self.release}.ko"
        with alone(cache / "siw.lock"):
            if not module.is_file():
                self.make_siw(cache, module)
        return module

    def make_siw(self, cache, module):
        version = ".".join(self.release.split(".")[:2])
        source = pathlib.Path(f"/usr/src/linux-source-{version}.tar.xz")
        headers = self.modules / "build"
        for needed, package in ((source, f"linux-source-{version}"), (headers, "linux-headers-amd64")):
            if not needed.exists():
                raise Unavailable(f"no {needed} ({package})")
        tree = cache / f"siw.{os.getpid()}"
        tree.mkdir(parents=True)
        subprocess.run(["tar", "-xJf", str(source), "-C", str(tree), "--strip-components=1",
                        f"linux-source-{version}/{SIW_SOURCE}", f"linux-source-{version}/{SIW_HEADER}"], check=True)
        made = subprocess.run(["make", "-s", "-C", str(headers), f"M={tree / SIW_SOURCE}", "CONFIG_RDMA_SIW=m",
                               f"KCFLAGS=-I{tree / 'include/uapi'}", "modules"], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode != 0:
            raise RuntimeError(f"the soft-iWARP driver cannot be built:\n{made.stdout}")
        (tree / SIW_SOURCE / "siw.ko").rename(module)
        subprocess.run(["rm", "-rf", str(tree)], check=True)
