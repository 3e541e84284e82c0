"""torchft on tutti: its own tests of process groups and of recovery, and replicas that die and come back."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
import torchft.manager_integ_test
import torchft.process_group_test
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroup

import ranks
from tutti_torch.torchft import ProcessGroupTutti

REPLICAS = pathlib.Path(__file__).parents[3] / "examples" / "torch" / "replicas.py"


# ---- torchft's tests, with ProcessGroupTutti for its ProcessGroupGloo ----------------------------------------------------


def passes(tests: type[unittest.TestCase], names: list[str] | None = None) -> None:
    """In a child, which keeps their threads and default groups away from other tests."""

    def body(rank: int, folder: str) -> str:
        torchft.process_group_test.ProcessGroupGloo = ProcessGroupTutti
        torchft.manager_integ_test.ProcessGroupGloo = ProcessGroupTutti
        loader = unittest.defaultTestLoader
        suite = unittest.TestSuite(map(tests, names)) if names else loader.loadTestsFromTestCase(tests)
        result = unittest.TestResult()
        suite.run(result)
        assert result.testsRun == suite.countTestCases() > 0
        assert not result.skipped, result.skipped
        assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)
        return ""

    ranks.fork_ranks(1, body)


class OfTutti(torchft.process_group_test.MultiPgBaseTest):
    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, backend: str) -> ProcessGroup:
        return ProcessGroupTutti(timeout=timedelta(seconds=30))


# All of them, also those that their class for gloo leaves out.
@pytest.mark.parametrize("collective", torchft.process_group_test._ALL_COLLECTIVES)
def test_torchfts_tests_of_collectives(collective: str) -> None:
    class Tests(OfTutti):
        def test_collective(self) -> None:
            self._run_parallel(collective)

        def test_collective_with_resiliency(self) -> None:
            self._run_with_resiliency(collective)

    passes(Tests)


@pytest.mark.parametrize("name", ("test_gloo_apis_0_cpu", "test_functional_collectives"))
def test_torchfts_tests_of_its_group_of_gloo(name: str) -> None:
    passes(torchft.process_group_test.ProcessGroupTest, [name])


# In one test: their replicas listen on fixed ports.
def test_torchfts_tests_of_recovery() -> None:
    names = [
        "test_ddp_healthy",
        "test_ddp_recovery_0_async_quorum",
        "test_ddp_recovery_1_sync_quorum",
        "test_ddp_recovery_multi_rank",
        "test_manager_allreduce_1",
    ]
    passes(torchft.manager_integ_test.ManagerIntegTest, names)


# ---- The group -------------------------------------------------------------------------------------------------------


def configured(group: ProcessGroup, store: dist.TCPStore, prefix: str, rank: int, size: int) -> ProcessGroup:
    group.configure(f"localhost:{store.port}/{prefix}", "0", rank, size)
    return group


def store_of(folder: str, rank: int) -> dist.TCPStore:
    """Rank 0's."""
    ports = dist.FileStore(os.path.join(folder, "ports"), -1)
    if rank != 0:
        return dist.TCPStore("localhost", int(ports.get("port")), is_master=False, wait_for_workers=False)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    ports.set("port", str(store.port))
    return store


def left(store: dist.TCPStore, rank: int, size: int) -> None:
    """Rank 0 hosts the store until all ranks have left."""
    store.set(f"left {rank}", "")
    if rank == 0:
        store.wait([f"left {one}" for one in range(size)])


def test_reduce_scatter_on_cpus() -> None:
    def body(rank: int, folder: str) -> None:
        store = store_of(folder, rank)
        group = configured(ProcessGroupTutti(), store, "only", rank, 3)
        output = torch.zeros(4)
        inputs = [torch.full((4,), 10.0 * to + rank) for to in range(3)]
        group.reduce_scatter([output], [inputs], dist.ReduceScatterOptions()).wait()
        assert output.eq(30 * rank + 3).all()
        group.shutdown()
        left(store, rank, 3)

    ranks.fork_ranks(3, body)


