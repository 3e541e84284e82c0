"""What the calls of a communicator have in common: streams, groups, datatypes, operators."""

import threading
from types import TracebackType
from typing import Any

import numpy as np

from tutti import _dtypes
from tutti._arrays import Array
from tutti._library import check, ffi, last_error, lib
from tutti.errors import Error, InvalidArgument, InvalidUsage, error_of
from tutti.operators import Op, Operator, OpLike, built_in, error_of_used, failure_of
from tutti.streams import Stream


class _Groups(threading.local):
    """What the groups that the thread has begun keep, until the outermost ends."""

    def __init__(self) -> None:
        self.depth = 0
        self.kept: list[tuple[Stream | None, tuple[Any, ...]]] = []
        # The exception of a block inside.
        self.failure: BaseException | None = None


_groups = _Groups()


class group:  # noqa: N801  used as a function: with tutti.group():
    """Collectives, sends and receives of the block are started together when it ends: with tutti.group(): ...

    Arrays that calls in it return are filled when the block has ended, or with stream= when the stream is synchronized.
    If the block raises, or one inside it, nothing of it is started.
    """

    def __enter__(self) -> "group":
        check(lib.tuttiGroupStart())
        _groups.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _groups.depth -= 1
        if error is not None:
            # A call that is refused: the group starts nothing.
            lib.tuttiBarrier(ffi.NULL, ffi.NULL)
            _groups.failure = _groups.failure or error
        result = lib.tuttiGroupEnd()
        if _groups.depth > 0:
            return
        kept, _groups.kept = _groups.kept, []
        failure, _groups.failure = _groups.failure, None
        for stream, what in kept:
            if stream is not None:
                stream.keep(*what)
        if error is not None:
            return
        if failure is not None:
            text = f"no call of the group was started: a block inside it raised {failure!r}"
            raise InvalidArgument(text) from failure
        failure = failure_of(one for _, what in kept for one in what)
        if result or failure is not None:
            raise _told({what[0] for _, what in kept}, error_of_used(result, failure))


def _told(communicators: "set[Calls]", error: Error) -> Error:
    """What a group raises for an error of one of these."""
    told = [communicator.told(error) for communicator in communicators]
    return next((one for one in told if one is not error), error)


class Calls:
    """The part of a communicator that makes calls of the library."""

    handle: Any
    size: int
    rank: int

    def __init__(self) -> None:
        # Datatypes of the library that stand for dtypes it does not know.
        self._opaque: dict[np.dtype[Any], int] = {}
        # The result that has failed the communicator, once that has been raised.
        self._failed = 0

    def _call(self, function: Any, stream: Stream | None, used: tuple[Any, ...], *arguments: Any) -> None:
        """function(*arguments, communicator, stream); `used` is kept until the operation is complete."""
        result = function(*arguments, self.handle, ffi.NULL if stream is None else stream.handle)
        # Queued operations need their memory, also if an operator has failed since.
        if result == 0:
            if _groups.depth:
                _groups.kept.append((stream, (self, *used)))
            elif stream is not None:
                stream.keep(self, *used)
        failure = failure_of(used)
        # An exception in a variable here would keep this frame, and so the buffers, until a garbage collection.
        if result or failure is not None:
            raise self.told(error_of_used(result, failure))

    def _check(self, result: int) -> None:
        """As check(), of a call that returns again what has failed the communicator."""
        if result:
            raise self.told(last_error(result))

    def told(self, error: Error) -> Error:
        """What to raise for an error of a call: where the communicator has failed before, that it has."""
        if error.code == self._failed and error.__cause__ is None:
            text = f"the communicator has failed before: it can only be shrunk, destroyed or aborted. What failed it: {error}"
            return error_of(error.code, text)
        if error.code not in (InvalidArgument.code, InvalidUsage.code):
            self.note_raised()
        return error

    def note_raised(self) -> None:
        """An error has been raised: if it has failed the communicator, later calls meet it again."""
        result = ffi.new("tuttiResult_t *")
        if lib.tuttiCommGetAsyncError(self.handle, result) == 0:
            self._failed = result[0]

    def _datatype(self, array: Array, wanted: _dtypes.DTypeLike | None) -> int:
        if wanted is not None:
            return _dtypes.number_as(array, wanted)
        number = _dtypes.number_of(array.dtype)
        return self._opaque_datatype(array.dtype) if number == _dtypes.OPAQUE else number

    def _opaque_datatype(self, dtype: np.dtype[Any]) -> int:
        number = self._opaque.get(dtype)
        if number is None:
            made = ffi.new("tuttiDataType_t *")
            self._check(lib.tuttiTypeCreate(made, dtype.itemsize, self.handle))
            number = self._opaque[dtype] = made[0]
        return number

    def dtype_of(self, number: int) -> np.dtype[Any]:
        """The dtype that a datatype of the library stands for in this communicator."""
        for dtype, known in list(self._opaque.items()):
            if known == number:
                return dtype
        return _dtypes.dtype_of(number)

    def _operator(self, op: OpLike, array: Array, datatype: int) -> int:
        if type(op) is Op and datatype < 1000:
            return op
        if isinstance(op, Operator):
            if op.communicator is not self:
                raise InvalidArgument("the operator is another communicator's: each makes its own")
            return op.number
        known = built_in(op)
        if datatype < 1000:
            return known
        raise _dtypes.refusal_of_operator(array.dtype)
