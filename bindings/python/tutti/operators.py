"""Reduction operators: the built-in ones, and the program's."""

import enum
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tutti import _dtypes
from tutti._arrays import Array
from tutti._library import check, ffi, last_error, lib
from tutti._names import member
from tutti.errors import Aborted, Error

if TYPE_CHECKING:
    from tutti.communicator import Communicator

# function(lower, upper) -> combined: arrays of equal length, of the elements of lower and higher ranks.
OperatorFunction = Callable[[Array, Array], Any]


class Op(enum.IntEnum):
    """The built-in operators, with the library's numbers."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    BAND = 100
    BOR = 101
    BXOR = 102
    LAND = 103
    LOR = 104
    LXOR = 105


class Operator:
    """An operator that Communicator.operator or Communicator.pre_mul_sum has made, for that communicator alone."""

    def __init__(
        self,
        communicator: "Communicator",
        number: int,
        callback: Any = None,
        failures: list[BaseException] | None = None,
    ) -> None:
        self.number = number
        self.communicator = communicator
        # Operations that are queued keep this object, and so the callback.
        self._callback = callback
        self._failures = [] if failures is None else failures
        self._close = weakref.finalize(self, lib.tuttiRedOpDestroy, number, communicator.handle)
        self._close.atexit = False

    @property
    def failure(self) -> BaseException | None:
        """What the function has raised, if it has."""
        return self._failures[0] if self._failures else None

    def destroy(self) -> None:
        """Frees the operator; operations that are queued with it go on."""
        if self._close.detach():
            check(lib.tuttiRedOpDestroy(self.number, self.communicator.handle))


# A caller may name an operator by tutti.Op.SUM, "sum", np.add, or a result of Communicator.operator.
OpLike = Op | Operator | str | np.ufunc

# NumPy's functions that combine two elements as an operator does, NaNs included.
_OF_UFUNCS: dict[np.ufunc, Op] = {
    np.add: Op.SUM,
    np.multiply: Op.PROD,
    np.maximum: Op.MAX,
    np.minimum: Op.MIN,
    np.bitwise_and: Op.BAND,
    np.bitwise_or: Op.BOR,
    np.bitwise_xor: Op.BXOR,
    np.logical_and: Op.LAND,
    np.logical_or: Op.LOR,
    np.logical_xor: Op.LXOR,
}


def built_in(given: object) -> Op:
    """The built-in operator that a caller has given, or has named."""
    if isinstance(given, np.ufunc) and given in _OF_UFUNCS:
        return _OF_UFUNCS[given]
    return member(Op, given, "op", ", or what Communicator.operator has made of a function")


def failure_of(used: Iterable[Any]) -> BaseException | None:
    """Why the function of an operator has failed, if one of those that operations have used has."""
    for one in used:
        if type(one) is Operator and one.failure is not None:
            return one.failure
    return None


def error_of_used(result: int, failure: BaseException | None) -> Error:
    """As last_error(); also reports an exception of an operator's function, which cannot fail its operation itself."""
    if failure is None:
        return last_error(result)
    error = Aborted(f"the function of an operator has raised {failure!r}")
    error.__cause__ = failure
    return error


def of_function(communicator: "Communicator", function: OperatorFunction, commutative: bool) -> Operator:
    failures: list[BaseException] = []

    def combine(lower: Any, upper: Any, count: int, datatype: int, context: Any) -> None:
        if failures:
            return
        try:
            dtype = communicator.dtype_of(datatype)
            a = np.frombuffer(ffi.buffer(lower, count * dtype.itemsize), dtype)
            b = np.frombuffer(ffi.buffer(upper, count * dtype.itemsize), dtype)
            a.flags.writeable = False
            combined = function(a, b)
            # NumPy would spread a single number over all elements, and take None for NaN.
            if np.shape(combined) != b.shape:
                raise ValueError(f"it was given {count} elements of each side, and returned {combined!r}")
            b[...] = combined
        except BaseException as error:  # noqa: BLE001  it is raised by the call that the operator serves
            failures.append(error)
            _revoke(communicator)

    callback = ffi.callback("tuttiRedOpFunction_t", combine)
    number = ffi.new("tuttiRedOp_t *")
    check(lib.tuttiRedOpCreate(number, callback, ffi.NULL, int(commutative), communicator.handle))
    return Operator(communicator, number[0], callback, failures)


def _revoke(communicator: "Communicator") -> None:
    """By another thread, as an operator's function must not call the library."""
    handle = communicator.handle
    thread = threading.Thread(target=lambda: lib.tuttiCommRevoke(handle, 0), daemon=True)
    thread.start()
    thread.join(timeout=5)


def of_scalar(communicator: "Communicator", scalar: Any, dtype: Any) -> Operator:
    value = _dtypes.scalar_of(scalar, dtype)
    number = ffi.new("tuttiRedOp_t *")
    check(
        lib.tuttiRedOpCreatePreMulSum(
            number, ffi.from_buffer(value), _dtypes.number_as(value, dtype), 1, communicator.handle
        )
    )
    return Operator(communicator, number[0])
