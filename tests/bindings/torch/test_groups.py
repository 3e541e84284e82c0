"""Process groups: made, split, used in different orders, ended and made again."""

import contextlib
import datetime
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import pytest
import torch
import torch.distributed as dist

import forked
import ranks


def summed(group: dist.ProcessGroup | None, value: float) -> float:
    tensor = torch.full((100,), value)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def test_groups_of_some_ranks() -> None:
    def body(rank: int, size: int) -> None:
        even = dist.new_group([0, 2])
        odd = dist.new_group([1, 3])
        mine = even if rank % 2 == 0 else odd
        assert summed(mine, rank) == (2 if rank % 2 == 0 else 4)
        assert dist.get_rank(mine) == rank // 2
        assert summed(None, rank) == 6
        tensor = torch.full((3,), float(rank))
        dist.broadcast(tensor, 2 if rank % 2 == 0 else 3, group=mine)
        assert tensor[0].item() == (2 if rank % 2 == 0 else 3)
        dist.destroy_process_group(mine)
        assert summed(None, rank) == 6

    ranks.run(4, body)


def opened() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize(("transport", "local"), (("shm", False), ("shm", True), ("tcp", False), ("tcp", True)))
def test_groups_share_connections_and_threads(monkeypatch: pytest.MonkeyPatch, transport: str, local: bool) -> None:
    """200 groups with collectives, messages (over TCP without tags) and callbacks, in 1024 descriptors and no thread."""
    monkeypatch.setenv("TUTTI_TRANSPORTS", transport)
    groups_each = 200
    # Over TCP tutti needs a socket for collectives, and one for each rank's messages.
    descriptors_each = 3 if transport == "tcp" else 0
    # Over TCP messages with tags have two sockets more.
    tags = (0,) if transport == "tcp" else (0, 3)

    def use(group: dist.ProcessGroup, rank: int) -> None:
        assert summed(group, rank) == 1
        future = dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future()
        assert future.then(lambda done: done.value()[0][0].item()).wait() == 2
        for tag in tags:
            send = dist.isend(torch.full((8,), float(rank)), 1 - rank, group=group, tag=tag)
            tensor = torch.zeros(8)
            dist.recv(tensor, 1 - rank, group=group, tag=tag)
            send.wait()
            assert tensor[7].item() == 1 - rank

    def make(rank: int) -> dist.ProcessGroup:
        group = dist.new_group([0, 1], use_local_synchronization=local)
        use(group, rank)
        return group

    def body(rank: int, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        if rank == 2:
            if not local:
                for _ in range(1 + groups_each):
                    dist.new_group([0, 1])
            return dist.barrier()
        # Some resources are created only with the first group.
        groups = [make(rank)]
        before = opened()
        groups += [make(rank) for _ in range(groups_each)]
        after = opened()
        for group in groups:
            use(group, rank)
        for group in groups:
            dist.destroy_process_group(group)
        dist.barrier()
        # Threads that join a pair, and those of callbacks, end a moment later. Each may have an epoll set.
        assert after[1] - before[1] <= 8, (before, after)
        assert after[0] - before[0] <= descriptors_each * groups_each + 8, (before, after)

    ranks.run(3, body)


def test_a_group_outlives_the_default_group() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.new_group([0, 1])
        backend = group._get_backend(torch.device("cpu"))
        dist.barrier()
        dist.group.WORLD._get_backend(torch.device("cpu")).shutdown()
        tensor = torch.full((5,), float(rank))
        backend.allreduce([tensor]).wait()
        assert tensor[0].item() == 1

    ranks.run(2, body)


def test_a_backend_is_split() -> None:
    def body(rank: int, size: int) -> None:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.supports_splitting
        members = [3, 1] if rank % 2 else [0, 2]
        group = dist.group.WORLD.split_group(members, group_name=f"split{rank % 2}")
        tensor = torch.full((5,), float(rank))
        group.allreduce([tensor]).wait()
        assert tensor[0].item() == (4 if rank % 2 else 2)
        # Messages in a group of ranks which have been in different numbers of groups.
        pair = dist.group.WORLD.split_group([0, 1] if rank < 2 else [2, 3], group_name=f"pair{rank // 2}")
        tensor = torch.full((5,), float(rank))
        if rank % 2 == 0:
            pair.send([tensor], 1, 0).wait()
        else:
            pair.recv([tensor], 0, 0).wait()
            assert tensor[0].item() == rank - 1

    ranks.run(4, body)


def test_meshes() -> None:
    def body(rank: int, size: int) -> None:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        assert summed(mesh["data"].get_group(), rank) == (2 if rank % 2 == 0 else 4)
        assert summed(mesh["tensor"].get_group(), rank) == (1 if rank < 2 else 5)

    ranks.run(4, body)


def connections_to(port: int) -> int:
    """The TCP connections of this process to a server at that port."""
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(os.readlink(f"/proc/self/fd/{fd}"))
    found = 0
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(table, encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        found += sum(int(row[2].split(":")[1], 16) == port and f"socket:[{row[9]}]" in inodes for row in rows)
    return found


@pytest.mark.parametrize("splits", (False, True))
def test_new_group_opens_no_connection_to_the_store(splits: bool) -> None:
    """Each connection costs two questions to the DNS, which may take seconds. A split opens one itself, in torch."""

    def make(size: int, i: int) -> dist.ProcessGroup:
        if splits:
            return dist.group.WORLD.split_group(list(range(size)), group_name=f"split{i}")
        return dist.new_group()

    def body(rank: int, folder: str) -> None:
        size = 3
        path = os.path.join(folder, "port")
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)
            with open(path + ".part", "w", encoding="ascii") as file:
                file.write(str(store.port))
            os.rename(path + ".part", path)
        else:
            while not os.path.exists(path):
                time.sleep(0.01)
            with open(path, encoding="ascii") as file:
                store = dist.TCPStore("127.0.0.1", int(file.read()), 3, False)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=3)
        assert summed(None, 1) == 3
        before = connections_to(store.port)
        assert before > 0
        groups = [make(size, i) for i in range(5)]
        for group in groups:
            group.barrier().wait()
        assert connections_to(store.port) - before == (len(groups) if splits else 0)
        dist.barrier()
        dist.destroy_process_group()

    ranks.fork_ranks(3, body)


