"""Every collective of torch.distributed, compared with its documentation."""

import functools
import operator
import time

import pytest
import torch
import torch.distributed as dist

import ranks

RANKS = (1, 2, 3, 4)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOVED = FLOATS + INTEGERS + UNSIGNED + COMPLEX + FLOAT8 + (torch.bool, torch.float8_e4m3fnuz)
SIZES = (0, 1, 7, 1000, 70_000)


def of(rank: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers that differ between ranks and elements."""
    values = (torch.arange(size) * 3 + rank * 5) % 4
    if dtype == torch.bool:
        return values % 2 == 0
    return values.to(torch.float32).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def check(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    assert same(actual.contiguous(), expected.contiguous()), f"{what}: {actual} is not {expected}"


def reduced(op: dist.ReduceOp, inputs: list[torch.Tensor]) -> torch.Tensor:
    combine = {
        dist.ReduceOp.SUM: operator.add,
        dist.ReduceOp.AVG: operator.add,
        dist.ReduceOp.PRODUCT: operator.mul,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: operator.and_,
        dist.ReduceOp.BOR: operator.or_,
        dist.ReduceOp.BXOR: operator.xor,
    }[op]
    result = functools.reduce(combine, inputs)
    return result / len(inputs) if op == dist.ReduceOp.AVG else result


ARITHMETIC = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
BITWISE = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)


@pytest.mark.parametrize("n", RANKS)
def test_all_reduce(n: int) -> None:
    def body(rank: int, ranks: int) -> None:
        cases = [(dtype, op) for dtype in FLOATS + INTEGERS for op in ARITHMETIC]
        cases += [(dtype, op) for dtype in INTEGERS for op in BITWISE]
        cases += [(dtype, dist.ReduceOp.AVG) for dtype in (torch.float32, torch.float64)]
        for dtype, op in cases:
            for size in SIZES[:4]:
                tensor = of(rank, size, dtype)
                dist.all_reduce(tensor, op=op)
                expected = reduced(op, [of(r, size, dtype) for r in range(ranks)])
                check(tensor, expected.to(dtype), f"{dtype} {op} {size}")

    ranks.run(n, body)


def test_all_reduce_of_complex_numbers_and_float8() -> None:
    def body(rank: int, ranks: int) -> None:
        for dtype in COMPLEX:
            tensor = (of(rank, 100) + 1j * of(rank + 1, 100)).to(dtype)
            dist.all_reduce(tensor)
            check(tensor, sum((of(r, 100) + 1j * of(r + 1, 100)).to(dtype) for r in range(ranks)))
        for dtype in FLOAT8:
            tensor = of(rank, 100, dtype)
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            expected = functools.reduce(torch.maximum, [of(r, 100) for r in range(ranks)])
            check(tensor, expected.to(dtype))

    ranks.run(2, body)


def test_all_reduce_of_booleans() -> None:
    def body(rank: int, ranks: int) -> None:
        inputs = [of(r, 50, torch.bool) for r in range(ranks)]
        for op, combine in (
            (dist.ReduceOp.SUM, torch.logical_or),
            (dist.ReduceOp.MAX, torch.logical_or),
            (dist.ReduceOp.PRODUCT, torch.logical_and),
            (dist.ReduceOp.BAND, torch.logical_and),
            (dist.ReduceOp.BXOR, torch.logical_xor),
        ):
            tensor = of(rank, 50, torch.bool)
            dist.all_reduce(tensor, op=op)
            check(tensor, functools.reduce(combine, inputs), str(op))

    ranks.run(3, body)


def test_pre_multiplied_sum() -> None:
    def body(rank: int, ranks: int) -> None:
        for factor in (0.5, torch.tensor([2.0])):
            for sync in (True, False):
                tensor = torch.full((1000,), float(rank + 1))
                work = dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor), async_op=not sync)
                if work is not None:
                    work.wait()
                check(tensor, torch.full((1000,), float(factor) * sum(range(1, ranks + 1))))

    ranks.run(3, body)


def test_tensors_in_any_memory_format_and_place() -> None:
    def body(rank: int, ranks: int) -> None:
        tensor = torch.full((2, 3, 4, 5), float(rank)).contiguous(memory_format=torch.channels_last)
        dist.all_reduce(tensor)
        check(tensor, torch.full((2, 3, 4, 5), float(sum(range(ranks)))))
        whole = torch.zeros(100)
        part = whole[3:17]
        part += rank
        dist.all_reduce(part)
        check(whole[3:17], torch.full((14,), float(sum(range(ranks)))))
        assert whole[:3].sum() == 0 and whole[17:].sum() == 0
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar.item() == sum(range(ranks))

    ranks.run(2, body)


def test_sparse_tensors() -> None:
    def body(rank: int, ranks: int) -> None:
        def of_rank(r: int) -> torch.Tensor:
            rows = torch.tensor([[0, r + 1, 5, 5][: r + 2]])
            return torch.sparse_coo_tensor(rows, torch.full((rows.shape[1], 3), float(r + 1)), (7, 3))

        expected = sum(of_rank(r).to_dense() for r in range(ranks))
        for async_op in (False, True):
            tensor = of_rank(rank)
            work = dist.all_reduce(tensor, async_op=async_op)
            if work is not None:
                work.wait()
            check(tensor.to_dense(), expected)
        nothing = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (4,))
        dist.all_reduce(nothing)
        assert nothing.to_dense().sum() == 0

    ranks.run(3, body)


@pytest.mark.parametrize("n", RANKS)
def test_broadcast_and_reduce(n: int) -> None:
    def body(rank: int, ranks: int) -> None:
        for root in range(ranks):
            for dtype in MOVED:
                tensor = of(rank, 33, dtype)
                dist.broadcast(tensor, root)
                check(tensor, of(root, 33, dtype), f"{dtype}")
            for size in SIZES:
                tensor = of(rank, size)
                dist.reduce(tensor, root)
                if rank == root:
                    check(tensor, sum(of(r, size) for r in range(ranks)))

    ranks.run(n, body)


@pytest.mark.parametrize("n", RANKS)
def test_gathering(n: int) -> None:
    def body(rank: int, ranks: int) -> None:
        for dtype in MOVED:
            for size in SIZES[:4]:
                outputs = [torch.zeros(size).to(dtype) for _ in range(ranks)]
                dist.all_gather(outputs, of(rank, size, dtype))
                for r in range(ranks):
                    check(outputs[r], of(r, size, dtype), f"{dtype}")
        for size in SIZES:
            joined = torch.zeros(size * ranks)
            dist.all_gather_into_tensor(joined, of(rank, size))
            check(joined, torch.cat([of(r, size) for r in range(ranks)]))
            for root in range(ranks):
                outputs = [torch.zeros(size) for _ in range(ranks)] if rank == root else None
                dist.gather(of(rank, size), outputs, dst=root)
                for r in range(ranks if rank == root else 0):
                    check(outputs[r], of(r, size))

    ranks.run(n, body)


def test_gathering_tensors_of_different_sizes() -> None:
    def body(rank: int, ranks: int) -> None:
        outputs = [torch.zeros(3 * r + 1) for r in range(ranks)]
        dist.all_gather(outputs, of(rank, 3 * rank + 1))
        for r in range(ranks):
            check(outputs[r], of(r, 3 * r + 1))

    ranks.run(3, body)


def test_tensors_that_no_element_aligns() -> None:
    """numpy's and frombuffer's may lie anywhere; other ranks' lie as usual."""

    def body(rank: int, ranks: int) -> None:
        outputs = [
            torch.frombuffer(bytearray(4 * 10 + 8), dtype=torch.float32, offset=rank * r, count=10)
            for r in range(ranks)
        ]
        dist.all_gather(outputs, of(rank, 10))
        for r in range(ranks):
            check(outputs[r].clone(), of(r, 10))

    ranks.run(3, body)


@pytest.mark.parametrize("n", RANKS)
def test_scatter_and_reduce_scatter(n: int) -> None:
    def body(rank: int, ranks: int) -> None:
        for size in SIZES:
            for root in range(ranks):
                output = torch.zeros(size)
                inputs = [of(r + root, size) for r in range(ranks)] if rank == root else None
                dist.scatter(output, inputs, src=root)
                check(output, of(rank + root, size))
            output = torch.zeros(size)
            dist.reduce_scatter(output, [of(rank + r, size) for r in range(ranks)])
            check(output, sum(of(rank + r, size) for r in range(ranks)))
            output = torch.zeros(size)
            dist.reduce_scatter_tensor(output, torch.cat([of(rank + r, size) for r in range(ranks)]))
            check(output, sum(of(rank + r, size) for r in range(ranks)))
        output = torch.zeros(rank + 1)
        dist.reduce_scatter(output, [of(rank, r + 1) for r in range(ranks)])
        check(output, sum(of(r, rank + 1) for r in range(ranks)))

    ranks.run(n, body)


@pytest.mark.parametrize("n", RANKS)
def test_all_to_all(n: int) -> None:
    def body(rank: int, ranks: int) -> None:
        for size in SIZES:
            outputs = [torch.zeros(size) for _ in range(ranks)]
            dist.all_to_all(outputs, [of(10 * rank + r, size) for r in range(ranks)])
            for r in range(ranks):
                check(outputs[r], of(10 * r + rank, size))
            output = torch.zeros(ranks * size, 2)
            dist.all_to_all_single(output, torch.cat([of(10 * rank + r, 2 * size).view(size, 2) for r in range(ranks)]))
            check(output, torch.cat([of(10 * r + rank, 2 * size).view(size, 2) for r in range(ranks)]))
        # Row counts of its own for each pair.
        sends = [(rank + r) % 3 for r in range(ranks)]
        output = torch.zeros(sum(sends), 5)
        source = torch.cat([of(10 * rank + r, 5 * sends[r]).view(-1, 5) for r in range(ranks)])
        dist.all_to_all_single(output, source, sends, sends)
        check(output, torch.cat([of(10 * r + rank, 5 * sends[r]).view(-1, 5) for r in range(ranks)]))

    ranks.run(n, body)


def test_objects() -> None:
    def body(rank: int, ranks: int) -> None:
        objects = [None] * ranks
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * 100 * rank})
        assert [o["rank"] for o in objects] == list(range(ranks))
        shared = [rank, "from rank"] if rank == 1 else [None, None]
        dist.broadcast_object_list(shared, src=1)
        assert shared == [1, "from rank"]
        gathered = [None] * ranks if rank == 0 else None
        dist.gather_object((rank, "y" * rank), gathered, dst=0)
        assert rank != 0 or gathered == [(r, "y" * r) for r in range(ranks)]
        own = [None]
        dist.scatter_object_list(own, [f"for {r}" for r in range(ranks)] if rank == 2 else None, src=2)
        assert own == [f"for {rank}"]

    ranks.run(3, body)


