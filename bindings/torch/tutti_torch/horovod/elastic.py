"""Training that goes on after a rank has failed: torchrun starts all ranks anew, and they go on from the last commit.

A communicator of tutti cannot shrink, so that ranks which are left cannot go on by themselves, as with Horovod's own
launcher: when one fails, the others end as well, and ``torchrun --max-restarts`` starts all of them again, with
``--nnodes MIN:MAX`` as many as there are then. What was committed therefore lies in a file.
"""

import copy
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tutti_torch.horovod import job
from tutti_torch.horovod.errors import HorovodInternalError
from tutti_torch.horovod.objects import allgather_object, broadcast_object


class TorchState:
    """What training needs to go on: a model, an optimizer, and anything else by name (``epoch=0``, a scheduler).

    ``checkpoint`` names the file to which rank 0 writes what is committed; where hosts share no files, each needs one
    that rank 0 may be started beside. Without it, commits are kept in memory, and lost when the process ends.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        self.checkpoint = checkpoint
        self.commits = 0
        self._callbacks: list[Callable[[], None]] = []
        self._names = [*values]
        for name, value in {"model": model, "optimizer": optimizer, **values}.items():
            setattr(self, name, value)
            if value is not None and name in ("model", "optimizer"):
                self._names.append(name)
        self.save()

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Functions that are called when training goes on after a restart, perhaps with another number of ranks."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        for callback in self._callbacks:
            callback()

    def save(self) -> None:
        """Keeps the values of now in memory."""
        self._saved = {name: copy.deepcopy(_contents(getattr(self, name))) for name in self._names}

    def commit(self) -> None:
        """Keeps the values of now: what restore() and a restart go back to. All ranks call it."""
        self.save()
        self.commits += 1
        if self.checkpoint is not None and job.rank() == 0:
            part = f"{os.fspath(self.checkpoint)}.part"
            torch.save((self.commits, self._saved), part)
            os.replace(part, self.checkpoint)

    def check_host_updates(self) -> None:
        """Does nothing: torchrun itself notices new hosts, and starts all ranks anew."""

    def restore(self) -> None:
        """Goes back to the last commit."""
        for name, contents in self._saved.items():
            value = getattr(self, name)
            if _has_state(value):
                value.load_state_dict(copy.deepcopy(contents))
            else:
                setattr(self, name, copy.deepcopy(contents))

    def load(self) -> bool:
        """Goes to what a process before this one has committed to the file; false if there is none."""
        if self.checkpoint is None or not os.path.exists(self.checkpoint):
            return False
        self.commits, self._saved = torch.load(self.checkpoint, weights_only=False)
        self.restore()
        return True

    def sync(self) -> None:
        """Gives all ranks the values of the one that has committed most; of several of the first."""
        commits = allgather_object(self.commits)
        root = commits.index(max(commits))
        self.save()
        self.commits, self._saved = broadcast_object((self.commits, self._saved), root)
        if job.rank() != root:
            self.restore()


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _contents(value: Any) -> Any:
    return value.state_dict() if _has_state(value) else value


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """A training function whose first argument is a TorchState: it begins with that of the last commit, on all ranks.

    If a rank fails, the function raises HorovodInternalError, and the process has to end, so that torchrun can start it
    anew.
    """

    @functools.wraps(function)
    def wrapper(state: TorchState, *arguments: Any, **named: Any) -> Any:
        job.init()
        state.load()
        state.sync()
        if state.commits > 0 or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
            state.on_reset()
        try:
            return function(state, *arguments, **named)
        except (HorovodInternalError, dist.DistBackendError) as error:
            print(f"rank {job.rank()}: {error}\n{_what_follows(state)}", file=sys.stderr, flush=True)
            raise

    return wrapper


def _what_follows(state: TorchState) -> str:
    if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
        return "The other ranks cannot continue without it, and no launcher restarts them: use torchrun --max-restarts."
    if state.checkpoint is None:
        return "All ranks restart from the beginning: set TorchState(checkpoint=PATH) to keep what is committed."
    return f"All ranks restart, if torchrun has restarts left, from commit {state.commits} in {state.checkpoint}."
