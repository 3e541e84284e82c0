"""Gradients, joined to buckets that are combined over all ranks while others are computed.

Buckets start in the same order on all ranks, whatever order gradients come in: each when all its gradients are there
and the bucket before it has started.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from tutti_torch.horovod import job
from tutti_torch.horovod.handles import Handle
from tutti_torch.horovod.reductions import Average, ReduceOp, by_dtype, start_reduction, unpack


class Buckets:
    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        groups: int | list[list[torch.Tensor]],
        fusion_threshold: int,
        op: ReduceOp,
        predivide_factor: float,
        compression: Any,
        sparse_as_dense: bool,
    ) -> None:
        self.parameters = list(parameters)
        self._op = op
        self._factors = (1.0 / predivide_factor, predivide_factor) if op is Average else (1.0, 1.0)
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._buckets = _divide(self.parameters, groups, fusion_threshold)
        self._bucket_of = {p: number for number, bucket in enumerate(self._buckets) for p in bucket}
        self.reset(1)

    def reset(self, passes: int) -> None:
        """Before the first of `passes` backward passes."""
        self._passes_left = dict.fromkeys(self.parameters, passes)
        self._gradients_left = [len(bucket) for bucket in self._buckets]
        self._started: list[tuple[Handle, Any]] = []

    def under_way(self) -> bool:
        return bool(self._started)

    def gradient_is_there(self, parameter: torch.Tensor) -> None:
        """The hook of a parameter, called once for each backward pass."""
        if job.size() == 1:
            return
        left = self._passes_left[parameter] = self._passes_left[parameter] - 1
        if left < 0:
            raise AssertionError(
                "gradients were computed more than backward_passes_per_step times before step(): a larger "
                "backward_passes_per_step adds gradients up"
            )
        if left == 0:
            self._gradients_left[self._bucket_of[parameter]] -= 1
            while len(self._started) < len(self._buckets) and self._gradients_left[len(self._started)] == 0:
                self._start_next()

    def _start_next(self) -> None:
        flat = torch.cat([self._gradient(p).reshape(-1) for p in self._buckets[len(self._started)]])
        shorter, context = self._compression.compress(flat)
        self._started.append((start_reduction(shorter, self._op, *self._factors), context))

    def _gradient(self, parameter: torch.Tensor) -> torch.Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.is_sparse:
            if not self._sparse_as_dense:
                raise ValueError("a gradient is sparse: give DistributedOptimizer sparse_as_dense=True")
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad.detach()

    def finish(self) -> None:
        """Starts what has not been, and puts all combined gradients in place."""
        while len(self._started) < len(self._buckets):
            self._start_next()
        for bucket, (handle, context) in zip(self._buckets, self._started, strict=True):
            whole = self._compression.decompress(handle.synchronize(), context)
            unpack(whole, [self._gradient(p) for p in bucket])


def _divide(
    parameters: list[torch.Tensor], groups: int | list[list[torch.Tensor]], fusion_threshold: int
) -> list[list[torch.Tensor]]:
    """In the order in which gradients are likely to come: that of the parameters, backwards."""
    backwards = parameters[::-1]
    if isinstance(groups, int):
        if groups > 0:
            each = math.ceil(len(backwards) / groups)
            wanted = [backwards[at : at + each] for at in range(0, len(backwards), each)]
        else:
            wanted = _fuse(backwards, fusion_threshold)
    else:
        named = {id(p) for group in groups for p in group}
        wanted = [list(group) for group in groups] + _fuse(
            [p for p in backwards if id(p) not in named], fusion_threshold
        )
    return [alike for group in wanted if group for alike in by_dtype(group)]


def _fuse(parameters: list[torch.Tensor], fusion_threshold: int) -> list[list[torch.Tensor]]:
    """Groups neighbours of one dtype, each group of at most `fusion_threshold` bytes."""
    buckets: list[list[torch.Tensor]] = []
    size = 0
    for parameter in parameters:
        bytes_more = parameter.numel() * parameter.element_size()
        if not buckets or size + bytes_more > fusion_threshold or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += bytes_more
    return buckets