def test_a_barrier_that_is_coalesced_alone_waits() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            time.sleep(1)
            store.set("comes", "")
        group = dist.group.WORLD
        group._start_coalescing(torch.device("cpu"))
        dist.barrier()
        group._end_coalescing(torch.device("cpu")).wait()
        assert store.check(["comes"])

    ranks.run(2, body)


def test_sparse_tensors_are_not_coalesced() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD
        group._start_coalescing(torch.device("cpu"))
        dist.all_reduce(torch.eye(3).to_sparse())
        with pytest.raises(RuntimeError, match="cannot be coalesced"):
            group._end_coalescing(torch.device("cpu"))
        # The list has ended with that.
        with pytest.raises(RuntimeError, match="without start_coalescing"):
            group._end_coalescing(torch.device("cpu"))
        dist.all_reduce(torch.ones(3))

    ranks.run(2, body)


def test_coalesced_collectives() -> None:
    def body(rank: int, ranks: int) -> None:
        tensors = [of(rank, size) for size in (1, 100, 5000)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in tensors:
            check(tensor, sum(of(r, tensor.numel()) for r in range(ranks)))
        outputs = [torch.zeros(size * ranks) for size in (1, 100, 5000)]
        with dist._coalescing_manager():
            for output in outputs:
                dist.all_gather_into_tensor(output, of(rank, output.numel() // ranks))
        for output in outputs:
            check(output, torch.cat([of(r, output.numel() // ranks) for r in range(ranks)]))
        outputs = [torch.zeros(size) for size in (1, 100, 5000)]
        with dist._coalescing_manager():
            for output in outputs:
                dist.reduce_scatter_tensor(output, of(rank, output.numel() * ranks))
        for output in outputs:
            size = output.numel()
            check(output, sum(of(r, size * ranks)[rank * size : (rank + 1) * size] for r in range(ranks)))
        # With the backend's own start and end.
        tensors = [of(rank, 10), of(rank, 20)]
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            dist.broadcast(tensors[0], 1)
            dist.all_reduce(tensors[1])
        manager.wait()
        check(tensors[0], of(1, 10))

    ranks.run(3, body)


def test_functional_collectives() -> None:
    import torch.distributed._functional_collectives as functional

    def body(rank: int, ranks: int) -> None:
        group = dist.group.WORLD
        check(functional.all_reduce(of(rank, 100), "sum", group).clone(), sum(of(r, 100) for r in range(ranks)))
        gathered = functional.all_gather_tensor(of(rank, 100), 0, group)
        check(gathered.clone(), torch.cat([of(r, 100) for r in range(ranks)]))
        scattered = functional.reduce_scatter_tensor(of(rank, 100 * ranks), "sum", 0, group)
        check(scattered.clone(), sum(of(r, 100 * ranks)[rank * 100 : (rank + 1) * 100] for r in range(ranks)))
        moved = functional.all_to_all_single(of(rank, 10 * ranks), None, None, group)
        expected = torch.cat([of(r, 10 * ranks)[rank * 10 : (rank + 1) * 10] for r in range(ranks)])
        check(moved.clone(), expected)
        together = functional.all_reduce_coalesced([of(rank, 3), of(rank, 4)], "sum", group)
        check(together[1].clone(), sum(of(r, 4) for r in range(ranks)))

    ranks.run(2, body)


def test_barrier() -> None:
    def body(rank: int, ranks: int) -> None:
        dist.barrier()
        dist.barrier(async_op=True).wait()

    ranks.run(4, body)
