"""Tensors on devices of the stand-in for CUDA's driver (tests/device), by the name "standin".

PyTorch has no CUDA here; the backend serves any device whose memory tutti takes for CUDA's, by the same code."""

import ctypes
import datetime
import fcntl
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tutti_torch
from ranks import fork_ranks

_ROOT = pathlib.Path(__file__).parents[3]
_BACKEND = "cpu:tutti,standin:tutti"


@pytest.fixture(scope="module")
def device_module() -> pathlib.Path:
    """The module of the device, built by another process: what one registers that loads it stays for all tests.

    Compiled once for all workers, and again if something has changed."""
    folder = _ROOT / "build/torch/stand_in_device"
    folder.mkdir(parents=True, exist_ok=True)
    source = pathlib.Path(__file__).with_name("stand_in_device.cc")
    build = (
        "import torch.utils.cpp_extension as e\n"
        f"e.load('stand_in_device', ['{source}'], extra_cflags=['-std=c++20', '-O1'], build_directory='{folder}')"
    )
    with open(folder / "alone", "w", encoding="utf-8") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        # PyTorch's own lock stays if its process is killed, and would be waited for without end.
        (folder / "lock").unlink(missing_ok=True)
        subprocess.run([sys.executable, "-c", build], check=True, stdout=subprocess.PIPE)
    return folder / "stand_in_device.so"


def _load(path: pathlib.Path) -> Any:
    # From now on the driver is found by its name.
    ctypes.CDLL(str(_ROOT / "build/tests/device/libcuda.so.1"))
    spec = importlib.util.spec_from_file_location("stand_in_device", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.utils.rename_privateuse1_backend("standin")
    torch._register_device_module("standin", module)
    dist.Backend.backend_capability["tutti"] = ["cpu", "cuda", "standin"]
    return module


@pytest.fixture
def each(device_module: pathlib.Path) -> Callable[..., list[Any]]:
    """each(ranks, function): function(rank, ranks, module) in every rank of a group for both memories."""

    def run_each(
        ranks: int,
        function: Callable[[int, int, Any], Any],
        backend: str = _BACKEND,
        timeout_s: float = 60,
        bound: bool = False,
        dies: tuple[int, ...] = (),
    ) -> list[Any]:
        def run_rank(rank: int, folder: str) -> Any:
            module = _load(device_module)
            store = dist.FileStore(os.path.join(folder, "store"), ranks)
            timeout = datetime.timedelta(seconds=timeout_s)
            device = torch.device(f"standin:{rank % 2}") if bound else None
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=ranks, timeout=timeout, device_id=device
            )
            result = function(rank, ranks, module)
            dist.destroy_process_group()
            return result

        return fork_ranks(ranks, run_rank, dies)

    return run_each


