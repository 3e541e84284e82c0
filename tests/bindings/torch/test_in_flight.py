"""Operations that are in flight together see each other's results, whatever the layouts of their tensors."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ranks
from test_collectives import check
from test_layouts import channels_last, contiguous, of, sliced, transposed

Layout = Callable[[torch.Tensor], torch.Tensor]
Call = Callable[..., Any]


class Tensors:
    """What the operations of a chain read and write, in one layout."""

    def __init__(self, layout: Layout, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        block = (size, 3, 4, 5)
        self.x = layout(of(rank, block))
        self.y = layout(of(rank + 1, block))
        self.wide = layout(of(rank + 2, (size * size, 3, 4, 5)))
        self.parts = [layout(of(rank + o, block)) for o in range(size)]
        self.others = [layout(of(rank + 3 + o, block)) for o in range(size)]

    def all(self) -> list[torch.Tensor]:
        return [self.x, self.y, self.wide, *self.parts, *self.others]


def reductions(t: Tensors) -> list[Call]:
    return [
        lambda **named: dist.all_reduce(t.x, **named),
        lambda **named: dist.reduce(t.x, 0, **named),
        lambda **named: dist.all_reduce(t.x, **named),
    ]


def broadcasts(t: Tensors) -> list[Call]:
    return [
        lambda **named: dist.all_reduce(t.x, **named),
        lambda **named: dist.reduce(t.x, 1, **named),
        lambda **named: dist.broadcast(t.x, 1, **named),
        lambda **named: dist.broadcast(t.x, 0, **named),
        lambda **named: dist.all_reduce(t.x, **named),
    ]


def whole_tensors(t: Tensors) -> list[Call]:
    return [
        lambda **named: dist.all_reduce(t.x, **named),
        lambda **named: dist.all_gather_into_tensor(t.wide, t.x, **named),
        lambda **named: dist.reduce_scatter_tensor(t.x, t.wide, **named),
        lambda **named: dist.all_to_all_single(t.y, t.x, **named),
        lambda **named: dist.all_to_all_single(t.x, t.y, **named),
        lambda **named: dist.all_reduce(t.x, **named),
    ]


def lists(t: Tensors) -> list[Call]:
    return [
        lambda **named: dist.all_reduce(t.x, **named),
        lambda **named: dist.all_gather(t.parts, t.x, **named),
        lambda **named: dist.all_reduce(t.parts[0], **named),
        lambda **named: dist.reduce_scatter(t.x, t.parts, **named),
        lambda **named: dist.all_to_all(t.others, t.parts, **named),
        lambda **named: dist.all_reduce(t.others[1], **named),
        lambda **named: dist.all_to_all(t.parts, t.others, **named),
    ]


def roots(t: Tensors) -> list[Call]:
    at_root = t.parts if t.rank == 0 else None
    return [
        lambda **named: dist.all_reduce(t.x, **named),
        lambda **named: dist.gather(t.x, at_root, 0, **named),
        lambda **named: dist.all_reduce(t.parts[1], **named),
        lambda **named: dist.scatter(t.x, at_root, 0, **named),
        lambda **named: dist.all_reduce(t.x, **named),
    ]


def gloo_forms(t: Tensors) -> list[Call]:
    def wait(work: Any, async_op: bool) -> Any:
        return work if async_op else work.wait()

    group = dist.group.WORLD
    # Each rank's two inputs, in two lists.
    gathered, gathered_too = t.parts + t.others, [torch.zeros_like(t.x) for _ in range(2 * t.size)]
    return [
        lambda async_op: dist.all_reduce(t.x, async_op=async_op),
        lambda async_op: wait(group.allreduce([t.x, t.y]), async_op),
        lambda async_op: wait(group.broadcast([t.y, t.parts[0]], dist.BroadcastOptions()), async_op),
        lambda async_op: dist.all_reduce(t.parts[0], async_op=async_op),
        lambda async_op: wait(group.allgather([gathered, gathered_too], [t.x, t.y]), async_op),
        lambda async_op: dist.all_reduce(t.others[0], async_op=async_op),
    ]


def coalesced(t: Tensors) -> list[Call]:
    def together(async_op: bool) -> Any:
        with dist._coalescing_manager(async_ops=async_op) as manager:
            for tensor in (t.x, t.y):
                dist.all_reduce(tensor)
        return manager

    def first(async_op: bool) -> Any:
        return dist.all_reduce(t.x, async_op=async_op)

    return [first, together, together, first]


CHAINS = (reductions, broadcasts, whole_tensors, lists, roots, gloo_forms, coalesced)
LAYOUTS = (contiguous, transposed, sliced, channels_last)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
def test_operations_in_flight_see_each_others_results(chain: Callable[[Tensors], list[Call]]) -> None:
    def body(rank: int, size: int) -> None:
        expected = Tensors(contiguous, rank, size)
        for call in chain(expected):
            call(async_op=False)
        for layout in LAYOUTS:
            for mixed in (False, True):
                t = Tensors(layout, rank, size)
                works = []
                for number, call in enumerate(chain(t)):
                    blocks = mixed and number % 2 == 1
                    work = call(async_op=not blocks)
                    if not blocks:
                        works.append(work)
                for work in reversed(works):
                    work.wait()
                for actual, wanted in zip(t.all(), expected.all()):
                    what = f"{chain.__name__} {layout.__name__} mixed {mixed}"
                    check(actual.clone(memory_format=torch.contiguous_format), wanted, what)

    ranks.run(2, body)


@pytest.mark.parametrize("order", ("view first", "base first"))
def test_a_view_and_its_base_in_flight(order: str) -> None:
    def body(rank: int, size: int) -> None:
        for waits in (list, reversed):
            base = torch.ones(64, 48)
            pair = [base.t(), base] if order == "view first" else [base, base.t()]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in pair * 2]
            for work in waits(works):
                work.wait()
            check(base, torch.full((64, 48), 16.0))
            # A blocking call after them.
            works = [dist.all_reduce(tensor, async_op=True) for tensor in pair]
            dist.all_reduce(base)
            check(base, torch.full((64, 48), 128.0))
            works = [dist.all_reduce(base, async_op=True)]
            dist.all_reduce(base.t())
            check(base, torch.full((64, 48), 512.0))
            for work in works:
                work.wait()

    ranks.run(2, body)


def test_messages_in_flight_to_and_from_one_tensor() -> None:
    def body(rank: int, size: int) -> None:
        for tag in (0, 3):
            base = torch.zeros(64, 48)
            view = base.t()
            if rank == 0:
                works = [dist.isend(of(i, tuple(t.shape)), 1, tag=tag) for i, t in enumerate([view, base, view])]
            else:
                works = [dist.irecv(t, 0, tag=tag) for t in (view, base, view)]
            for work in reversed(works):
                work.wait()
            if rank == 1:
                check(view.contiguous(), of(2, (48, 64)))

    ranks.run(2, body)


def test_an_operation_that_fails_leaves_its_outputs() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            store.wait(["called"])
            os._exit(0)
        tensor = transposed(of(3, (40, 60)))
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
        store.set("called", "all three")
        for work in reversed(works):
            with pytest.raises(dist.DistBackendError, match="rank 1"):
                work.wait()
        check(tensor.contiguous(), of(3, (40, 60)))

    ranks.run(2, body, dies=(1,))
