"""Operations on their way."""

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from tutti_torch.horovod.errors import HorovodInternalError


class Handle:
    """An operation on its way: for poll() and synchronize()."""

    def __init__(self, works: Sequence[Any], finish: Callable[[], Any]) -> None:
        self._works = [work for work in works if work is not None]
        self._finish: Callable[[], Any] | None = finish
        self._output: Any = None
        self._failure: BaseException | None = None

    def poll(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_completed(self) -> bool:
        """As of torch's work: a handle may wait for handles."""
        return self.poll()

    def wait(self) -> None:
        self.synchronize()

    def followed_by(self, function: Callable[[Any], Any]) -> "Handle":
        """The same operation, with function(output) as its output."""
        return Handle([self], lambda: function(self.synchronize()))

    def synchronize(self) -> Any:
        """Waits for it; its output, also when asked again, or what it has failed with."""
        if self._finish is not None:
            finish, self._finish = self._finish, None
            try:
                with failing():
                    for work in self._works:
                        work.wait()
                self._output = finish()
            except Exception as error:
                self._failure = error
            except BaseException:  # as of Ctrl-C: it can be asked again
                self._finish = finish
                raise
        if self._failure is not None:
            raise self._failure
        return self._output


class failing:  # noqa: N801  used as a function: with failing():
    """What the backend raises because the job has failed is raised as Horovod's exception."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, dist.DistBackendError):
            raise HorovodInternalError(str(error)) from error


def poll(handle: Handle) -> bool:
    """Whether synchronize() would return at once."""
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for an operation; its output."""
    return handle.synchronize()
