"""Parameters, states of optimizers and any objects, from one rank to all, or from all to all."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from tutti_torch.horovod import job
from tutti_torch.horovod.gathers import broadcast_async_
from tutti_torch.horovod.handles import failing


def broadcast_parameters(params: Mapping[str, Any] | Iterable[Any], root_rank: int = 0) -> None:
    """Fills the parameters with root's: model.state_dict(), model.named_parameters() or a list of tensors."""
    if isinstance(params, Mapping):
        tensors = [value for _, value in sorted(params.items())]
    else:
        tensors = [one[1] if isinstance(one, tuple) else one for one in params]
    handles = [broadcast_async_(tensor, root_rank) for tensor in tensors if torch.is_tensor(tensor)]
    for handle in handles:
        handle.synchronize()


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives the optimizer the state and the options of root's, also if it has made no step yet."""
    state = broadcast_object(optimizer.state_dict() if job.rank() == root_rank else None, root_rank)
    if job.rank() != root_rank:
        load_in_place(optimizer, lambda: optimizer.load_state_dict(state))


def load_in_place(optimizer: torch.optim.Optimizer, load: Callable[[], Any]) -> None:
    """load(), into the groups and the state that there are: those of another optimizer, or of its scheduler, as well.

    DistributedOptimizer shares them with the optimizer that it was made of.
    """
    groups, state = optimizer.param_groups, optimizer.state
    load()
    loaded, loaded_state = [dict(group) for group in optimizer.param_groups], dict(optimizer.state)
    for group, values in zip(groups, loaded, strict=True):
        group.clear()
        group.update(values)
    state.clear()
    state.update(loaded_state)
    optimizer.param_groups, optimizer.state = groups, state


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None) -> Any:
    """Root's object, pickled on the way."""
    objects = [obj if job.rank() == root_rank else None]
    with failing():
        dist.broadcast_object_list(objects, group_src=root_rank, group=job.current().group)
    return obj if job.rank() == root_rank else objects[0]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, by rank, pickled on the way."""
    objects: list[Any] = [None] * job.size()
    with failing():
        dist.all_gather_object(objects, obj, group=job.current().group)
    return objects
