"""Process groups that go on without some of their ranks: torch.distributed.shrink_group, tutti_torch.agree and failed."""

import datetime
import os
import signal
import time
from typing import NoReturn

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend
from torch.distributed.distributed_c10d import SHRINK_ABORT, SHRINK_DEFAULT

import ranks
import tutti_torch

# A death is known within a second; a loaded machine may take longer.
SOON_S = 10.0


def total(group: dist.ProcessGroup | None, value: float) -> float:
    tensor = torch.full((1000,), value)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == tensor[-1]
    return float(tensor[0])


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def until_it_fails(group: dist.ProcessGroup | None = None) -> None:
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError):
        while True:
            total(group, 1.0)
    assert time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("dead", (0, 1, 3))
def test_the_default_group_goes_on_without_a_dead_rank(dead: int) -> None:
    def body(rank: int, size: int) -> None:
        assert total(None, float(rank)) == 6
        dist.new_group([1, 2])  # of the old default group: torch ends it
        if rank == dead:
            die()
        until_it_fails()
        group = dist.shrink_group([dead])
        assert group is dist.group.WORLD
        live = [one for one in range(4) if one != dead]
        assert (dist.get_rank(), dist.get_world_size()) == (live.index(rank), 3)
        assert dist.get_backend() == "tutti"
        assert dist.get_process_group_ranks(None) == [0, 1, 2]
        assert total(None, float(rank)) == 6 - dead
        gathered = [None] * 3
        dist.all_gather_object(gathered, rank)
        assert gathered == live
        # Messages, and groups of the new ranks.
        tensor = torch.full((10,), float(rank))
        if dist.get_rank() == 0:
            dist.send(tensor, 2)
        elif dist.get_rank() == 2:
            dist.recv(tensor, 0)
            assert tensor.eq(live[0]).all()
        pair = dist.new_group([0, 2])
        if dist.get_rank() != 1:
            assert total(pair, float(rank)) == live[0] + live[2]
        dist.barrier()

    ranks.run(4, body, dies=(dead,))


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_the_default_group_goes_on_without_a_rank_that_lives(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", level)

    def body(rank: int, size: int) -> None:
        assert total(None, 1.0) == 3
        if rank == 1:
            return
        dist.shrink_group([1])
        assert total(None, float(rank)) == 2

    ranks.run(3, body)


def test_a_group_that_is_not_the_default_one_goes_on() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.new_group([1, 2, 3, 4])
        if rank == 4:
            die()
        if rank == 0:
            return
        until_it_fails(group)
        shrunk = dist.shrink_group([3], group=group)  # rank 3 of the group
        assert (dist.get_rank(shrunk), dist.get_world_size(shrunk)) == (rank - 1, 3)
        assert dist.get_process_group_ranks(shrunk) == [1, 2, 3]
        assert total(shrunk, float(rank)) == 6
        tensor = torch.full((3,), float(rank))
        dist.broadcast(tensor, 3, group=shrunk)
        assert tensor.eq(3).all()

    ranks.run(5, body, dies=(4,))


def test_a_group_shrinks_twice() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 1:
            die()
        until_it_fails()
        dist.shrink_group([1])
        assert total(None, float(rank)) == 9
        if rank == 3:
            die()
        until_it_fails()
        assert tutti_torch.agree(1) == 1
        assert tutti_torch.failed() == [2]  # in the numbers of the new group
        dist.shrink_group([2])
        assert total(None, float(rank)) == 6
        assert dist.get_world_size() == 3

    ranks.run(5, body, dies=(1, 3))


@pytest.mark.parametrize("flags", (SHRINK_DEFAULT, SHRINK_ABORT))
def test_ranks_that_live_can_be_left_out(flags: int) -> None:
    def body(rank: int, size: int) -> None:
        group = dist.new_group(list(range(size)))
        if rank in (0, 2):
            return
        shrunk = dist.shrink_group([2, 0], group=group, shrink_flags=flags)
        assert total(shrunk, float(rank)) == 4

    ranks.run(4, body)


def test_shrink_abort_ends_what_is_in_flight() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.full((4,), float(rank))
        dist.send(tensor, 2) if rank == 1 else dist.recv(tensor, 1) if rank == 2 else None
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.wait(["shrunk"])  # lives, and calls nothing
            return
        # Rank 0 takes no part in the first, and rank 1 sends no second message.
        works = [dist.all_reduce(torch.ones(100), async_op=True)]
        if rank == 2:
            works.append(dist.irecv(torch.zeros(4), 1))
        time.sleep(0.2)
        assert not any(work.is_completed() for work in works)
        # The first call of shrink_group ends the operations of the other rank too: both have looked before it.
        store.set(f"looked {rank}", "")
        store.wait(["looked 1", "looked 2"])
        begun = time.monotonic()
        dist.shrink_group([0], shrink_flags=SHRINK_ABORT)
        for work in works:
            with pytest.raises(dist.DistBackendError):
                work.wait()
        assert total(None, float(rank)) == 3
        assert time.monotonic() - begun < SOON_S
        store.set("shrunk", "")

    ranks.run(3, body)


def test_a_dead_rank_that_is_not_in_the_list_is_named() -> None:
    def body(rank: int, size: int) -> None:
        if rank in (1, 3):
            die()
        until_it_fails()
        assert tutti_torch.agree(1) == 1
        assert tutti_torch.failed() in ([1, 3], [1], [3])
        with pytest.raises(dist.DistBackendError, match="these ranks have died and are not in the list: 3. Add them"):
            dist.shrink_group([1])
        dist.shrink_group([1, 3])
        assert total(None, float(rank)) == 6

    ranks.run(5, body, dies=(1, 3))


def test_ranks_that_live_agree_and_find_the_dead() -> None:
    def body(rank: int, size: int) -> None:
        everybody = 2**64 - 1
        assert tutti_torch.failed() == []
        assert tutti_torch.agree(everybody ^ (1 << rank)) == everybody ^ 0b1111
        if rank == 2:
            die()
        until_it_fails()
        assert tutti_torch.agree(everybody ^ (1 << rank) ^ (1 << 40)) == everybody ^ 0b1011 ^ (1 << 40)
        assert tutti_torch.failed() == [2]
        with pytest.raises(dist.DistBackendError, match="has failed before, and can only be shrunk or destroyed"):
            total(None, 1.0)

    ranks.run(4, body, dies=(2,))


def test_the_new_group_has_the_timeout_of_its_options() -> None:
    def body(rank: int, size: int) -> None:
        # By torch's default the old group's; the second time the one that is passed.
        for timeout_s in (60.0, 4.0):
            options = Backend.Options("tutti", datetime.timedelta(seconds=timeout_s))
            if rank == dist.get_world_size() - 1:
                store = dist.distributed_c10d._get_default_store()
                store.wait(["timed out"])
                return
            dist.shrink_group([dist.get_world_size() - 1], pg_options=options if timeout_s == 4.0 else None)
        if rank == 0:
            begun = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="Timed out"):
                total(None, 1.0)
            assert 0.5 < time.monotonic() - begun < SOON_S
            dist.distributed_c10d._get_default_store().set("timed out", "")
        else:
            dist.distributed_c10d._get_default_store().wait(["timed out"])

    ranks.run(4, body)


