"""Tensors on a CUDA device: processes that share one, as ranks. Needs a device (tools/device_bundle).

The test's own process never touches the device, since ranks are forked.
"""

import datetime
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ranks import fork_ranks

_BACKEND = "cpu:tutti,cuda:tutti"


def each(
    ranks: int, body: Callable[[int, int], Any], timeout_s: float = 60, dies: tuple[int, ...] = (), bound: bool = False
) -> list[Any]:
    """body(rank, ranks) in every rank of a group for both memories."""

    def run_rank(rank: int, folder: str) -> Any:
        torch.cuda.set_device(0)
        store = dist.FileStore(os.path.join(folder, "store"), ranks)
        timeout = datetime.timedelta(seconds=timeout_s)
        device = torch.device("cuda:0") if bound else None
        dist.init_process_group(
            _BACKEND, store=store, rank=rank, world_size=ranks, timeout=timeout, device_id=device
        )
        result = body(rank, ranks)
        dist.destroy_process_group()
        return result

    return fork_ranks(ranks, run_rank, dies)


def on(values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.as_tensor(values, dtype=dtype, device="cuda")


_TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_reductions(ranks: int) -> None:
    def body(rank: int, ranks: int) -> None:
        for dtype in _TYPES:
            for count in (1, 1000, 300_000):
                inputs = [(torch.arange(count) % 5 + r + 1).to(dtype) for r in range(ranks)]
                wanted = {
                    dist.ReduceOp.SUM: sum(inputs[1:], inputs[0].clone()),
                    dist.ReduceOp.MAX: torch.stack(inputs).amax(0),
                    dist.ReduceOp.MIN: torch.stack(inputs).amin(0),
                }
                for op, result in wanted.items():
                    own = inputs[rank].cuda()
                    dist.all_reduce(own, op=op)
                    assert own.cpu().eq(result).all(), (dtype, count, op)
                    own = inputs[rank].cuda()
                    dist.reduce(own, ranks - 1, op=op)
                    assert rank != ranks - 1 or own.cpu().eq(result).all(), (dtype, count, op)
                everyone = torch.cat([inputs[rank]] * ranks).cuda()
                own = torch.empty_like(inputs[rank], device="cuda")
                dist.reduce_scatter_tensor(own, everyone)
                assert own.cpu().eq(wanted[dist.ReduceOp.SUM]).all(), (dtype, count)
        own = on([float(rank)] * 1000)
        dist.all_reduce(own, op=dist.ReduceOp.AVG)
        assert own.cpu().eq((ranks - 1) / 2).all()

    each(ranks, body)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_moves(ranks: int) -> None:
    def body(rank: int, ranks: int) -> None:
        last = ranks - 1
        for count in (1, 1000, 300_000, 4_000_000):
            own = on([0.0] * count)
            dist.broadcast(own.fill_(rank + 1), last)
            assert own.cpu().eq(ranks).all()
            everyone = on([0.0] * count * ranks)
            dist.all_gather_into_tensor(everyone, own.fill_(rank))
            by_rank = torch.arange(ranks).view(-1, 1)
            assert everyone.cpu().view(ranks, -1).eq(by_rank).all()
            dist.all_to_all_single(everyone, on([float(rank)] * count * ranks))
            assert everyone.cpu().view(ranks, -1).eq(by_rank).all()
        outputs = [on([0] * (r + 1), torch.int64) for r in range(ranks)]
        dist.all_gather(outputs, on([rank] * (rank + 1), torch.int64))
        assert [o.tolist() for o in outputs] == [[r] * (r + 1) for r in range(ranks)]
        gathered = [on([0.0]) for _ in range(ranks)] if rank == 0 else None
        dist.gather(on([float(rank)]), gathered)
        assert gathered is None or [g.item() for g in gathered] == list(range(ranks))
        dist.scatter(own[:1], [on([float(r)]) for r in range(ranks)] if rank == last else None, src=last)
        assert own[0].item() == rank
        dist.barrier()

    each(ranks, body)


def test_transfers_and_coalescing() -> None:
    def body(rank: int, ranks: int) -> None:
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        for count in (10, 50_000, 5_000_000):
            received = on([0.0] * count)
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, on([float(rank)] * count), to), dist.P2POp(dist.irecv, received, source)]
            )
            for work in works:
                work.wait()
            assert received.cpu().eq(source).all()
        tensors = [on([float(i)] * 10) for i in range(5)]
        with dist._coalescing_manager(device=torch.device("cuda:0"), async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        assert all(t.cpu().eq(i * ranks).all() for i, t in enumerate(tensors))

    each(3, body)


def test_order_of_streams() -> None:
    """An operation begins behind what the current stream has; wait() is that stream's, and not the thread's."""

    def body(rank: int, ranks: int) -> None:
        side = torch.cuda.Stream()
        for round in range(20):
            own = torch.zeros(1 << 20, device="cuda")
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                own.fill_(round)
                work = dist.all_reduce(own, async_op=True)
                work.wait()
                result = own * 2
            side.synchronize()
            assert result.eq(2 * round * ranks).all()
            assert work.is_completed()
        work = dist.all_reduce(on([1.0, 2.0]), async_op=True)
        then = work.get_future().then(lambda future: [t / ranks for t in future.value()])
        assert then.wait()[0].tolist() == [1.0, 2.0]

    each(2, body)


def test_memory_of_tensors_that_are_gone() -> None:
    """What an operation uses is not given to others before it is done, though the program has let it go."""

    def body(rank: int, ranks: int) -> None:
        works = []
        kept = []
        for i in range(200):
            temporary = torch.full((100_000,), float(i), device="cuda")
            output = torch.empty(100_000 * ranks, device="cuda")
            works.append(dist.all_gather_into_tensor(output, temporary, async_op=True))
            kept.append(output)
            del temporary
            torch.full((100_000,), -1.0, device="cuda")
        for work in works:
            work.wait()
        assert all(output.eq(i).all() for i, output in enumerate(kept))

    each(2, body)


def test_both_memories_and_groups_of_some() -> None:
    def body(rank: int, ranks: int) -> None:
        host, device = torch.ones(10), on([2.0] * 10)
        works = [dist.all_reduce(t, async_op=True) for t in (host, device, host, device)]
        for work in works:
            work.wait()
        assert host.eq(ranks**2).all()
        assert device.cpu().eq(2 * ranks**2).all()
        some = dist.new_group([0, 1])
        if rank < 2:
            own = on([1.0] * 10)
            dist.all_reduce(own, group=some)
            assert own.cpu().eq(2).all()

    each(3, body, bound=True)


def test_threads() -> None:
    """Two groups, each driven by a thread and a stream of its own."""

    def body(rank: int, ranks: int) -> None:
        groups = [dist.new_group(list(range(ranks)), backend=_BACKEND) for _ in range(2)]
        results: list[torch.Tensor | None] = [None, None]

        def drive(which: int) -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                own = torch.full((1 << 18,), float(which + 1), device="cuda")
                for _ in range(10):
                    dist.all_reduce(own, op=dist.ReduceOp.AVG, group=groups[which])
                results[which] = own.cpu()

        threads = [threading.Thread(target=drive, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for which, result in enumerate(results):
            assert result is not None and result.eq(which + 1).all()

    each(2, body)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_graphs(ranks: int, mode: str) -> None:
    def body(rank: int, ranks: int) -> None:
        own = torch.ones(1 << 16, device="cuda")
        dist.all_reduce(own)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            own.mul_(2)
            dist.all_reduce(own)
            work = dist.all_reduce(own, async_op=True)
            work.wait()
            own.div_(ranks**2)
        own.fill_(rank + 1)
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
        assert own.cpu().eq((ranks + 1) / 2 * 2**10).all()

    each(ranks, body)


def _model() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()


def _train(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, wanted in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["DistributedDataParallel", "fully_shard"])
def test_training(kind: str) -> None:
    """The same parameters as one process has that sees all data."""

    def body(rank: int, ranks: int) -> None:
        generator = torch.Generator().manual_seed(7)
        whole = [(torch.randn(32, 64, generator=generator), torch.randn(32, 8, generator=generator)) for _ in range(10)]
        part = [(x.chunk(ranks)[rank].cuda(), y.chunk(ranks)[rank].cuda()) for x, y in whole]
        alone, model = _model(), _model()
        _train(alone, [(x.cuda(), y.cuda()) for x, y in whole])
        if kind == "fully_shard":
            from torch.distributed.fsdp import fully_shard

            fully_shard(model, mesh=dist.init_device_mesh("cuda", (ranks,)))
            _train(model, part)
            trained = [p.full_tensor() for p in model.parameters()]
        else:
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
            _train(model, part)
            trained = list(model.parameters())
        for wanted, found in zip(alone.parameters(), trained, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    each(2, body)


def test_a_rank_that_dies_is_an_error_on_the_others() -> None:
    def body(rank: int, ranks: int) -> None:
        own = on([1.0] * 1000)
        dist.all_reduce(own)
        torch.cuda.synchronize()
        if rank == 1:
            os._exit(3)
        with pytest.raises(dist.DistBackendError):
            work = dist.all_reduce(own, async_op=True)
            work.wait(datetime.timedelta(seconds=30))
        torch.cuda.synchronize()

    each(2, body, timeout_s=30, dies=(1,))


def test_a_rank_that_does_not_come_is_a_timeout() -> None:
    def body(rank: int, ranks: int) -> None:
        own = on([1.0] * 1000)
        dist.all_reduce(own)
        if rank == 0:
            with pytest.raises(dist.DistBackendError):
                work = dist.all_reduce(own, async_op=True)
                work.wait(datetime.timedelta(seconds=30))
            torch.cuda.synchronize()
        dist.distributed_c10d._get_default_store().set(f"done{rank}", "")
        dist.distributed_c10d._get_default_store().wait([f"done{r}" for r in range(ranks)])

    each(2, body, timeout_s=3)
