"""An optimizer that steps with the gradients of all ranks."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from tutti_torch.horovod import job
from tutti_torch.horovod.buckets import Buckets
from tutti_torch.horovod.compression import Compression
from tutti_torch.horovod.objects import load_in_place
from tutti_torch.horovod.reductions import Average, ReduceOp

FUSION_THRESHOLD_BYTES = 25 << 20


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    fusion_threshold: int | None = None,
) -> Any:
    """The optimizer, with gradients that are combined over all ranks before it steps.

    Gradients are combined in buckets while backward() runs, as soon as all of a bucket are there: after
    ``backward_passes_per_step`` passes, over which gradients add up. A bucket has up to ``fusion_threshold`` bytes (by
    default HOROVOD_FUSION_THRESHOLD, else 25 MiB), or what ``groups`` says: a number of buckets, or lists of their
    parameters. A parameter that has got no gradient on a rank counts as one with a gradient of zeros.
    """
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor is for op=Average")
    _check_names(optimizer, named_parameters)
    if fusion_threshold is None:
        fusion_threshold = int(os.environ.get("HOROVOD_FUSION_THRESHOLD") or FUSION_THRESHOLD_BYTES)
    kind = type(optimizer)
    made = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    # Without the step of an instance, which a scheduler may have put in place: it would not wait for gradients.
    made.__dict__.update((name, value) for name, value in vars(optimizer).items() if name != "step")
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    made._buckets = Buckets(
        parameters,
        groups if groups is not None else num_groups,
        fusion_threshold,
        op,
        gradient_predivide_factor,
        compression,
        sparse_as_dense,
    )
    made._start(backward_passes_per_step)
    return made


def _check_names(optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None) -> None:
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters is a sequence of pairs (name, parameter): model.named_parameters()")
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"names of parameters occur twice: {sorted({n for n in names if names.count(n) > 1})}")
    known = {id(parameter) for _, parameter in pairs}
    if any(id(p) not in known for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("named_parameters lacks parameters of the optimizer")


class _Distributed(torch.optim.Optimizer):
    """In front of the class of the optimizer."""

    _buckets: Buckets

    def _start(self, passes: int) -> None:
        self._synchronized = False
        self._should_synchronize = True
        self.set_backward_passes_per_step(passes)
        # Also of a job of one rank, which may get others.
        for parameter in self._buckets.parameters:
            parameter.register_post_accumulate_grad_hook(self._buckets.gradient_is_there)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        self.backward_passes_per_step = passes
        self._buckets.reset(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise ValueError("add parameters before DistributedOptimizer gets the optimizer: their gradients need hooks")

    def load_state_dict(self, *arguments: Any, **named: Any) -> None:
        self._start_over()
        load = super().load_state_dict
        load_in_place(self, lambda: load(*arguments, **named))

    def _start_over(self) -> None:
        self._synchronized = False
        self._should_synchronize = True
        self._buckets.reset(self.backward_passes_per_step)

    def synchronize(self) -> None:
        """Waits until all gradients have been combined; step() does it by itself."""
        if job.size() > 1:
            self._buckets.finish()
            self._buckets.reset(self.backward_passes_per_step)
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a step() behind a synchronize() of the program's."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """With the gradients of all ranks: those that there are, or each time those of the closure."""
        if closure is not None and self._should_synchronize:

            def of_all_ranks() -> Any:
                loss = closure()
                self.synchronize()
                return loss

            loss = super().step(of_all_ranks)
            self._synchronized = False
            return loss
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "step() after synchronize() combines gradients again: use skip_synchronize()", stacklevel=2
                )
            self.synchronize()
        self._synchronized = False
        return super().step(closure)

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        if self._buckets.under_way():
            raise AssertionError("zero_grad() between backward() and step() would change gradients on their way")
        super().zero_grad(*arguments, **named)
