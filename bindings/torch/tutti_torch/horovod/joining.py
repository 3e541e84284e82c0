"""Ranks that run out of data before others: those that have joined contribute zeros to the all-reduces of the rest.

Before each all-reduce the ranks add up an announcement, which tells those that have joined what is coming.
"""

import torch
import torch.distributed as dist

from tutti_torch.horovod import job
from tutti_torch.horovod.handles import failing

# The fields of an announcement: the number of joined ranks; from the others: elements, dtype and operator.
_FIELDS = 4
_DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
]
_OPERATORS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]


def announce(tensor: torch.Tensor, operator: dist.ReduceOp.RedOpType) -> None:
    """Comes before each all-reduce."""
    place = job.current()
    if not place.joinable or place.group.size() == 1 or tensor.dtype not in _DTYPES:
        return
    fields = [0, tensor.numel(), _DTYPES.index(tensor.dtype), _OPERATORS.index(operator)]
    dist.all_reduce(torch.tensor(fields), group=place.group, async_op=True)


def join(device: int = -1) -> int:
    """This rank has no more data: contributes zeros to what others reduce, until all have joined; the last to do so.

    Other operations than all-reduces cannot be called meanwhile. An average divides by the number of all ranks.
    ``device`` is not looked at.
    """
    place = job.current()
    if not place.joinable:
        raise ValueError("join() needs init(join=True), on all ranks")
    size = place.group.size()
    served = 0
    with failing():
        while size > 1 and _serve_one(place.group, size):
            served += 1
        # The rank that has served the fewest has joined last; if there are several, the highest of them.
        counts = job.gather_numbers(served)
    return max(other for other in range(size) if counts[other] == min(counts))


def _serve_one(group: dist.ProcessGroup, size: int) -> bool:
    """Takes part in the all-reduce that others call next; false if all have joined."""
    fields = torch.zeros(_FIELDS, dtype=torch.int64)
    fields[0] = 1
    dist.all_reduce(fields, group=group)
    joined, *said = fields.tolist()
    if joined == size:
        return False
    count, dtype, operator = (value // (size - joined) for value in said)
    dist.all_reduce(torch.zeros(count, dtype=_DTYPES[dtype]), _OPERATORS[operator], group=group)
    return True