def test_training_goes_on_with_the_ranks_that_live() -> None:
    """Each step's gradients are the mean over the ranks that live, of the step that failed as well."""

    def inputs(rank: int, step: int) -> torch.Tensor:
        return torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * step + rank))

    def step_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, parts: list[torch.Tensor]) -> None:
        optimizer.zero_grad()
        (sum(model(part).pow(2).mean() for part in parts) / len(parts)).backward()
        optimizer.step()

    def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def body(rank: int, size: int) -> None:
        model, optimizer = fresh()
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        step, steps, death = 0, 20, 7
        while step < steps:
            if rank == 1 and step == death:
                die()
            try:
                step_of(parallel, optimizer, [inputs(rank, step)])
                step += 1
            except RuntimeError:
                assert tutti_torch.agree(1) == 1
                dist.shrink_group(tutti_torch.failed())
                first = torch.tensor(step)
                dist.all_reduce(first, op=dist.ReduceOp.MIN)
                # Rank 1 took no part in this step, so no other rank has ended it.
                assert step == first == death
                parallel = torch.nn.parallel.DistributedDataParallel(model)
        expected, its_optimizer = fresh()
        for step in range(steps):
            step_of(expected, its_optimizer, [inputs(one, step) for one in range(size) if step < death or one != 1])
        for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)

    ranks.run(3, body, dies=(1,))
