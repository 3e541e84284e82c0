"""Survivor mode: collectives, and a training, go on without a rank that dies."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import ranks
import tutti_torch

SIZE = 4
VICTIM = 1
LIVING = [0, 2, 3]


@pytest.fixture(autouse=True)
def survivor_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_SURVIVORS", "on")


def dies_in(step: int, number: int, rank: int) -> None:
    if (step, rank) == (number, VICTIM):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("queued", (False, True))
def test_collectives_go_on_with_the_ranks_that_live(queued: bool) -> None:
    def body(rank: int, size: int) -> None:
        sums = [torch.full((1000,), 2.0**rank) for _ in range(40)]
        works = []
        for step, tensor in enumerate(sums):
            dies_in(step, 20, rank)
            works.append(dist.all_reduce(tensor, async_op=queued))
        for work in works:
            if queued:
                work.wait()
        found = [float(tensor[0]) for tensor in sums]
        assert all(tensor.eq(tensor[0]).all() for tensor in sums)
        with_all = found.index(13.0)
        assert found == [15.0] * with_all + [13.0] * (len(found) - with_all)
        assert tutti_torch.contributors() == LIVING
        gathered = [torch.full((10,), -1.0) for _ in range(size)]
        dist.all_gather(gathered, torch.full((10,), float(rank)))
        assert [float(one[0]) for one in gathered] == [0.0, -1.0, 2.0, 3.0]
        average = torch.tensor([float(rank)])
        dist.all_reduce(average, op=dist.ReduceOp.AVG)
        assert float(average) == pytest.approx(5 / 3)
        with pytest.raises(dist.DistBackendError, match="rank 1, the root, has died"):
            dist.broadcast(average, VICTIM)
        dist.broadcast(average, 2)

    ranks.run(SIZE, body, dies=(VICTIM,))


def test_a_training_goes_on_without_a_restart() -> None:
    def body(rank: int, size: int) -> list[float]:
        def average(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        torch.manual_seed(1)
        network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 4))
        network.register_comm_hook(None, average)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        matrix = torch.randn(20, 4, generator=torch.Generator().manual_seed(7))
        losses = []
        for step in range(60):
            dies_in(step, 30, rank)
            inputs = torch.randn(32, 20, generator=torch.Generator().manual_seed(1000 * step + rank))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), (inputs @ matrix).argmax(dim=1))
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        assert tutti_torch.contributors() == LIVING
        assert losses[-1] < 0.6 * losses[0]
        return [float(parameter.detach().norm()) for parameter in network.parameters()]

    results = ranks.run(SIZE, body, dies=(VICTIM,))
    assert results[0] == results[2] == results[3]


def test_a_rank_that_is_late_is_left_out_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_STRAGGLER_MS", "1000")

    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        missed = 0
        for step in range(20_000):
            if (step, rank) == (20, VICTIM):
                store.wait(["left out"])
                time.sleep(1)
            elif rank != VICTIM:
                time.sleep(0.001)
            tensor = torch.full((1000,), 2.0**rank)
            try:
                dist.all_reduce(tensor)
            except dist.DistBackendError as error:
                assert rank == VICTIM and "this rank was late" in str(error)
                missed += 1
                continue
            assert tutti_torch.contributors() == (list(range(size)) if tensor[0] == 15 else LIVING)
            if rank == 0 and tensor[0] != 15 and not missed:
                store.set("left out", "")
            missed += int(tensor[0] != 15)
            if missed and tensor[0] == 15:
                return
        raise AssertionError("the ranks do not come together")

    ranks.run(SIZE, body)