def test_operations_in_progress_end_when_the_group_is_configured_anew() -> None:
    def body(rank: int, folder: str) -> None:
        store = store_of(folder, rank)
        group = configured(ProcessGroupTutti(), store, "first", rank, 3)
        group.allreduce([torch.ones(4)], dist.ReduceOp.SUM).wait()
        if rank != 2:  # calls no second operation
            work = group.allreduce([torch.ones(4)], dist.ReduceOp.SUM)
            store.set(f"begun {rank}", "")
            store.wait(["begun 0", "begun 1"])
            begun = time.monotonic()
            configured(group, store, "second", rank, 2)
            with pytest.raises(dist.DistBackendError):
                work.wait()
            assert time.monotonic() - begun < 10
            tensor = torch.ones(4)
            group.allreduce([tensor], dist.ReduceOp.SUM).wait()
            assert tensor.eq(2).all()
        store.set(f"ended {rank}", "")
        store.wait(["ended 0", "ended 1", "ended 2"])
        group.shutdown()
        left(store, rank, 3)

    ranks.fork_ranks(3, body)


def test_a_replica_that_does_not_come_is_named() -> None:
    def body(rank: int, folder: str) -> None:
        store = store_of(folder, rank)
        with pytest.raises(dist.DistBackendError, match="Timed out waiting: .*rank 1 of 2 has not joined"):
            configured(ProcessGroupTutti(timeout=timedelta(seconds=0.5)), store, "only", 0, 2)

    ranks.fork_ranks(1, body)


def test_set_timeout_shortens_the_timeout_of_operations() -> None:
    def body(rank: int, folder: str) -> None:
        store = store_of(folder, rank)
        group = configured(ProcessGroupTutti(), store, "only", rank, 2)
        if rank == 0:
            group.set_timeout(timedelta(seconds=0.5))
            begun = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="Timed out waiting"):
                group.allreduce([torch.ones(4)], dist.ReduceOp.SUM).wait()
            assert time.monotonic() - begun < 10
        else:
            store.wait(["left 0"])
        left(store, rank, 2)

    ranks.fork_ranks(2, body)


def join_replica(rank: int, folder: str) -> tuple[int, int]:
    """A default group for each replica of two ranks. Returns the replica, and the rank in it."""
    replica, member = divmod(rank, 2)
    default = dist.FileStore(os.path.join(folder, f"replica{replica}"), 2)
    dist.init_process_group("tutti", store=default, rank=member, world_size=2)
    return replica, member


def test_replicas_whose_default_groups_are_of_tutti() -> None:
    """Each of two replicas has a default group of two ranks; the groups between replicas are of other ranks."""

    def body(rank: int, folder: str) -> None:
        replica, member = join_replica(rank, folder)
        store = store_of(folder, rank)
        between = configured(ProcessGroupTutti(), store, f"members {member}", replica, 2)
        tensor = torch.full((4,), float(rank))
        between.allreduce([tensor], dist.ReduceOp.SUM).wait()
        assert tensor.eq(2 * member + 2).all()
        dist.all_reduce(tensor)
        assert tensor.eq(6).all()
        between.shutdown()
        dist.destroy_process_group()
        left(store, rank, 4)

    ranks.fork_ranks(4, body)


def test_sharded_replicas_of_which_one_dies() -> None:
    """HSDP: fully_shard in each of two replicas of two ranks, and an all-reduce between replicas."""
    data = torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(1))

    def gradient(model: torch.nn.Module, batches: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        for batch in batches:
            model(batch).square().mean().backward()
        return model.weight.grad / len(batches)

    def body(rank: int, folder: str) -> None:
        replica, member = join_replica(rank, folder)
        store = store_of(folder, rank)
        between = configured(ProcessGroupTutti(), store, f"both {member}", replica, 2)
        errors = []

        def average(gradients: torch.Tensor) -> None:
            try:
                between.allreduce([gradients], dist.ReduceOp.AVG).wait()
            except dist.DistBackendError as error:
                errors.append(error)

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8, bias=False)
        whole = torch.nn.Linear(8, 8, bias=False)
        whole.load_state_dict(model.state_dict())
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        model.set_all_reduce_hook(average)
        found = gradient(model, data[rank : rank + 1]).full_tensor()
        torch.testing.assert_close(found, gradient(whole, data))
        store.set(f"made {rank}", "")
        store.wait([f"made {one}" for one in range(4)])
        if replica == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient(model, data[rank : rank + 1])
        assert len(errors) == 1
        configured(between, store, f"one {member}", 0, 1)
        found = gradient(model, data[rank : rank + 1]).full_tensor()
        assert len(errors) == 1
        torch.testing.assert_close(found, gradient(whole, data[:2]))
        left(store, rank, 2)

    ranks.fork_ranks(4, body, dies=(2, 3))


