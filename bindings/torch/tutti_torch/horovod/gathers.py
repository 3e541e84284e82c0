"""Operations that move tensors. Blocks of ranks lie one behind the other along the first dimension."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tutti_torch.horovod import job
from tutti_torch.horovod.compression import Compression
from tutti_torch.horovod.handles import Handle, failing
from tutti_torch.horovod.reductions import (
    Average,
    ReduceOp,
    Sum,
    allreduce_async,
    check_has_gradient,
    chosen_op,
    planned,
    scale,
)


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> Handle:
    """The tensors of all ranks, which may differ in their first dimension. Waits until all have told theirs."""
    mine = tensor.detach()
    if mine.dim() == 0:
        raise ValueError("allgather takes tensors with a first dimension: give tensor.unsqueeze(0)")
    with failing():
        rows = job.gather_numbers(mine.shape[0])
        output = mine.new_empty((sum(rows), *mine.shape[1:]))
        work = dist.all_gather(list(output.split(rows)), mine, group=job.current().group, async_op=True)
    return Handle([work], lambda: output)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.rows = tensor.shape[0]
        return allgather_async(tensor).synchronize()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = allreduce_async(gradients[0], op=Sum).synchronize()
        return reduced.split(job.gather_numbers(ctx.rows))[job.rank()]


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """As allgather_async, at once; gradients flow through it."""
    return _AllGather.apply(tensor)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Fills the tensor with root's."""
    with failing():
        work = dist.broadcast(tensor.detach(), group_src=root_rank, group=job.current().group, async_op=True)
    return Handle([work], lambda: tensor)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Root's tensor, in a new one."""
    return broadcast_async_(tensor.detach().clone(), root_rank, name)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
        ctx.root_rank = root_rank
        return broadcast_async(tensor, root_rank).synchronize()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = allreduce_async(gradients[0], op=Sum).synchronize()
        return (reduced if job.rank() == ctx.root_rank else torch.zeros_like(reduced)), None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Root's tensor, in a new one, through which gradients flow."""
    return _Broadcast.apply(tensor, root_rank)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Fills the tensor with root's."""
    return broadcast_async_(tensor, root_rank, name).synchronize()


def alltoall_async(
    tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None = None, name: str | None = None
) -> Handle:
    """splits[r] items of the tensor go to rank r, equal parts where splits is None. Waits until all have told theirs.

    The output is what has come from the ranks; with splits, a pair of that and how much has come from each.
    """
    mine, size = tensor.detach(), job.size()
    if splits is None and (mine.dim() == 0 or mine.shape[0] % size):
        raise ValueError(
            f"a tensor of shape {tuple(mine.shape)} cannot be divided into {size} equal parts: give splits"
        )
    sent = [mine.shape[0] // size] * size if splits is None else [int(count) for count in splits]
    if len(sent) != size or sum(sent) != mine.shape[0] or min(sent) < 0:
        raise ValueError(f"splits is {sent}: give {size} numbers, 0 or more, whose sum is {mine.shape[0]}")
    with failing():
        counts = torch.empty(size, dtype=torch.int64)
        dist.all_to_all_single(counts, torch.tensor(sent), group=job.current().group)
        received: list[int] = counts.tolist()
        output = mine.new_empty((sum(received), *mine.shape[1:]))
        work = dist.all_to_all_single(output, mine, received, sent, group=job.current().group, async_op=True)
    return Handle([work], lambda: output if splits is None else (output, counts.to(torch.int32)))


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: list[int]) -> Any:
        output, received = alltoall_async(tensor, splits).synchronize()
        ctx.received = received.tolist()
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return alltoall_async(gradients[0], ctx.received).synchronize()[0], None


def alltoall(tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None = None, name: str | None = None) -> Any:
    """As alltoall_async, at once; gradients flow through it."""
    if splits is None:
        size = job.size()
        if tensor.dim() == 0 or tensor.shape[0] % size:
            return alltoall_async(tensor).synchronize()  # which says what is wrong
        return _AllToAll.apply(tensor, [tensor.shape[0] // size] * size)[0]
    return _AllToAll.apply(tensor, [int(count) for count in splits])


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """This rank's part of the combined tensors; where they cannot be divided evenly, the first ranks have one more."""
    mine, size = tensor.detach(), job.size()
    if mine.dim() == 0:
        raise ValueError("reducescatter takes tensors with a first dimension")
    operator, before, after = planned(chosen_op(op), mine.dtype, prescale_factor, postscale_factor)
    if before != 1.0:
        mine = scale(mine.clone(), before)
    least, more = divmod(mine.shape[0], size)
    parts = list(mine.split([least + (other < more) for other in range(size)]))
    output = torch.empty_like(parts[job.rank()])
    with failing():
        work = dist.reduce_scatter(output, parts, operator, group=job.current().group, async_op=True)
    return Handle([work], lambda: scale(output, after))


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: ReduceOp, before: float, after: float) -> torch.Tensor:
        ctx.arguments = (op, before, after)
        return reducescatter_async(tensor, None, op, before, after).synchronize()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, before, after = ctx.arguments
        check_has_gradient(op)
        factor = before * after / (job.size() if op is Average else 1)
        return scale(allgather_async(gradients[0]).synchronize(), factor), None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """As reducescatter_async, at once, and compressed on the way; gradients flow through it."""
    shorter, context = compression.compress(tensor)
    reduced: torch.Tensor = _ReduceScatter.apply(shorter, chosen_op(op), prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def barrier() -> None:
    """Returns when all ranks have called it."""
    with failing():
        dist.barrier(group=job.current().group)
