"""Training that goes on after ranks have failed.

After ``init(store=...)``, the ranks that live go on in the same processes. They make a process group without the dead ranks,
and with the workers that have come, and begin again with the last commit.

Otherwise torchrun starts all ranks anew, with ``--nnodes MIN:MAX`` as many as there are then: when one fails, the others
end as well, and ``torchrun --max-restarts`` starts them again. What was committed therefore lies in a file.
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
from tutti_torch.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
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
        """Functions that are called when training goes on after a restart, or with other ranks than before."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        for callback in self._callbacks:
            callback()

    def save(self) -> None:
        """Keeps the values of now in memory."""
        self._saved = {name: copy.deepcopy(_contents(getattr(self, name))) for name in self._names}

    def commit(self) -> None:
        """Keeps the values of now: what restore() and a restart go back to. All ranks call it. Then as
        check_host_updates()."""
        self.save()
        self.commits += 1
        if self.checkpoint is not None and job.rank() == 0:
            part = f"{os.fspath(self.checkpoint)}.part"
            torch.save((self.commits, self._saved), part)
            os.replace(part, self.checkpoint)
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if workers wait to join the job. Without init(store=...) it does
        nothing: torchrun itself notices new hosts, and starts all ranks anew."""
        membership = job.current().membership
        if membership is None:
            return
        if broadcast_object(job.rank() == 0 and membership.workers_wait()):
            raise HostsUpdatedInterrupt("workers wait to join the job")

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

    After init(store=...) the function is called again if a rank fails, or if workers join: with the ranks that there are
    then. Otherwise, if a rank fails, the process has to end, so that torchrun can start it anew.
    """

    @functools.wraps(function)
    def wrapper(state: TorchState, *arguments: Any, **named: Any) -> Any:
        job.init()
        state.load()
        changed = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        while True:
            result, failure, done = None, None, False
            try:
                state.sync()
                if changed or state.commits > 0:
                    state.on_reset()
                result = function(state, *arguments, **named)
                done = True
            except HostsUpdatedInterrupt:
                pass
            except (HorovodInternalError, dist.DistBackendError) as error:
                if job.current().membership is None:
                    print(f"rank {job.rank()}: {error}\n{_what_follows(state)}", file=sys.stderr, flush=True)
                    raise
                failure = error
            # A rank may have ended when another one fails in its last operation. So no rank leaves before all have ended.
            if job.current().membership is None or job.agree(done):
                return result
            if done or failure is not None:
                state.restore()
            job.renew(failure)
            changed = True

    return wrapper


def _what_follows(state: TorchState) -> str:
    if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
        return "The other ranks cannot continue without it, and no launcher restarts them: use torchrun --max-restarts."
    if state.checkpoint is None:
        return "All ranks restart from the beginning: set TorchState(checkpoint=PATH) to keep what is committed."
    return f"All ranks restart, if torchrun has restarts left, from commit {state.commits} in {state.checkpoint}."