def on(rank: int, values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor on the rank's device."""
    return torch.as_tensor(values, dtype=dtype).to(f"standin:{rank % 2}")


def test_collectives(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        total = ranks * (ranks + 1) // 2
        for count in (1, 1000, 300_000):
            own = on(rank, [float(rank + 1)] * count)
            dist.all_reduce(own)
            assert own.device.type == "standin"
            assert own.cpu().eq(total).all()
            dist.broadcast(own.fill_(rank), 1)
            assert own.cpu().eq(1).all()
            dist.reduce(own.fill_(rank + 1), 2, op=dist.ReduceOp.MAX)
            assert rank != 2 or own.cpu().eq(ranks).all()
            everyone = on(rank, [0.0] * count * ranks)
            dist.all_gather_into_tensor(everyone, own.fill_(rank))
            assert everyone.cpu().view(ranks, -1).eq(torch.arange(ranks).view(-1, 1)).all()
            dist.reduce_scatter_tensor(own, everyone)
            assert own.cpu().eq(rank * ranks).all()
            parts = list(everyone.chunk(ranks))
            dist.reduce_scatter(own, [part.fill_(i) for i, part in enumerate(parts)], op=dist.ReduceOp.AVG)
            assert own.cpu().eq(rank).all()
            dist.all_to_all_single(everyone, on(rank, [float(rank)] * count * ranks))
            assert everyone.cpu().view(ranks, -1).eq(torch.arange(ranks).view(-1, 1)).all()
        dist.barrier()

    each(3, body)


def test_lists_of_unlike_tensors(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        outputs = [on(rank, [0] * (r + 1), torch.int64) for r in range(ranks)]
        dist.all_gather(outputs, on(rank, [rank] * (rank + 1), torch.int64))
        assert [o.tolist() for o in outputs] == [[r] * (r + 1) for r in range(ranks)]
        outputs = [on(rank, [0] * (rank + 1), torch.int64) for _ in range(ranks)]
        dist.all_to_all(outputs, [on(rank, [10 * rank + r] * (r + 1), torch.int64) for r in range(ranks)])
        assert [o.tolist() for o in outputs] == [[10 * r + rank] * (rank + 1) for r in range(ranks)]
        gathered = [on(rank, [0.0]) for _ in range(ranks)] if rank == 0 else None
        dist.gather(on(rank, [float(rank)]), gathered)
        assert gathered is None or [g.item() for g in gathered] == list(range(ranks))
        own = on(rank, [0.0])
        dist.scatter(own, [on(rank, [float(r)]) for r in range(ranks)] if rank == 1 else None, src=1)
        assert own.item() == rank
        factor = dist._make_nccl_premul_sum(0.5)
        dist.all_reduce(own.fill_(2), op=factor)
        assert own.item() == ranks

    each(3, body)


def test_order_of_streams(each: Callable[..., list[Any]]) -> None:
    """The thread does not wait: the operation begins behind what the stream has, and wait() is the stream's."""

    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        own = on(rank, [1.0] * 1000)
        dist.all_reduce(own)
        other = on(rank, [5.0] * 1000)
        gate = standin.Gate()
        gate.hold()
        own.copy_(other)
        work = dist.all_reduce(own, async_op=True)
        assert not work.is_completed()
        work.wait()
        result = torch.empty_like(own)
        result.copy_(own)
        assert not work.is_completed()
        gate.open()
        assert result.cpu().eq(5 * ranks).all()
        assert work.is_completed()
        assert work.is_success()
        # The allocator knows the other stream that uses it.
        assert standin.streams_of(own) == 1
        assert standin.streams_of(other) == 0
        # Without async_op it is in the current stream.
        dist.all_reduce(other)
        assert standin.streams_of(other) == 0
        assert other.cpu().eq(5 * ranks).all()

    each(2, body)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("async_op", [False, True])
def test_graphs(each: Callable[..., list[Any]], mode: int, async_op: bool) -> None:
    """A graph captures operations, also directly after others whose end is not known yet."""

    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        own = on(rank, [1.0] * 1000)
        eager = dist.all_reduce(own, async_op=True)
        eager.wait()
        with torch.Stream(device=own.device):
            dist.all_reduce(own)
            graph = standin.Captured(mode)
            for _ in range(2):
                work = dist.all_reduce(own, async_op=async_op)
                if async_op:
                    work.wait()
                    # It is as complete as it will be: the work begins when the graph runs.
                    assert work.is_completed()
            tutti_torch.flight_record()
            graph.end()
            own.fill_(1)
            for _ in range(3):
                graph.replay()
            assert own.cpu().eq(ranks**6).all()
            dist.all_reduce(own)
            assert own.cpu().eq(ranks**7).all()
        assert eager.is_completed()

    each(2, body)


def test_futures(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        work = dist.all_reduce(on(rank, [1.0, 2.0]), async_op=True)
        then = work.get_future().then(lambda future: [t / ranks for t in future.value()])
        assert then.wait()[0].tolist() == [1.0, 2.0]

    each(2, body)


def test_transfers(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        # Of two ranks, before anything collective.
        if rank == 0:
            dist.send(on(rank, [7.0] * 100), 1)
        elif rank == 1:
            own = on(rank, [0.0] * 100)
            dist.recv(own, 0)
            assert own.cpu().eq(7).all()
        # A ring, all at once.
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        received = on(rank, [0.0] * 50_000)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, on(rank, [float(rank)] * 50_000), to),
                dist.P2POp(dist.irecv, received, source),
            ]
        )
        for work in works:
            work.wait()
        assert received.cpu().eq(source).all()
        # Back, one by one: each pair has its own order.
        if rank == 0:
            dist.send(on(rank, [1.0]), 1)
            dist.recv(received[:1], 1)
            assert received[0].item() == 2
        elif rank == 1:
            dist.recv(received[:1], 0)
            assert received[0].item() == 1
            dist.send(on(rank, [2.0]), 0)

    each(3, body)


def test_coalesced(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        tensors = [on(rank, [float(i)] * 10) for i in range(5)]
        with dist._coalescing_manager(device=torch.device(f"standin:{rank % 2}"), async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        assert all(t.cpu().eq(i * ranks).all() for i, t in enumerate(tensors))

    each(2, body)


def test_layouts_that_differ_between_ranks(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        def placed(values: torch.Tensor, number: int) -> torch.Tensor:
            laid = (values, values.t().contiguous(), torch.stack((values, values), -1))[number % 3]
            moved = laid.to(f"standin:{rank % 2}")
            return moved[..., 0] if number % 3 == 2 else moved.t() if number % 3 else moved

        def of(other: int) -> torch.Tensor:
            return torch.arange(300.0).view(20, 15) + 1000 * other

        nothing = torch.zeros(20, 15)
        for number in range(6):
            call = (lambda f, *a: f(*a)) if number % 2 else (lambda f, *a: f(*a, async_op=True).wait())
            mine, filled = placed(of(rank), number + rank), placed(nothing, number + 2 * rank)
            outputs = [placed(nothing, number + other) for other in range(ranks)]
            call(dist.all_gather, outputs, mine)
            assert all(torch.equal(output.cpu(), of(other)) for other, output in enumerate(outputs))
            call(dist.all_to_all, outputs, [placed(of(rank + other), number + other) for other in range(ranks)])
            assert all(torch.equal(output.cpu(), of(other + rank)) for other, output in enumerate(outputs))
            call(dist.reduce_scatter, filled, [mine] * ranks)
            assert torch.equal(filled.cpu(), of(0) + of(1))
            call(dist.broadcast, mine, 1)
            dist.all_reduce_coalesced([mine, mine])
            assert torch.equal(mine.cpu(), ranks * of(1))
            works = [dist.all_reduce(t, async_op=True) for t in (mine, mine.t(), mine)]
            for work in reversed(works):
                work.wait()
            assert torch.equal(mine.cpu(), ranks**4 * of(1))
        received = placed(nothing, 2)
        dist.send(placed(of(7), 1), 1) if rank == 0 else dist.recv(received, 0)
        assert rank == 0 or torch.equal(received.cpu(), of(7))

    each(2, body)


def test_both_memories_in_one_group(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        host = torch.ones(10)
        device = on(rank, [2.0] * 10)
        works = [dist.all_reduce(t, async_op=True) for t in (host, device, host, device)]
        for work in works:
            work.wait()
        assert host.eq(ranks**2).all()
        assert device.cpu().eq(2 * ranks**2).all()
        half = dist.new_group(list(range(ranks)), backend=_BACKEND)
        dist.all_reduce(device, group=half)
        assert device.cpu().eq(2 * ranks**3).all()

    each(2, body)


def test_what_is_refused_and_what_fails(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        own = on(rank, [1.0] * 10)
        with pytest.raises(RuntimeError, match="elements of an output tensor share memory"):
            dist.all_reduce(own[:1].expand(10))
        with pytest.raises(RuntimeError, match="all tensors must be on one device"):
            dist.all_gather_into_tensor(torch.zeros(10 * ranks), own)
        dist.all_reduce(own)
        assert own.cpu().eq(ranks).all()
        # One rank calls something different: every rank gets an error, at its next call at the latest.
        with pytest.raises(RuntimeError, match="ranks called different operations: .*broadcast.*all_reduce"):
            for _ in range(1000):
                if rank == 0:
                    dist.all_reduce(own)
                else:
                    dist.broadcast(own, 0)
                own.cpu()

    each(2, body)


def test_a_bound_device_and_groups_of_some_ranks(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        some = dist.new_group([0, 1])
        if rank < 2:
            own = on(rank, [1.0] * 10)
            dist.all_reduce(own, group=some)
            assert own.cpu().eq(2).all()
        own = on(rank, [1.0] * 10)
        dist.all_reduce(own)
        assert own.cpu().eq(ranks).all()

    each(3, body, bound=True)


def test_threads_that_meet_in_one_pair(each: Callable[..., list[Any]]) -> None:
    """Also beside a collective that is the first of its device: neither waits for the other."""

    def body(rank: int, ranks: int, standin: Any) -> None:
        tensors = [on(rank, [5.0 if rank == 0 else 0.0] * 100) for _ in range(2)]
        first = on(rank, [1.0] * 100)
        pass_on = (lambda tensor: dist.send(tensor, 1)) if rank == 0 else (lambda tensor: dist.recv(tensor, 0))
        threads = [threading.Thread(target=pass_on, args=(tensor,)) for tensor in tensors]
        reduce = threading.Thread(target=lambda: dist.all_reduce(first))
        threads.insert(0 if rank == 0 else 2, reduce)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        dist.barrier()
        assert all(tensor.cpu().eq(5).all() for tensor in tensors)
        assert first.cpu().eq(2).all()

    each(2, body, timeout_s=20)


def test_a_refusal_ends_coalescing(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        own = on(rank, [float(rank)] * 10)
        backend = dist.group.WORLD._get_backend(own.device)
        for wrong, peer in (([own, own], 1 - rank), ([own], 17)):
            backend._start_coalescing()
            backend.send(wrong, peer, 0)
            with pytest.raises(RuntimeError, match="single-element|invalid rank"):
                backend._end_coalescing()
        dist.all_reduce(own)
        assert own.cpu().eq(1).all()

    each(2, body)


def test_a_group_on_whose_device_a_rank_calls_something_else_can_be_destroyed(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        # For one of them, the first collective on the device is a collective of the host.
        with pytest.raises(RuntimeError):
            dist.all_reduce(on(rank, [1.0]) if rank == 0 else torch.ones(1))

    each(2, body, timeout_s=5)


def test_what_is_on_its_way_ends_with_the_group(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        own = on(rank, [1.0] * 10)
        dist.all_reduce(own)
        own.cpu()  # a rank that had not called it yet would be refused
        if rank == 0:
            began = time.monotonic()
            work = dist.all_reduce(own, async_op=True)
            dist.group.WORLD._get_backend(own.device).abort()
            # Streams continue, and no rank mistakes that for success.
            own.cpu()
            assert not work.is_success()
            with pytest.raises(RuntimeError):
                work.wait()
            dist.destroy_process_group()
            assert not work.is_success()
            assert time.monotonic() - began < 30
            dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)

    each(2, body)


def test_a_failure_that_nobody_was_told_of_is_a_warning(
    each: Callable[..., list[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        own = on(rank, [1.0] * 10)
        dist.all_reduce(own)
        if rank == 0:
            dist.all_reduce(own)
            own.cpu()

    each(2, body)
    assert "operations on standin:0 have failed, and no call has reported it: Connection closed by peer: " in capfd.readouterr().err


def test_a_device_that_fails_is_told_of_and_ends_with_its_group(each: Callable[..., list[Any]]) -> None:
    """Also if it fails after an operation whose end the program has not queried."""

    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        own = on(rank, [1.0] * 10)
        both_have_called = dist.new_group(backend="gloo")
        dist.all_reduce(own)
        gate = standin.Gate()
        gate.hold()
        work = dist.all_reduce(own, async_op=True)
        # Otherwise the first device that breaks fails a call of the other rank.
        dist.barrier(both_have_called)
        standin.break_devices()
        gate.open()
        # The event says so, or the communicator, whichever has noticed first.
        for _ in range(1000):
            try:
                if work.is_completed():
                    break
            except RuntimeError as error:
                assert "719" in str(error)
                break
            time.sleep(0.01)
        else:
            pytest.fail("no rank has noticed")
        states = [entry["state"] for entry in tutti_torch.flight_record()["entries"]]
        assert states[-1] == "failed"

    each(2, body, timeout_s=20)


def test_flight_record(each: Callable[..., list[Any]]) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        own = on(rank, [1.0] * 10)
        dist.all_reduce(own)
        with pytest.raises(RuntimeError):
            dist.all_reduce(own[:1].expand(10))
        own.cpu()
        entries = [e for e in tutti_torch.flight_record()["entries"] if e["profiling_name"] == "tutti:all_reduce"]
        assert [e["state"] for e in entries] == ["completed"]

    each(2, body)


def test_barriers(each: Callable[..., list[Any]]) -> None:
    """A barrier is behind what the current stream has, and monitored ones find the backend of any device."""

    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        dist.all_reduce(on(rank, [0.0]))
        opened = []
        gate = standin.Gate()
        gate.hold()
        threading.Timer(0.3, lambda: (opened.append(1), gate.open())).start()
        dist.barrier()
        assert opened
        tutti_torch.monitored_barrier()

    each(2, body, backend="standin:tutti", timeout_s=20)


def test_data_parallel(each: Callable[..., list[Any]]) -> None:
    """DistributedDataParallel's buckets: the same parameters on all ranks as one process has with all data."""

    def body(rank: int, ranks: int, standin: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        standin.set_device(0)
        model = torch.nn.Linear(4, 3).to("standin:0")
        parallel = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.arange(32.0).reshape(8, 4) / 32
        for _ in range(3):
            optimizer.zero_grad()
            parallel(data[rank::ranks].to("standin:0")).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    alone = each(1, body)[0]
    for parameters in each(2, body):
        for own, wanted in zip(parameters, alone, strict=True):
            torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("bound", (False, True))
def test_a_group_goes_on_without_a_dead_rank(each: Callable[..., list[Any]], bound: bool) -> None:
    def body(rank: int, ranks: int, standin: Any) -> None:
        standin.set_device(rank % 2)
        dist.all_reduce(on(rank, [1.0]))
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistBackendError):
            while True:
                dist.all_reduce(torch.ones(3))
        dist.shrink_group([1])
        for tensor in (on(rank, [float(rank), 1.0]), torch.tensor([float(rank), 1.0])):
            dist.all_reduce(tensor)
            assert tensor.cpu().tolist() == [2.0, 2.0]

    each(3, body, bound=bound, dies=(1,))