def test_parts_of_one_split_do_not_see_refusals_of_each_other() -> None:
    def body(rank: int, size: int) -> None:
        part = dist.group.WORLD.split_group([0, 1] if rank < 2 else [2, 3], group_name=f"part{rank // 2}")
        if rank == 0:
            with pytest.raises(RuntimeError, match="share memory"):
                part.allreduce([torch.ones(1).expand(4)])
            time.sleep(2)  # longer than a rank waits before it looks for refusals
        elif rank == 1:
            with pytest.raises(RuntimeError, match="rank 0 refused"):
                part.allreduce([torch.ones(4)]).wait()
        else:
            if rank == 3:
                time.sleep(1)
            tensor = torch.ones(4)
            part.allreduce([tensor]).wait()
            assert tensor[0].item() == 2

    ranks.run(4, body)


def test_groups_are_used_in_different_orders() -> None:
    def body(rank: int, size: int) -> None:
        groups = [dist.new_group() for _ in range(5)]
        order = groups if rank == 0 else groups[::-1]
        tensors = {group: torch.ones(10_000) for group in groups}
        works = [dist.all_reduce(tensors[group], group=group, async_op=True) for group in order]
        for work in works:
            work.wait()
        assert all(tensor[0].item() == size for tensor in tensors.values())

    ranks.run(2, body)


def test_nothing_is_left_of_groups_that_were_destroyed() -> None:
    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def body(rank: int, size: int) -> None:
        def cycle() -> None:
            group = dist.new_group()
            assert summed(group, 1) == size
            dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future().wait()
            dist.send(torch.ones(1), 1, group=group) if rank == 0 else dist.recv(torch.ones(1), 0, group=group)
            dist.destroy_process_group(group)

        for _ in range(3):
            cycle()
        before = counts()
        for _ in range(20):
            cycle()
        after = counts()
        # A thread that has nothing more to do may need a moment to end.
        assert after[0] <= before[0] and after[1] <= before[1] + 2, (before, after)

    ranks.run(2, body)


def test_a_process_has_one_default_group_after_another() -> None:
    def one(rank: int, folder: str) -> None:
        for i in range(3):
            store = dist.FileStore(os.path.join(folder, f"store{i}"), 2)
            dist.init_process_group("tutti", store=store, rank=rank, world_size=2)
            assert summed(None, rank + i) == 1 + 2 * i
            dist.destroy_process_group()

    ranks.fork_ranks(2, one)


