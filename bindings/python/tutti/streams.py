"""Streams and events: operations that run beside the program."""

import collections
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tutti._library import check, ffi, lib
from tutti.errors import Error
from tutti.operators import error_of_used, failure_of

if TYPE_CHECKING:
    from tutti._calls import Calls

_IN_PROGRESS = 7


class Event:
    """A mark in a stream. One that was never recorded is complete."""

    def __init__(self) -> None:
        handle = ffi.new("tuttiEvent_t *")
        check(lib.tuttiEventCreate(handle))
        self.handle: Any = handle[0]
        self._close = weakref.finalize(self, lib.tuttiEventDestroy, self.handle)
        self._close.atexit = False

    def record(self, stream: "Stream") -> None:
        """From now on the event stands for all that is queued on the stream now."""
        check(lib.tuttiEventRecord(self.handle, stream.handle))

    def query(self) -> bool:
        """Whether all that the event stands for is complete; raises the first error among it. Does not block."""
        result: int = lib.tuttiEventQuery(self.handle)
        if result == _IN_PROGRESS:
            return False
        check(result)
        return True

    def synchronize(self) -> None:
        """Waits for all that the event stands for; raises the first error among it."""
        check(lib.tuttiEventSynchronize(self.handle))


class Stream:
    """A queue of operations, which run in order, beside the program: stream= of the calls of a communicator.

    It keeps the buffers of each operation until that is complete. As a context manager it is synchronized and
    destroyed at the end; if the block raises, nothing is waited for, so that a communicator around it can be aborted,
    and the stream is destroyed when it is dropped.
    """

    def __init__(self) -> None:
        handle = ffi.new("tuttiStream_t *")
        check(lib.tuttiStreamCreate(handle))
        self.handle: Any = handle[0]
        self._lock = threading.Lock()
        self._kept: collections.deque[tuple[Event, tuple[Any, ...]]] = collections.deque()
        self._failure: BaseException | None = None
        # Communicators with operations that nothing has asked for since.
        self._users: weakref.WeakSet[Calls] = weakref.WeakSet()
        self._close = weakref.finalize(self, _destroy, self.handle, self._kept)

    def keep(self, communicator: "Calls", *used: Any) -> None:
        """Keeps a communicator that has queued an operation, and what that uses, until it is complete."""
        try:
            event = Event()
            event.record(self)
        except Error:
            # Nothing says when it is complete but its end.
            lib.tuttiStreamSynchronize(self.handle)
            raise
        with self._lock:
            self._users.add(communicator)
            self._kept.append((event, (communicator, *used)))
        self._let_go()

    def _let_go(self) -> None:
        """Lets go of what complete operations have used."""
        with self._lock:
            while self._kept and lib.tuttiEventQuery(self._kept[0][0].handle) != _IN_PROGRESS:
                _, what = self._kept.popleft()
                self._failure = self._failure or failure_of(what)

    def _check(self, result: int) -> None:
        """What is complete has returned `result`."""
        self._let_go()
        failure, self._failure = self._failure, None
        # An exception in a variable here would keep this frame, and those of the callers, until a garbage collection.
        if result or failure is not None:
            raise self._noted(error_of_used(result, failure))
        self._taken_users()

    def _noted(self, error: Error) -> Error:
        for user in self._taken_users():
            user.note_raised()
        return error

    def _taken_users(self) -> "list[Calls]":
        with self._lock:
            users = list(self._users)
            self._users.clear()
        return users

    def synchronize(self) -> None:
        """Waits for all that is queued; raises the first error that has not been raised yet."""
        self._check(lib.tuttiStreamSynchronize(self.handle))

    def query(self) -> bool:
        """Whether all that was queued is complete; raises as synchronize() does. Does not block."""
        result: int = lib.tuttiStreamQuery(self.handle)
        if result == _IN_PROGRESS:
            return False
        self._check(result)
        return True

    def wait_event(self, event: Event) -> None:
        """Work queued after this call waits for the work that the event marks at the time of the call."""
        check(lib.tuttiStreamWaitEvent(self.handle, event.handle))

    def destroy(self) -> None:
        """Waits for all that is queued, and frees the stream; raises as synchronize() does."""
        if self._close.detach():
            self._check(lib.tuttiStreamDestroy(self.handle))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.destroy()


def _destroy(handle: Any, kept: collections.deque[tuple[Event, tuple[Any, ...]]]) -> None:
    lib.tuttiStreamDestroy(handle)
    kept.clear()
