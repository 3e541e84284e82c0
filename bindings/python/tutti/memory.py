"""Arrays in memory that the other processes of the machine can map, which saves copies of large messages."""

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np

from tutti._arrays import Array
from tutti._library import check, ffi, lib
from tutti.errors import InvalidArgument


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float64) -> Array:
    """An array of zeros in memory of tuttiMemAlloc, which is freed with the last array that uses it."""
    sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))
    if min(sizes, default=0) < 0:
        raise InvalidArgument(f"shape is {shape}: sizes are 0 or more")
    kind = np.dtype(dtype)
    count = math.prod(sizes)
    if count == 0 or kind.itemsize == 0:
        return np.zeros(sizes, kind)
    pointer = ffi.new("void **")
    check(lib.tuttiMemAlloc(pointer, count * kind.itemsize))
    owned = ffi.gc(pointer[0], lib.tuttiMemFree, size=count * kind.itemsize)
    return np.frombuffer(ffi.buffer(owned, count * kind.itemsize), kind).reshape(sizes)
