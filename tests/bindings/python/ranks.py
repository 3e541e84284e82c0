"""Runs a function in the ranks of a communicator: forked processes, or threads of this one."""

import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import tutti

# Longer than any test takes, also on a machine that does other things.
LIMIT_S = 120.0


class RankFailed(AssertionError):
    """What a rank raised, or how its process ended."""


def _exchange_id(rank: int, folder: str) -> bytes:
    """Rank 0 makes the id, as its process lives until all have joined."""
    path = os.path.join(folder, "id")
    if rank == 0:
        with open(path + ".part", "wb") as file:
            file.write(tutti.unique_id())
        os.rename(path + ".part", path)
    while not os.path.exists(path):
        time.sleep(0.001)
    with open(path, "rb") as file:
        return file.read()


def _run_rank(rank: int, size: int, folder: str, function: Callable, config: tutti.Config | None) -> Any:
    with tutti.Communicator.from_unique_id(_exchange_id(rank, folder), rank, size, config) as comm:
        return function(comm)


def _child(path: str, run: Callable[[], Any]) -> None:
    try:
        outcome = (True, run())
    except BaseException:  # noqa: BLE001  all of it is told
        outcome = (False, traceback.format_exc())
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(path + ".part", path)
    os._exit(0)


def run(
    size: int,
    function: Callable[[tutti.Communicator], Any],
    config: tutti.Config | None = None,
    dies: tuple[int, ...] = (),
) -> list[Any]:
    """Calls function(communicator) in a process for each rank; what they return, None for those that die as expected.

    Raises RankFailed with the tracebacks of all ranks that failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                _child(os.path.join(folder, f"rank{rank}"), lambda r=rank: _run_rank(r, size, folder, function, config))
            pids.append(pid)
        ended = _wait_for(pids)
        outcomes = [_outcome(os.path.join(folder, f"rank{r}"), r in dies, ended[r]) for r in range(size)]
    wrong = [f"rank {rank}: {result}" for rank, (good, result) in enumerate(outcomes) if not good]
    if wrong:
        raise RankFailed("\n".join(wrong))
    return [result for _, result in outcomes]


def _outcome(path: str, dies: bool, status: int | None) -> tuple[bool, Any]:
    if os.path.exists(path):
        with open(path, "rb") as file:
            return pickle.load(file)
    return (True, None) if dies and status is not None else (False, f"ended with wait status {status}")


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


def run_threads(size: int, function: Callable[[tutti.Communicator], Any]) -> list[Any]:
    """The same with a thread for each rank."""
    outcomes: list[Any] = [(False, "has not ended")] * size

    def body(rank: int, comm: tutti.Communicator) -> None:
        try:
            with comm:
                outcomes[rank] = (True, function(comm))
        except BaseException:  # noqa: BLE001
            outcomes[rank] = (False, traceback.format_exc())

    threads = [
        threading.Thread(target=body, args=(rank, comm), daemon=True)
        for rank, comm in enumerate(tutti.Communicator.in_process(size))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    wrong = [f"rank {rank}: {result}" for rank, (good, result) in enumerate(outcomes) if not good]
    if wrong:
        raise RankFailed("\n".join(wrong))
    return [result for _, result in outcomes]
