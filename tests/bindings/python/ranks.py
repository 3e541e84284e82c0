"""Runs a function in the ranks of a communicator: forked processes, or threads of this one."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import forked
import tutti


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


def run(
    size: int,
    function: Callable[[tutti.Communicator], Any],
    config: tutti.Config | None = None,
    dies: tuple[int, ...] = (),
) -> list[Any]:
    """Calls function(communicator) in a process for each rank: see forked.fork_ranks."""

    def run_rank(rank: int, folder: str) -> Any:
        with tutti.Communicator.from_unique_id(_exchange_id(rank, folder), rank, size, config) as comm:
            return function(comm)

    return forked.fork_ranks(size, run_rank, dies)


def run_threads(size: int, function: Callable[[tutti.Communicator], Any]) -> list[Any]:
    """The same with a thread for each rank."""
    outcomes: list[forked.Outcome] = [(False, "has not ended")] * size

    def run_rank(comm: tutti.Communicator) -> Any:
        with comm:
            return function(comm)

    def body(rank: int, comm: tutti.Communicator) -> None:
        outcomes[rank] = forked.outcome_of(lambda: run_rank(comm))

    threads = [
        threading.Thread(target=body, args=(rank, comm), daemon=True)
        for rank, comm in enumerate(tutti.Communicator.in_process(size))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(forked.LIMIT_S)
    return forked.results_of(outcomes)
