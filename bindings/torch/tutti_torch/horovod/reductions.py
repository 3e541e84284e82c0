"""All-reduces. ``op`` is Average where it is not given; the factors scale before and after the reduction."""

import enum
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tutti_torch.horovod import job
from tutti_torch.horovod.compression import Compression
from tutti_torch.horovod.handles import Handle, failing
from tutti_torch.horovod.joining import announce


class ReduceOp(enum.Enum):
    Average = "average"
    Sum = "sum"
    Min = "min"
    Max = "max"
    Product = "product"


Average, Sum, Min, Max, Product = ReduceOp
_OPERATORS = {
    Average: dist.ReduceOp.AVG,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}


def chosen_op(op: ReduceOp | None, average: bool | None = None) -> ReduceOp:
    """``average`` is Horovod's older way to say it."""
    if average is not None:
        if op is not None:
            raise ValueError("give op or average, not both")
        return Average if average else Sum
    if op is not None and op not in _OPERATORS:
        raise ValueError(f"op is {op!r}: give one of Average, Sum, Min, Max and Product")
    return op or Average


def planned(
    op: ReduceOp, dtype: torch.dtype, prescale_factor: float, postscale_factor: float
) -> tuple[dist.ReduceOp.RedOpType, float, float]:
    """torch's operator, and the factors before and after it.

    An average of 16-bit numbers is the sum of what each rank has divided first, as in Horovod over NCCL: the sum of
    undivided numbers may exceed what the type holds.
    """
    if op is Average and dtype in (torch.float16, torch.bfloat16):
        return dist.ReduceOp.SUM, prescale_factor / job.size(), postscale_factor
    return _OPERATORS[op], prescale_factor, postscale_factor


def scale(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """In place. Integers are rounded towards zero."""
    if factor == 1.0:
        return tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.mul_(factor)
    return tensor.copy_(tensor.double() * factor)


def start_reduction(tensor: torch.Tensor, op: ReduceOp, prescale_factor: float, postscale_factor: float) -> Handle:
    """In place; the output is the tensor."""
    operator, before, after = planned(op, tensor.dtype, prescale_factor, postscale_factor)
    scale(tensor, before)
    with failing():
        announce(tensor, operator)
        work = dist.all_reduce(tensor, operator, group=job.current().group, async_op=True)
    return Handle([work], lambda: scale(tensor, after))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Combines the tensors of all ranks in place."""
    with torch.no_grad():
        handle = start_reduction(_dense(tensor), chosen_op(op, average), prescale_factor, postscale_factor)
    return handle.followed_by(lambda _: tensor)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_sparse:
        raise ValueError("all-reduces take dense tensors: give tensor.to_dense()")
    return tensor.detach()


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Combines the tensors of all ranks in a new one."""
    copy = _dense(tensor).clone(memory_format=torch.contiguous_format)
    return start_reduction(copy, chosen_op(op, average), prescale_factor, postscale_factor)


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: ReduceOp, before: float, after: float) -> torch.Tensor:
        ctx.arguments = (op, before, after)
        return allreduce_async(tensor, None, None, op, before, after).synchronize()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        check_has_gradient(ctx.arguments[0])
        return allreduce_async(gradients[0], None, None, *ctx.arguments).synchronize(), None, None, None


def check_has_gradient(op: ReduceOp) -> None:
    if op not in (Average, Sum):
        raise ValueError(f"no gradient is known for a reduction with {op}")


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensors of all ranks in a new one, through which gradients flow."""
    chosen = chosen_op(op, average)
    shorter, context = compression.compress(tensor)
    reduced: torch.Tensor = _AllReduce.apply(shorter, chosen, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensors of all ranks in place."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor).synchronize()


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Combines each of the tensors in place, all of a dtype in one operation."""
    outputs = list(tensors)
    parts = [_start_fused(alike, op, average, prescale_factor, postscale_factor) for alike in by_dtype(outputs)]

    return Handle(parts, lambda: outputs)


def by_dtype(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The tensors in lists of one dtype each, in the order of their first ones."""
    found: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return list(found.values())


def _start_fused(
    tensors: list[torch.Tensor], op: ReduceOp | None, average: bool | None, before: float, after: float
) -> Handle:
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    handle = start_reduction(flat, chosen_op(op, average), before, after)
    return handle.followed_by(lambda reduced: unpack(reduced, tensors))


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies what torch.cat has joined back to the tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    with torch.no_grad():
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], *arguments: Any, **named: Any) -> Handle:
    """As grouped_allreduce_async_, in new tensors."""
    return grouped_allreduce_async_([tensor.detach().clone() for tensor in tensors], *arguments, **named)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], *arguments: Any, **named: Any) -> list[torch.Tensor]:
    """As grouped_allreduce_async_, at once."""
    return grouped_allreduce_async_(tensors, *arguments, **named).synchronize()


class _GroupedAllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: ReduceOp, before: float, after: float, *tensors: torch.Tensor) -> Any:
        ctx.arguments = (op, before, after)
        return tuple(grouped_allreduce_async(tensors, None, None, op, before, after).synchronize())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        check_has_gradient(ctx.arguments[0])
        return None, None, None, *grouped_allreduce_async(gradients, None, None, *ctx.arguments).synchronize()


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """As grouped_allreduce_async, at once, and compressed on the way; gradients flow through it."""
    chosen = chosen_op(op, average)
    if not tensors:
        return []
    shorter = [compression.compress(tensor) for tensor in tensors]
    reduced = _GroupedAllReduce.apply(chosen, prescale_factor, postscale_factor, *(tensor for tensor, _ in shorter))
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, shorter, strict=True)]
