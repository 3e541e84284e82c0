"""NumPy's dtypes and tutti's datatypes."""

from typing import Any

import numpy as np

from tutti.errors import InvalidArgument

# A caller may name a datatype by float16, "float32", np.dtype(...), "bfloat16".
DTypeLike = Any

_NUMBERS = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "int16": 100,
    "uint16": 101,
    "complex64": 102,
    "complex128": 103,
    "bool": 104,
}
# Those that NumPy knows by ml_dtypes only, with their bytes.
_SMALL_FLOATS = {"bfloat16": (9, 2), "float8_e4m3fn": (10, 1), "float8_e5m2": (11, 1)}
_BUILT_IN: dict[np.dtype[Any], int] = {np.dtype(name): number for name, number in _NUMBERS.items()}
OPAQUE = -1
MAX_ELEMENT_BYTES = 4096
# The results of number_of.
_found: dict[np.dtype[Any], int] = dict(_BUILT_IN)


def number_of(dtype: np.dtype[Any]) -> int:
    """The tuttiDataType_t of a dtype; OPAQUE for one that tutti moves, but knows nothing of."""
    number = _found.get(dtype)
    if number is None:
        number = _SMALL_FLOATS[dtype.name][0] if dtype.name in _SMALL_FLOATS else OPAQUE
        if number == OPAQUE:
            _check_opaque(dtype)
        _found[dtype] = number
    return number


def number_as(array: np.ndarray[Any, Any], wanted: DTypeLike) -> int:
    """The tuttiDataType_t that the caller has asked for, of the elements of `array` read as that."""
    _check_no_objects(array.dtype)
    name = wanted if isinstance(wanted, str) else np.dtype(wanted).name
    if name in _SMALL_FLOATS:
        number, size = _SMALL_FLOATS[name]
    else:
        dtype = np.dtype(wanted)
        number, size = number_of(dtype), dtype.itemsize
    if number == OPAQUE or size != array.dtype.itemsize:
        raise InvalidArgument(
            f"dtype={name!r} cannot be read from elements of {array.dtype}: it names what elements of the same size "
            'are, as in dtype="bfloat16" for an array of uint16; to convert values use .astype()'
        )
    return number


def dtype_of(number: int) -> np.dtype[Any]:
    """The dtype of a built-in datatype: for small floats ml_dtypes' where that is installed, else unsigned integers."""
    for dtype, known in _BUILT_IN.items():
        if known == number:
            return dtype
    name, size = next((name, size) for name, (known, size) in _SMALL_FLOATS.items() if known == number)
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(f"uint{8 * size}")
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def scalar_of(value: Any, wanted: DTypeLike) -> np.ndarray[Any, Any]:
    """An array of one element of `wanted`."""
    name = wanted if isinstance(wanted, str) else np.dtype(wanted).name
    if name not in _SMALL_FLOATS:
        return np.array([value], wanted)
    dtype = dtype_of(_SMALL_FLOATS[name][0])
    if dtype.name != name:
        raise InvalidArgument(f"a scalar of {name} needs the package ml_dtypes, which rounds it")
    return np.array([value], dtype)


def _check_no_objects(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise InvalidArgument(f"elements of {dtype} are Python objects, which mean nothing elsewhere: pickle them")


def _check_opaque(dtype: np.dtype[Any]) -> None:
    _check_no_objects(dtype)
    if not 1 <= dtype.itemsize <= MAX_ELEMENT_BYTES:
        raise InvalidArgument(f"elements of {dtype} have {dtype.itemsize} bytes: tutti takes 1 to {MAX_ELEMENT_BYTES}")


def refusal_of_operator(dtype: np.dtype[Any]) -> InvalidArgument:
    """Why a built-in operator does not take a dtype that tutti knows nothing of."""
    native = dtype.newbyteorder("=")
    if native in _BUILT_IN:
        return InvalidArgument(f"elements of {dtype} have the byte order of other machines: use .astype({native})")
    return InvalidArgument(
        f"elements of {dtype} can be moved, but not combined by a built-in operator: make one with "
        "Communicator.operator(function)"
    )
