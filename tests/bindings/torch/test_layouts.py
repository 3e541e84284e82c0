"""Values arrive by index, for all strides of tensors on each rank: every collective, compared with a naive result."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ranks
import tutti_torch.horovod as hvd
from test_collectives import check

Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # actual and expected values


def contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone(memory_format=torch.contiguous_format)


def offset(values: torch.Tensor) -> torch.Tensor:
    """Contiguous, but not at the beginning of its memory."""
    memory = torch.zeros(values.numel() + 3, dtype=values.dtype)
    return memory[3:].view(values.shape).copy_(values)


def transposed(values: torch.Tensor) -> torch.Tensor:
    dims = tuple(reversed(range(values.dim())))
    return values.permute(dims).clone(memory_format=torch.contiguous_format).permute(dims)


def sliced(values: torch.Tensor) -> torch.Tensor:
    """Every second element of each row of a larger tensor."""
    memory = torch.zeros(*values.shape[:-1], 2 * values.shape[-1] + 1, dtype=values.dtype)
    return memory[..., 1::2].copy_(values)


def channels_last(values: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return values.clone(memory_format=formats[values.dim()])


def layouts_of(shape: tuple[int, ...]) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    layouts = [contiguous, offset, transposed]
    if shape:
        layouts.append(sliced)
    if len(shape) > 3:
        layouts.append(channels_last)
    return layouts


SHAPES = ((), (0,), (2, 0, 3), (7,), (4, 6), (2, 3, 4, 5), (2, 3, 2, 4, 5), (1, 3, 1, 4))


def of(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, which differ between ranks and elements."""
    values = (torch.arange(max(1, functools.reduce(lambda a, b: a * b, shape, 1))) * 7 + rank * 31) % 113
    values = values[: functools.reduce(lambda a, b: a * b, shape, 1)].view(shape)
    return (values % 2 == 0) if dtype == torch.bool else values.to(dtype)


