"""Runs a function in the ranks of a process group, each a forked process."""

import datetime
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import forked
import tutti_torch  # noqa: F401  registers the backend


def fork_ranks(ranks: int, run: Callable[[int, str], Any], dies: tuple[int, ...] = ()) -> list[Any]:
    """forked.fork_ranks, with one thread of torch's for each rank."""

    def run_rank(rank: int, folder: str) -> Any:
        torch.set_num_threads(1)
        dist.set_debug_level_from_env()  # TORCH_DISTRIBUTED_DEBUG, which a test may set
        return run(rank, folder)

    return forked.fork_ranks(ranks, run_rank, dies)


# Gloo's groups are kept until the process ends: if a callback has the last reference, gloo's own thread frees the
# group, then waits for itself and ends the process.
_kept: list[dist.ProcessGroup] = []


def run(
    ranks: int,
    function: Callable[[int, int], Any],
    backend: str = "tutti",
    timeout_s: float = 60,
    dies: tuple[int, ...] = (),
) -> list[Any]:
    """Calls function(rank, ranks) on every rank of a default process group; what they return, by rank."""

    def run_rank(rank: int, folder: str) -> Any:
        store = dist.FileStore(os.path.join(folder, "store"), ranks)
        timeout = datetime.timedelta(seconds=timeout_s)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
        if backend == "gloo":
            _kept.append(dist.group.WORLD)
        result = function(rank, ranks)
        dist.destroy_process_group()
        return result

    return fork_ranks(ranks, run_rank, dies)