# ---- Replicas that die -----------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    time_s: float  # monotonic
    step: int
    replicas: int
    weights: float


class Replica:
    """A process that trains, and what it has committed."""

    def __init__(self, number: int, backend: str, lighthouse: str, folder: pathlib.Path) -> None:
        self.log = (folder / f"replica{number}").open("a+", encoding="utf-8")
        self.commits: list[Commit] = []
        command = [sys.executable, str(REPLICAS), f"--replica={number}", f"--backend={backend}", "--steps=1000000"]
        environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            found = re.fullmatch(r"(\S+) step (\d+) of (\d+) replicas: sum of the weights (\S+), loss \S+\n", line)
            if found:
                time_s, step, replicas, weights = found.groups()
                self.commits.append(Commit(float(time_s), int(step), int(replicas), float(weights)))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def first(self, wanted: Callable[[Commit], bool], limit_s: float = 90.0) -> Commit:
        """The first commit of this kind, as soon as it is there."""
        deadline = time.monotonic() + limit_s
        looked = 0
        while time.monotonic() < deadline:
            for commit in self.commits[looked:]:
                looked += 1
                if wanted(commit):
                    return commit
            time.sleep(0.005)
        self.log.seek(0)
        raise AssertionError(f"no such commit after {self.commits[-3:]}: {self.log.read()[-4000:]}")


def seconds_without_commits(backend: str, victim: int, folder: pathlib.Path) -> float:
    """Kills one of three replicas, and starts it again: from its death to the next step of both others."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=2, join_timeout_ms=2000)
    replicas = [Replica(number, backend, lighthouse.address(), folder) for number in range(3)]
    old = []
    try:
        for replica in replicas:
            replica.first(lambda commit: commit.replicas == 3)
        time.sleep(0.5)
        os.kill(replicas[victim].process.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        others = [replica for replica in replicas if replica is not replicas[victim]]
        # A step that was in progress may still end with three.
        next_steps = [replica.first(lambda one: one.time_s > killed_s and one.replicas == 2) for replica in others]
        old.append(replicas[victim])
        replicas[victim] = Replica(victim, backend, lighthouse.address(), folder)
        back = replicas[victim].first(lambda one: one.replicas == 3)
        # The others have gone on meanwhile, and go on with the new one.
        assert back.step > next_steps[0].step + 10
        for replica in replicas:
            replica.first(lambda one: one.step > back.step + 20)
    finally:
        for replica in [*replicas, *old]:
            replica.kill()
        lighthouse.shutdown()
    # After each step all replicas that have made it have the same weights.
    weights: dict[int, float] = {}
    for replica in [*replicas, *old]:
        for commit in replica.commits:
            assert weights.setdefault(commit.step, commit.weights) == commit.weights, commit
    return max(one.time_s for one in next_steps) - killed_s


@pytest.mark.parametrize("victim", (0, 2))
def test_others_go_on_when_a_replica_dies_and_it_comes_back(victim: int, tmp_path: pathlib.Path) -> None:
    took_s = seconds_without_commits("tutti", victim, tmp_path)
    print(f"{took_s:.3f} s from the death of replica {victim} to the next step of the others")
    # The lighthouse waits 2 of these for the dead replica. Without a notice the groups would wait 30.
    assert took_s < 25
