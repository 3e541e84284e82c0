"""Valid buffers, and helpful errors for invalid ones."""

import array
import gc
import sys

import ml_dtypes
import numpy as np
import pytest

import ranks
import tutti


class Tensor:
    """One that DLPack alone can read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.fixture
def alone():
    with tutti.Communicator.in_process(1)[0] as comm:
        yield comm


@pytest.mark.parametrize(
    "buffer",
    (array.array("d", [1, 2]), memoryview(np.array([1.0, 2.0])), np.array([1.0, 2.0]), Tensor(np.array([1.0, 2.0]))),
)
def test_kinds_of_buffers(alone, buffer) -> None:
    total = alone.all_reduce(buffer)
    assert total.dtype == np.float64 and total.tolist() == [1, 2]


def test_results_go_into_any_writable_buffer(alone) -> None:
    out = array.array("d", [0, 0])
    alone.all_reduce(np.array([1.0, 2.0]), out)
    assert out.tolist() == [1, 2]
    tensor = Tensor(np.zeros(2))
    alone.all_reduce(np.array([1.0, 2.0]), tensor)
    assert tensor.values.tolist() == [1, 2]
    assert alone.broadcast(b"read-only, at the root").tobytes() == b"read-only, at the root"


@pytest.mark.parametrize("dtype", (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
def test_small_floats(dtype) -> None:
    def body(comm: tutti.Communicator) -> None:
        total = comm.all_reduce(np.array([1.5, 2], dtype))
        assert total.dtype == dtype and total.astype(float).tolist() == [3, 4]

    ranks.run_threads(2, body)


def test_small_floats_named_by_dtype() -> None:
    def body(comm: tutti.Communicator) -> None:
        bits = np.array([1.5, 2], ml_dtypes.bfloat16).view(np.uint16)
        total = comm.all_reduce(bits, dtype="bfloat16")
        assert total.dtype == np.uint16
        assert total.view(ml_dtypes.bfloat16).astype(float).tolist() == [3, 4]

    ranks.run_threads(2, body)


@pytest.mark.parametrize("dtype", ([("key", "i4"), ("value", "f8")], "S5", "datetime64[s]", ">f4", "longdouble"))
def test_other_dtypes_are_moved(dtype) -> None:
    def body(comm: tutti.Communicator) -> None:
        mine = np.full(3, comm.rank).astype(dtype)
        gathered = comm.all_gather(mine)
        assert gathered.dtype == mine.dtype
        np.testing.assert_array_equal(gathered, np.concatenate([np.full(3, rank).astype(dtype) for rank in range(2)]))

    ranks.run_threads(2, body)


def test_mappable_memory() -> None:
    def body(comm: tutti.Communicator) -> None:
        values = tutti.empty((500, 1000), np.float32)
        assert values.shape == (500, 1000) and values.ctypes.data % 4096 == 0 and not values.any()
        values += comm.rank + 1
        total = tutti.empty((500, 1000), np.float32)
        comm.all_reduce(values, total)
        part = total[3]
        del total, values
        gc.collect()
        assert part.min() == part.max() == 3
        assert tutti.empty(0).shape == (0,)
        assert tutti.empty(np.int64(3)).shape == tutti.empty(np.array([3])).shape == (3,)

    ranks.run(2, body)


def read_only() -> np.ndarray:
    values = np.zeros(4)
    values.flags.writeable = False
    return values


@pytest.mark.parametrize(
    "call, taught",
    (
        (lambda c: c.all_reduce([1, 2]), "of type list.*numpy.asarray"),
        (lambda c: c.all_reduce(np.zeros((4, 4))[:, 1]), r"buffer, of shape \(4,\) and strides.*ascontiguousarray"),
        (lambda c: c.all_reduce(np.zeros(4), np.zeros(3)), "out, of shape.*has 3 elements; the result.*has 4"),
        (lambda c: c.all_reduce(np.zeros(4), np.zeros(4, np.float32)), "out has elements of float32.*of float64"),
        (lambda c: c.all_reduce(np.zeros(4), read_only()), "out is read-only"),
        (lambda c: c.recv(b"1234", 0), "out is read-only"),
        (lambda c: c.all_reduce(np.array([None])), "Python objects.*pickle"),
        (lambda c: c.recv(np.array([None]), 0, dtype="int64"), "Python objects.*pickle"),
        (lambda c: c.all_reduce(np.zeros(3, ">f4")), r"byte order.*\.astype\(float32\)"),
        (lambda c: c.all_reduce(np.zeros(3, "i4,f8")), r"cannot be|but not combined.*Communicator\.operator"),
        (lambda c: c.all_reduce(np.zeros(3), op="mean"), r"op is 'mean': give one of tutti.Op or its name \('sum', 'prod', .*'avg'.*function"),
        (lambda c: c.all_reduce(np.zeros(3), op=0), "op is 0: give one of tutti.Op"),
        (lambda c: c.all_reduce(np.zeros(3), op=np.hypot), "op is .*Communicator.operator has made of a function"),
        (lambda c: c.all_reduce(np.zeros(3, "i4,f8"), op="sum"), r"but not combined.*Communicator\.operator"),
        (lambda c: c.explain("all_sum", 8), "collective is 'all_sum': give one of tutti.Collective.*'all_reduce'"),
        (lambda c: c.explain(0, 8), "collective is 0: give one of tutti.Collective"),
        (lambda c: c.all_reduce(np.zeros(3), dtype="bfloat16"), "elements of the same size.*astype"),
        (lambda c: c.all_reduce(np.zeros(2, bool), op=tutti.Op.AVG), "avg"),
        (lambda c: c.all_gather_v(np.zeros(3), [1, 2]), "counts is .*each of 1 ranks"),
        (lambda c: c.all_gather_v(np.zeros(3), [3.0]), "counts is .*each of 1 ranks"),
        (lambda c: c.all_gather_v(np.zeros(3), [4]), "has 3 items.*is 4"),
        (lambda c: c.all_gather_v(np.zeros(3), [3], displacements=[0]), "displacements need out="),
        (lambda c: c.all_gather_v(np.zeros(3), [3], np.zeros(4), displacements=[2]), "reach to 5"),
        (lambda c: c.reduce_scatter(np.float64(3)), "cannot be divided into 1 equal parts"),
        (lambda c: c.broadcast(np.zeros(3), 1), "root"),
        (lambda c: tutti.Communicator.from_unique_id(b"short", 0, 1), "has 128 bytes, and this one 5"),
        (lambda c: tutti.empty((2, -3)), r"shape is \(2, -3\)"),
    ),
)  # fmt: skip
def test_wrong_inputs_are_refused(alone, call, taught: str) -> None:
    with pytest.raises(tutti.InvalidArgument, match=taught) as raised:
        call(alone)
    assert isinstance(raised.value, ValueError) and raised.value.code == 4
    assert alone.all_reduce(np.ones(2)).tolist() == [1, 1]


def test_calls_keep_nothing(alone) -> None:
    values = np.zeros(3)
    before = sys.getrefcount(values)
    for _ in range(10):
        alone.all_reduce(values, values)
    assert sys.getrefcount(values) == before
