"""Runs a function in the ranks of a process group, each a forked process."""

import datetime
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401  registers the backend

# Longer than any test takes, also on a machine that does other things.
LIMIT_S = 120.0


class RankFailed(AssertionError):
    """What a rank raised, or how its process ended."""


def _run_rank(rank: int, ranks: int, folder: str, function: Callable, backend: str, timeout_s: float) -> Any:
    store = dist.FileStore(os.path.join(folder, "store"), ranks)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=timeout_s)
    )
    result = function(rank, ranks)
    dist.destroy_process_group()
    return result


def _child(rank: int, folder: str, run: Callable[[], Any]) -> None:
    torch.set_num_threads(1)
    path = os.path.join(folder, f"rank{rank}")
    try:
        outcome = (True, run())
    except BaseException:  # noqa: BLE001  all of it is told
        outcome = (False, traceback.format_exc())
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(path + ".part", path)
    os._exit(0)


def fork_ranks(ranks: int, run: Callable[[int, str], Any], dies: tuple[int, ...] = ()) -> list[Any]:
    """Calls run(rank, folder) in a process for each rank; what they return, None for those that die as expected.

    Raises RankFailed with the tracebacks of all ranks that failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                _child(rank, folder, lambda rank=rank: run(rank, folder))
            pids.append(pid)
        ended = _wait_for(pids)
        results, wrong = [], []
        for rank in range(ranks):
            path = os.path.join(folder, f"rank{rank}")
            succeeded, result = False, f"ended with wait status {ended[rank]}"
            if os.path.exists(path):
                with open(path, "rb") as file:
                    succeeded, result = pickle.load(file)
            elif rank in dies and ended[rank] is not None:
                succeeded, result = True, None
            results.append(result)
            if not succeeded:
                wrong.append(f"rank {rank}: {result}")
        if wrong:
            raise RankFailed("\n".join(wrong))
        return results


def _wait_for(pids: list[int]) -> list[int | None]:
    """The wait statuses; None for those that had to be killed."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(statuses) < len(pids) and time.monotonic() < deadline:
        for pid in pids:
            if pid not in statuses:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    statuses[pid] = status
        time.sleep(0.002)
    for pid in pids:
        if pid not in statuses:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [statuses.get(pid) for pid in pids]


def run(
    ranks: int,
    function: Callable[[int, int], Any],
    backend: str = "tutti",
    timeout_s: float = 60,
    dies: tuple[int, ...] = (),
) -> list[Any]:
    """Calls function(rank, ranks) on every rank of a default process group; what they return, by rank."""
    return fork_ranks(
        ranks, lambda rank, folder: _run_rank(rank, ranks, folder, function, backend, timeout_s), dies=dies
    )
