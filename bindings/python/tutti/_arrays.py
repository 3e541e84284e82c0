"""What callers give as buffers: arrays, objects of the buffer protocol, DLPack tensors on the CPU."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutti._library import ffi
from tutti.errors import InvalidArgument

# A NumPy array, an object of the buffer protocol (bytearray, array.array, memoryview), or one with __dlpack__.
Buffer = Any
Array = NDArray[Any]
# An array and the C pointer to its first byte, which keeps the array.
Pointer = Any


def as_array(buffer: Buffer, name: str) -> Array:
    """The memory of `buffer` as an array, never a copy."""
    if isinstance(buffer, np.ndarray):
        array = buffer
    elif hasattr(buffer, "__dlpack__") and not isinstance(buffer, np.generic):
        array = _from_dlpack(buffer, name)
    else:
        try:
            array = np.asarray(memoryview(buffer))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{name} is of type {type(buffer).__name__}, which has no memory that tutti can use: give a NumPy "
                "array, an object of the buffer protocol or a DLPack tensor on the CPU (numpy.asarray makes one "
                "of a number or a list)"
            ) from error
    if not array.flags.c_contiguous:
        raise InvalidArgument(
            f"{name}, of shape {array.shape} and strides {array.strides}, does not lie in memory row by row without "
            "gaps: give numpy.ascontiguousarray(...) of it, or tensor.contiguous()"
        )
    return array


def _from_dlpack(buffer: Buffer, name: str) -> Array:
    try:
        return np.from_dlpack(buffer)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{name}, of type {type(buffer).__name__}, cannot be read by DLPack: {error}. tutti takes tensors in the "
            "memory of the CPU; those of bfloat16 and float8 as integers of the same size, with dtype="
        ) from error


def pointer(array: Array) -> Pointer:
    return ffi.from_buffer(array)


def target(out: Buffer | None, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The array that receives a result: a new one, or that of `out`, which has to fit."""
    if out is None:
        return np.empty(shape, dtype)
    array = writable(out, "out")
    if array.dtype != dtype:
        raise InvalidArgument(f"out has elements of {array.dtype}, and the result has elements of {dtype}")
    if array.shape != shape and array.size != math.prod(shape):
        raise InvalidArgument(
            f"out, of shape {array.shape}, has {array.size} elements; the result, of shape {tuple(shape)}, has "
            f"{math.prod(shape)}"
        )
    return array


def writable(out: Buffer, name: str) -> Array:
    array = as_array(out, name)
    if not array.flags.writeable:
        raise InvalidArgument(f"{name} is read-only, and a result is written there: give a copy of it")
    return array


def rows(array: Array) -> int:
    """How many items lie along the first axis: of a single number, one."""
    return int(array.shape[0]) if array.ndim else 1


def row_elements(array: Array) -> int:
    return math.prod(array.shape[1:])


def with_rows(array: Array, count: int) -> tuple[int, ...]:
    """The shape of `array` with `count` items along the first axis."""
    return (count, *array.shape[1:])
