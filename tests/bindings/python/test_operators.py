"""User-defined operators: Python functions, and sums weighted by a scalar."""

import sys

import ml_dtypes
import numpy as np
import pytest

import ranks
import tutti


def affine(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """First x -> a x + b of the lower ranks, then that of the upper ones: does not commute."""
    combined = np.empty_like(lower)
    combined["a"] = lower["a"] * upper["a"]
    combined["b"] = upper["a"] * lower["b"] + upper["b"]
    return combined


@pytest.mark.parametrize("size", (2, 3))
def test_functions_of_structures(size: int) -> None:
    kind = np.dtype([("a", "f8"), ("b", "f8")])

    def body(comm: tutti.Communicator) -> None:
        operator = comm.operator(affine, commutative=False)
        maps = [np.array([(rank + 2.0, 3.0 - rank)] * 4000, kind) for rank in range(comm.size)]
        expected = maps[0]
        for other in maps[1:]:
            expected = affine(expected, other)
        np.testing.assert_array_equal(comm.all_reduce(maps[comm.rank], op=operator), expected)
        with tutti.Stream() as stream:
            queued = comm.scan(maps[comm.rank], op=operator, stream=stream)
        if comm.rank == comm.size - 1:
            np.testing.assert_array_equal(queued, expected)
        operator.destroy()

    ranks.run(size, body)


def test_functions_of_numbers() -> None:
    def body(comm: tutti.Communicator) -> None:
        larger = comm.operator(lambda a, b: np.where(abs(a) > abs(b), a, b))
        for dtype in (np.float32, np.int16, ml_dtypes.bfloat16):
            total = comm.all_reduce(np.array([-3 * comm.rank, 1], dtype), op=larger)
            assert total.astype(float).tolist() == [-3, 1]

    ranks.run_threads(2, body)


def test_numpy_functions_as_operators() -> None:
    def body(comm: tutti.Communicator) -> None:
        mine = np.array([comm.rank + 1, -5, 6])
        for function, op in (
            (np.add, "sum"),
            (np.multiply, "prod"),
            (np.maximum, "max"),
            (np.minimum, "min"),
            (np.bitwise_and, "band"),
            (np.bitwise_or, "bor"),
            (np.bitwise_xor, "bxor"),
            (np.logical_and, "land"),
            (np.logical_or, "lor"),
            (np.logical_xor, "lxor"),
        ):
            combined = function(np.array([1, -5, 6]), np.array([2, -5, 6]))
            assert comm.all_reduce(mine, op=function).tolist() == combined.tolist()
            assert comm.all_reduce(mine, op=op.upper()).tolist() == combined.tolist()
        with pytest.raises(tutti.InvalidArgument, match="op is .*subtract.*give one of tutti.Op"):
            comm.all_reduce(mine, op=np.subtract)

    ranks.run_threads(2, body)


def test_built_in_operators_by_name() -> None:
    def body(comm: tutti.Communicator) -> None:
        mine = np.array([comm.rank + 1, -5])
        for op in tutti.Op:
            by_name = comm.all_reduce(mine, op=op.name.lower())
            assert by_name.tolist() == comm.all_reduce(mine, op=op).tolist()
        assert comm.all_reduce(mine, op="max").tolist() == [2, -5]
        assert comm.reduce_scatter_v(mine, [1, 1], op="min").tolist() == [[1], [-5]][comm.rank]

    ranks.run_threads(2, body)


def test_averages_of_integers_are_rounded_towards_zero() -> None:
    def body(comm: tutti.Communicator) -> None:
        assert comm.all_reduce(np.array([comm.rank, -comm.rank]), op="avg").tolist() == [0, 0]

    ranks.run_threads(2, body)


def test_weighted_sums() -> None:
    def body(comm: tutti.Communicator) -> None:
        weighted = comm.pre_mul_sum(comm.rank + 1, np.float32)
        assert comm.all_reduce(np.ones(3, np.float32), op=weighted).tolist() == [3, 3, 3]
        small = comm.pre_mul_sum(0.5, "bfloat16")
        bits = np.array([1.5], ml_dtypes.bfloat16).view(np.uint16)
        assert comm.all_reduce(bits, op=small, dtype="bfloat16").view(ml_dtypes.bfloat16)[0] == 1.5

    ranks.run(2, body)


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small floats are integers of the same size, whose values NumPy does not know."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    comm = tutti.Communicator.in_process(1)[0]
    bits = np.array([0x3FC0], np.uint16)
    assert comm.all_reduce(bits, dtype="bfloat16").tolist() == [0x3FC0]
    with pytest.raises(tutti.InvalidArgument, match="needs the package ml_dtypes"):
        comm.pre_mul_sum(0.5, "bfloat16")

    def body(one: tutti.Communicator) -> None:
        first = one.operator(lambda a, b: a, commutative=False)
        assert one.all_reduce(bits + one.rank, op=first, dtype="bfloat16").tolist() == [0x3FC0]

    ranks.run_threads(2, body)


@pytest.mark.parametrize("queued", (False, True))
def test_what_a_function_raises_is_told(queued: bool) -> None:
    def wrong(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        raise KeyError("not today")

    def body(comm: tutti.Communicator) -> None:
        operator = comm.operator(wrong)
        with pytest.raises(tutti.Aborted, match="KeyError.*not today") as raised:
            if queued:
                stream = tutti.Stream()
                comm.all_reduce(np.ones(3), op=operator, stream=stream)
                stream.synchronize()
            else:
                comm.all_reduce(np.ones(3), op=operator)
        assert isinstance(raised.value.__cause__, KeyError)
        with pytest.raises(tutti.Aborted):
            comm.barrier()

    ranks.run(2, body)


@pytest.mark.parametrize("wrong", (lambda a, b: (a + b).sum(), lambda a, b: None, lambda a, b: [1.0]))
def test_functions_return_an_element_for_each(wrong) -> None:
    def body(comm: tutti.Communicator) -> None:
        with pytest.raises(tutti.Aborted, match="given 3 elements of each side, and returned"):
            comm.all_reduce(np.ones(3), op=comm.operator(wrong))

    ranks.run_threads(2, body)


def test_queued_buffers_live_on_beside_a_failure() -> None:
    """The second rank has queued nothing yet: what the first has queued goes on, whatever its operator has raised."""
    first, second = tutti.Communicator.in_process(2)
    operator = first.operator(lambda a, b: a)
    operator._failures.append(KeyError("before"))
    with tutti.Stream() as stream, tutti.Stream() as other:
        values = np.ones(100_000)
        held = sys.getrefcount(values)
        with pytest.raises(tutti.Aborted, match="before"):
            first.all_reduce(values, op=operator, stream=stream)
        assert sys.getrefcount(values) > held
        second.all_reduce(np.ones(100_000), op=second.operator(lambda a, b: a), stream=other)
        with pytest.raises(tutti.Aborted, match="before"):
            stream.synchronize()
        assert sys.getrefcount(values) == held


def test_operators_belong_to_communicators() -> None:
    one, other = tutti.Communicator.in_process(1)[0], tutti.Communicator.in_process(1)[0]
    with pytest.raises(tutti.InvalidArgument, match="another communicator's"):
        one.all_reduce(np.ones(3), op=other.pre_mul_sum(2, "float64"))
