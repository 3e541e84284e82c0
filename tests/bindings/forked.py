"""Runs a function in forked processes, the ranks of a job."""

import faulthandler
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

# Longer than any test takes, also on a busy machine.
LIMIT_S = 400.0

# Whether a rank has succeeded, and its result; else the error.
Outcome = tuple[bool, Any]


class RankFailed(AssertionError):
    """What a rank raised, or how its process ended."""


def outcome_of(run: Callable[[], Any]) -> Outcome:
    try:
        return True, run()
    except BaseException:  # noqa: BLE001  every one is reported
        return False, traceback.format_exc()


def results_of(outcomes: list[Outcome]) -> list[Any]:
    """What the ranks have returned. Raises RankFailed with the tracebacks of all that have failed."""
    wrong = [f"rank {rank}: {result}" for rank, (good, result) in enumerate(outcomes) if not good]
    if wrong:
        raise RankFailed("\n".join(wrong))
    return [result for _, result in outcomes]


def fork_ranks(size: int, run: Callable[[int, str], Any], dies: tuple[int, ...] = ()) -> list[Any]:
    """Calls run(rank, folder) in a process for each rank, with a folder of theirs; what they return.

    None for those that die as expected. Raises RankFailed.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"rank{rank}") for rank in range(size)]
        pids = []
        for rank, path in enumerate(paths):
            pid = os.fork()
            if pid == 0:
                _keep_errors(path)
                _tell(path, outcome_of(lambda rank=rank: run(rank, folder)))
                os._exit(0)
            pids.append(pid)
        statuses = _wait_for(pids)
        return results_of([_told(paths[rank], rank in dies, statuses[rank]) for rank in range(size)])


def _keep_errors(path: str) -> None:
    """What this process writes to standard error goes to a file, with the stacks of a signal that ends it."""
    kept = os.open(path + ".errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(kept, 2)
    os.close(kept)
    faulthandler.enable(2)


def _errors(path: str) -> str:
    with open(path + ".errors", encoding="utf-8", errors="replace") as file:
        return file.read()


def _tell(path: str, outcome: Outcome) -> None:
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(path + ".part", path)


def _told(path: str, dies: bool, status: int | None) -> Outcome:
    errors = _errors(path)
    sys.stderr.write(errors)
    if os.path.exists(path) and status == 0:
        with open(path, "rb") as file:
            return pickle.load(file)
    if dies and status is not None:
        return True, None
    return False, f"ended with wait status {status}: {errors}"


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