class StoreInPython(dist.Store):
    """What gloo needs of a store that a program has written, and no clone()."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__()
        self.file = dist.FileStore(path, size)

    def set(self, key: str, value: bytes) -> None:
        self.file.set(key, value)

    def get(self, key: str) -> bytes:
        return self.file.get(key)

    def add(self, key: str, n: int) -> int:
        return self.file.add(key, n)

    def check(self, keys: list[str]) -> bool:
        return self.file.check(keys)

    def wait(self, keys: list[str], timeout: datetime.timedelta = datetime.timedelta(seconds=60)) -> None:
        self.file.wait(keys, timeout)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.file.set_timeout(timeout)


def test_a_store_written_in_python_needs_no_clone() -> None:
    def one(rank: int, folder: str) -> None:
        store = StoreInPython(os.path.join(folder, "store"), 2)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=2)
        assert summed(dist.new_group(), rank) == 1
        tensor = torch.full((3,), float(rank))
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
        assert tensor[0].item() == 0
        if rank == 0:
            with pytest.raises(RuntimeError, match="share memory"):
                dist.all_reduce(torch.ones(1).expand(4))
        else:
            with pytest.raises(RuntimeError, match="rank 0 refused"):
                dist.all_reduce(torch.ones(4))
        dist.destroy_process_group()

    ranks.fork_ranks(2, one)


def test_beside_gloo_by_device() -> None:
    def body(rank: int, size: int) -> None:
        assert summed(None, rank) == 1
        assert summed(dist.new_group(backend="gloo"), rank) == 1

    ranks.run(2, body, backend="cpu:tutti")


def test_a_rank_that_does_not_come_is_named() -> None:
    def one(rank: int, folder: str) -> None:
        if rank == 2:
            return
        store = dist.FileStore(os.path.join(folder, "store"), 3)
        backend = dict(store=store, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=5))
        with pytest.raises(dist.DistBackendError, match="rank 2"):
            dist.init_process_group("tutti", **backend)

    ranks.fork_ranks(3, one)


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def torchrun(program: str, *options: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        subprocess.run([*TORCHRUN, *options, file.name], check=True, timeout=forked.LIMIT_S)


PROGRAM = """
import os, sys, torch, torch.distributed as dist, tutti_torch
dist.init_process_group("tutti")
if "dies" in os.environ.get("TEST_CASE", "") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(1)
t = torch.ones(4) * dist.get_rank()
dist.all_reduce(t)
assert t[0].item() == 1, t
if "leaves" in os.environ.get("TEST_CASE", ""):
    dist.all_reduce(t, async_op=True)
    sys.exit()
dist.destroy_process_group()
"""


def test_launched_by_torchrun() -> None:
    torchrun(PROGRAM)


def test_restarted_by_torchrun_after_a_death(monkeypatch) -> None:
    monkeypatch.setenv("TEST_CASE", "dies")
    torchrun(PROGRAM, "--max-restarts=1")


def test_programs_that_end_without_ending_their_group(monkeypatch) -> None:
    monkeypatch.setenv("TEST_CASE", "leaves")
    torchrun(PROGRAM)


def test_the_name_is_all_that_a_program_has_to_know() -> None:
    program = PROGRAM.replace(", tutti_torch", "")
    assert program != PROGRAM
    torchrun("import sys, torch; assert not [name for name in sys.modules if name.startswith('tutti_torch.')]" + program)


def test_registered_by_import_alone(monkeypatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    torchrun(PROGRAM)


def test_programs_of_tutti_launched_by_torchrun() -> None:
    (program,) = pathlib.Path(__file__).parents[3].glob("build/torch/root/**/bin/all_reduce_perf")
    wanted = "-b 1K -e 1M -f 4 -n 5 -w 1".split()
    command = [*TORCHRUN, "--no-python", str(program), *wanted]
    # The libraries linked into this process belong to another installation.
    environment = {**os.environ, "LD_LIBRARY_PATH": str(next(program.parents[1].glob("lib*/**/libtutti.so")).parent)}
    options = {"check": True, "timeout": forked.LIMIT_S, "env": environment, "stdout": subprocess.PIPE}
    printed = subprocess.run(command, **options).stdout
    assert b"# ranks: 2," in printed and b"Out of bounds values : 0 OK" in printed, printed