class Rank:
    """This rank's part of a case: tensors with layouts of its own, and how operations are called."""

    def __init__(self, rank: int, size: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.rank, self.size, self.shape, self.dtype = rank, size, shape, dtype
        self.number = 0
        self.asynchronous = False

    def place(self, values: torch.Tensor) -> torch.Tensor:
        """With the next layout: in the same call another one on each rank, and for each tensor."""
        self.number += 1
        layouts = layouts_of(tuple(values.shape))
        return layouts[(self.number * (self.rank + 1) + self.rank) % len(layouts)](values)

    def given(self, other: int) -> torch.Tensor:
        return self.place(of(other, self.shape, self.dtype))

    def empty(self, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        return self.place(torch.zeros(self.shape if shape is None else shape, dtype=self.dtype))

    def values(self, other: int) -> torch.Tensor:
        return of(other, self.shape, self.dtype)

    def call(self, operation: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        work = operation(*arguments, async_op=self.asynchronous, **named)
        if self.asynchronous:
            work.get_future().wait() if self.number % 2 else work.wait()


def total(tensors: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.logical_or if tensors[0].dtype == torch.bool else torch.add, tensors)


def joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(tensors) if tensors[0].dim() == 0 else torch.cat(tensors)


def all_reduce(r: Rank) -> Pairs:
    tensor = r.given(r.rank)
    r.call(dist.all_reduce, tensor)
    return [(tensor, total([r.values(o) for o in range(r.size)]))]


def all_reduce_coalesced(r: Rank) -> Pairs:
    tensors = [r.given(r.rank), r.given(r.rank + 1)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    return [(t, total([r.values(o + i) for o in range(r.size)])) for i, t in enumerate(tensors)]


def reduce(r: Rank) -> Pairs:
    root = r.number % r.size
    tensor = r.given(r.rank)
    r.call(dist.reduce, tensor, root)
    expected = total([r.values(o) for o in range(r.size)]) if r.rank == root else r.values(r.rank)
    return [(tensor, expected)]


def broadcast(r: Rank) -> Pairs:
    root = r.number % r.size
    tensor = r.given(r.rank)
    r.call(dist.broadcast, tensor, root)
    return [(tensor, r.values(root))]


def all_gather(r: Rank) -> Pairs:
    outputs = [r.empty() for _ in range(r.size)]
    r.call(dist.all_gather, outputs, r.given(r.rank))
    return [(outputs[o], r.values(o)) for o in range(r.size)]


def all_gather_into_tensor(r: Rank) -> Pairs:
    expected = joined([r.values(o) for o in range(r.size)])
    output = r.empty(tuple(expected.shape))
    r.call(dist.all_gather_into_tensor, output, r.given(r.rank))
    return [(output, expected)]


def all_gather_coalesced(r: Rank) -> Pairs:
    expected = [joined([r.values(o + i) for o in range(r.size)]) for i in range(2)]
    outputs = [r.empty(tuple(e.shape)) for e in expected]
    with dist._coalescing_manager():
        for i in range(2):
            dist.all_gather_into_tensor(outputs[i], r.given(r.rank + i))
    return list(zip(outputs, expected))


def gather(r: Rank) -> Pairs:
    root = r.number % r.size
    outputs = [r.empty() for _ in range(r.size)] if r.rank == root else None
    r.call(dist.gather, r.given(r.rank), outputs, root)
    return [(outputs[o], r.values(o)) for o in range(r.size)] if outputs else []


def scatter(r: Rank) -> Pairs:
    root = r.number % r.size
    output = r.empty()
    r.call(dist.scatter, output, [r.given(o) for o in range(r.size)] if r.rank == root else None, root)
    return [(output, r.values(r.rank))]


def reduce_scatter(r: Rank) -> Pairs:
    output = r.empty()
    r.call(dist.reduce_scatter, output, [r.given(r.rank + o) for o in range(r.size)])
    return [(output, total([r.values(r.rank + o) for o in range(r.size)]))]


def reduce_scatter_tensor(r: Rank) -> Pairs:
    output = r.empty()
    whole = joined([r.values(r.rank + o) for o in range(r.size)])
    r.call(dist.reduce_scatter_tensor, output, r.place(whole))
    return [(output, total([r.values(r.rank + o) for o in range(r.size)]))]


def reduce_scatter_coalesced(r: Rank) -> Pairs:
    outputs = [r.empty(), r.empty()]
    with dist._coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_tensor(output, r.place(joined([r.values(r.rank + o) for o in range(r.size)])))
    expected = total([r.values(r.rank + o) for o in range(r.size)])
    return [(output, expected) for output in outputs]


def all_to_all(r: Rank) -> Pairs:
    outputs = [r.empty() for _ in range(r.size)]
    r.call(dist.all_to_all, outputs, [r.given(r.rank + 2 * o) for o in range(r.size)])
    return [(outputs[o], r.values(o + 2 * r.rank)) for o in range(r.size)]


def all_to_all_single(r: Rank) -> Pairs:
    expected = joined([r.values(o + 2 * r.rank) for o in range(r.size)])
    output = r.empty(tuple(expected.shape))
    source = r.place(joined([r.values(r.rank + 2 * o) for o in range(r.size)]))
    # Splits that one rank gives, and another one leaves out.
    rows = [expected.shape[0] // r.size] * r.size
    splits = ((None, None), (rows, rows), (rows, None), (None, rows))[(r.number + r.rank) % 4]
    r.call(dist.all_to_all_single, output, source, *splits)
    return [(output, expected)]


def send(r: Rank) -> Pairs:
    """To the right, from the left; in the call before or in one batch."""
    right, left = (r.rank + 1) % r.size, (r.rank - 1) % r.size
    output = r.empty()
    if r.size == 1:
        return []
    if r.asynchronous:
        batch = [dist.P2POp(dist.isend, r.given(r.rank), right), dist.P2POp(dist.irecv, output, left)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
    else:
        sent = dist.isend(r.given(r.rank), right)
        dist.recv(output, left)
        sent.wait()
    return [(output, r.values(left))]


MOVES = (
    broadcast,
    all_gather,
    all_gather_into_tensor,
    all_gather_coalesced,
    gather,
    scatter,
    all_to_all,
    all_to_all_single,
    send,
)
REDUCTIONS = (
    all_reduce,
    all_reduce_coalesced,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    reduce_scatter_coalesced,
)


def run_all(rank: int, size: int, operations: Any, shapes: Any, dtype: torch.dtype, rounds: int) -> None:
    for shape in shapes:
        for operation in operations:
            place = Rank(rank, size, shape, dtype)
            for number in range(rounds):
                for place.asynchronous in (False, True):
                    place.number = number  # the same on all ranks
                    what = f"{operation.__name__} {shape} {dtype} asynchronous {place.asynchronous} {number}"
                    for actual, expected in operation(place):
                        check(actual.clone(memory_format=torch.contiguous_format).view(-1), expected.reshape(-1), what)


@pytest.mark.parametrize("operation", MOVES + REDUCTIONS, ids=lambda operation: operation.__name__)
def test_layouts_that_differ_between_ranks(operation: Callable[[Rank], Pairs]) -> None:
    def body(rank: int, size: int) -> None:
        run_all(rank, size, (operation,), SHAPES, torch.float32, 6)

    ranks.run(3, body)


@pytest.mark.parametrize("dtype", (torch.complex64, torch.bool, torch.bfloat16, torch.int64), ids=str)
def test_layouts_of_other_types(dtype: torch.dtype) -> None:
    def body(rank: int, size: int) -> None:
        run_all(rank, size, MOVES + REDUCTIONS, ((4, 6), (2, 3, 4, 5)), dtype, 3)

    ranks.run(2, body)


@pytest.mark.parametrize("dtype", (torch.float8_e4m3fnuz, torch.uint16, torch.complex128), ids=str)
def test_layouts_of_types_that_are_only_moved(dtype: torch.dtype) -> None:
    def body(rank: int, size: int) -> None:
        run_all(rank, size, MOVES, ((2, 3, 4, 5),), dtype, 3)

    ranks.run(2, body)


def test_futures_fire_when_outputs_are_filled() -> None:
    def body(rank: int, size: int) -> None:
        tensor = transposed(of(rank, (300, 500)))
        expected = total([of(o, (300, 500)) for o in range(size)])
        future = dist.all_reduce(tensor, async_op=True).get_future()
        seen = future.then(lambda done: torch.equal(done.value()[0], expected)).wait()
        assert seen and torch.equal(tensor, expected)
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            pass
        assert torch.equal(tensor, size * expected)

    ranks.run(2, body)


def test_inputs_may_be_expanded() -> None:
    def body(rank: int, size: int) -> None:
        row = torch.arange(3.0) + 10 * rank
        wide, whole = row.expand(4, 3), row.expand(2 * size, 3)
        outputs = [torch.zeros(4, 3) for _ in range(size)]
        dist.all_gather(outputs, wide)
        for other in range(size):
            check(outputs[other], (torch.arange(3.0) + 10 * other).expand(4, 3))
        output = torch.zeros(2, 3)
        dist.reduce_scatter_tensor(output, whole)
        check(output, total([(torch.arange(3.0) + 10 * o).expand(2, 3) for o in range(size)]))
        if rank == 0:
            dist.send(wide, 1)
            dist.broadcast(wide, 0)
        else:
            dist.recv(outputs[0].zero_(), 0)
            dist.broadcast(outputs[1].zero_(), 0)
            for received in outputs:
                check(received, torch.arange(3.0).expand(4, 3))

    ranks.run(2, body)


def test_outputs_whose_elements_share_memory_are_refused() -> None:
    def body(rank: int, size: int) -> None:
        strided = torch.zeros(13).as_strided((3, 3), (2, 4))
        for output in (torch.zeros(3).expand(4, 3), torch.zeros(6).unfold(0, 3, 1), strided):
            with pytest.raises(RuntimeError, match="elements of an output tensor share memory"):
                dist.all_reduce(output)
            with pytest.raises(RuntimeError, match="elements of an output tensor share memory"):
                dist.all_gather([torch.zeros_like(output), output], torch.zeros(output.shape))
        # Not nested, but no two elements share an address.
        output = torch.zeros(8).as_strided((3, 2), (2, 3))
        dist.all_reduce(output.copy_(of(rank, (3, 2))))
        check(output.contiguous(), total([of(o, (3, 2)) for o in range(size)]))

    ranks.run(2, body)


def test_outputs_that_are_interleaved() -> None:
    """Columns of one matrix do not share memory; columns that overlap do."""

    def body(rank: int, size: int) -> None:
        matrix = torch.zeros(50, size)
        dist.all_gather(list(matrix.unbind(1)), of(rank, (50,)))
        check(matrix.t().contiguous(), torch.stack([of(o, (50,)) for o in range(size)]))
        wide = torch.zeros(50, size + 1)
        with pytest.raises(RuntimeError, match="output tensors 1 and 2 share memory"):
            dist.all_gather([wide[:, 0:1], wide[:, 2:4], wide[:, 1:3]], of(rank, (50, 1 + (rank > 0))))
        with pytest.raises(RuntimeError, match="output tensors 0 and 1 share memory"):
            dist.all_gather([matrix[0], matrix[:, 1][:3], torch.zeros(3)], of(rank, (3,)))

    ranks.run(3, body)


def test_tensors_of_inference_mode() -> None:
    def body(rank: int, size: int) -> None:
        with torch.inference_mode():
            tensor = transposed(of(rank, (40, 60)))
            work = dist.all_reduce(tensor, async_op=True)
        assert work.get_future().wait()[0] is not None
        check(tensor.contiguous(), total([of(o, (40, 60)) for o in range(size)]))

    ranks.run(2, body)


def test_a_tensor_that_gets_other_memory_meanwhile() -> None:
    def body(rank: int, size: int) -> None:
        tensor = transposed(of(rank, (40, 60)))
        before = tensor.detach()
        work = dist.all_reduce(tensor, async_op=True)
        tensor.data = torch.zeros(3)
        work.wait()
        assert tensor.tolist() == [0, 0, 0]
        check(before.contiguous(), total([of(o, (40, 60)) for o in range(size)]))

    ranks.run(2, body)


def test_functional_collectives() -> None:
    import torch.distributed._functional_collectives as functional

    def body(rank: int, size: int) -> None:
        group, shape = dist.group.WORLD, (4, 3, 5, 6)
        for layout in layouts_of(shape):
            mine = layout(of(rank, shape))
            every = [of(o, shape) for o in range(size)]
            check(functional.all_reduce(mine, "sum", group).contiguous(), total(every))
            check(functional.all_gather_tensor(mine, 0, group).contiguous(), torch.cat(every))
            check(functional.all_gather_tensor(mine, 2, group).contiguous(), torch.cat(every, 2))
            part = functional.reduce_scatter_tensor(mine, "sum", 0, group)
            check(part.contiguous(), total(every).chunk(size)[rank].contiguous())
            moved = functional.all_to_all_single(mine, None, None, group)
            check(moved.contiguous(), torch.cat([e.chunk(size)[rank] for e in every]))
            check(functional.broadcast(mine, 1, group).contiguous(), every[1])

    ranks.run(2, body)


def test_horovod() -> None:
    def body(rank: int, size: int) -> None:
        hvd.init()
        shape = (4, 3, 5, 6)
        for number, _ in enumerate(layouts_of(shape)):
            layouts = layouts_of(shape)
            mine = layouts[(number + rank) % len(layouts)](of(rank, shape))
            every = [of(o, shape) for o in range(size)]
            check(hvd.allreduce(mine, op=hvd.Sum).contiguous(), total(every))
            check(hvd.allgather(mine), torch.cat(every))
            check(hvd.alltoall(mine), torch.cat([e.chunk(size)[rank] for e in every]))
            check(hvd.reducescatter(mine, op=hvd.Sum).contiguous(), total(every).chunk(size)[rank].contiguous())
            check(hvd.grouped_allreduce([mine, mine], op=hvd.Sum)[1].contiguous(), total(every))
            check(hvd.broadcast(mine, 1).contiguous(), every[1])
            in_place = mine.clone()
            assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
            check(in_place.contiguous(), total(every))
            check(hvd.broadcast_(mine, 1).contiguous(), every[1])
            check(mine.contiguous(), every[1])
        hvd.shutdown()

    ranks.run(2, body)
