"""Every collective, with blocks of equal and of different sizes, against NumPy."""

import numpy as np
import pytest

import ranks
import tutti

SIZES = (1, 2, 3)


def data(rank: int, *shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(rank).integers(1, 9, shape).astype(dtype)


def everyones(comm: tutti.Communicator, *shape: int) -> list[np.ndarray]:
    return [data(rank, *shape) for rank in range(comm.size)]


def reductions(comm: tutti.Communicator) -> None:
    mine, all_of_them = data(comm.rank, 5, 2), everyones(comm, 5, 2)
    np.testing.assert_array_equal(comm.all_reduce(mine), sum(all_of_them))
    np.testing.assert_array_equal(comm.all_reduce(mine, op=tutti.Op.MAX), np.maximum.reduce(all_of_them))
    np.testing.assert_allclose(comm.all_reduce(mine, op=tutti.Op.AVG), np.mean(all_of_them, axis=0))
    np.testing.assert_array_equal(comm.scan(mine), sum(all_of_them[: comm.rank + 1]))
    before = comm.exscan(mine)
    if comm.rank:
        np.testing.assert_array_equal(before, sum(all_of_them[: comm.rank]))
    root = comm.size - 1
    at_root = comm.reduce(mine, root, op=tutti.Op.PROD)
    assert (at_root is None) == (comm.rank != root)
    if at_root is not None:
        np.testing.assert_array_equal(at_root, np.multiply.reduce(all_of_them))
    blocks, all_blocks = data(comm.rank, 2 * comm.size, 3), everyones(comm, 2 * comm.size, 3)
    part = slice(2 * comm.rank, 2 * comm.rank + 2)
    np.testing.assert_array_equal(comm.reduce_scatter(blocks), sum(all_blocks)[part])


def moves(comm: tutti.Communicator) -> None:
    root = comm.size - 1
    mine, all_of_them = data(comm.rank, 2, 3), everyones(comm, 2, 3)
    np.testing.assert_array_equal(comm.all_gather(mine), np.concatenate(all_of_them))
    gathered = comm.gather(mine, root)
    assert (gathered is None) == (comm.rank != root)
    if gathered is not None:
        np.testing.assert_array_equal(gathered, np.concatenate(all_of_them))
    filled = mine.copy()
    assert comm.broadcast(filled, root) is filled
    np.testing.assert_array_equal(filled, all_of_them[root])
    whole = data(9, 2 * comm.size, 3)
    part = comm.scatter(whole, root) if comm.rank == root else comm.scatter(None, root, np.zeros((2, 3)))
    np.testing.assert_array_equal(part, whole[2 * comm.rank : 2 * comm.rank + 2])
    exchanged = comm.all_to_all(data(comm.rank, 2 * comm.size))
    expected = [other[2 * comm.rank : 2 * comm.rank + 2] for other in everyones(comm, 2 * comm.size)]
    np.testing.assert_array_equal(exchanged, np.concatenate(expected))
    comm.barrier()
    np.testing.assert_array_equal(comm.all_gather(np.float32(comm.rank)), np.arange(comm.size, dtype=np.float32))


def vectors(comm: tutti.Communicator) -> None:
    root, counts = comm.size - 1, list(range(1, comm.size + 1))
    mine = data(comm.rank, counts[comm.rank], 2)
    joined = np.concatenate([data(rank, count, 2) for rank, count in enumerate(counts)])
    own = slice(sum(counts[: comm.rank]), sum(counts[: comm.rank + 1]))
    np.testing.assert_array_equal(comm.all_gather_v(mine, counts), joined)
    np.testing.assert_array_equal(comm.all_gather_v(mine, np.array(counts)), joined)
    gathered = comm.gather_v(mine, counts if comm.rank == root else None, root)
    if comm.rank == root:
        np.testing.assert_array_equal(gathered, joined)
        part = comm.scatter_v(joined, counts, root)
    else:
        part = comm.scatter_v(None, None, root, np.zeros_like(mine))
    np.testing.assert_array_equal(part, mine)
    whole = everyones(comm, sum(counts), 2)
    np.testing.assert_array_equal(comm.reduce_scatter_v(whole[comm.rank], counts), sum(whole)[own])
    # Rank r sends r + 1 items to each.
    sent = np.full(comm.size * (comm.rank + 1), comm.rank)
    received = comm.all_to_all_v(sent, [comm.rank + 1] * comm.size, counts)
    np.testing.assert_array_equal(received, np.repeat(np.arange(comm.size), counts))


def displacements(comm: tutti.Communicator) -> None:
    counts, places = [2] * comm.size, [3 * rank + 1 for rank in range(comm.size)]
    out = np.full(3 * comm.size, -1)
    assert comm.all_gather_v(np.full(2, comm.rank), counts, out, displacements=places) is out
    expected = np.full(3 * comm.size, -1)
    for rank, place in enumerate(places):
        expected[place : place + 2] = rank
    np.testing.assert_array_equal(out, expected)
    reversed_ = comm.all_to_all_v(
        np.arange(comm.size),
        [1] * comm.size,
        [1] * comm.size,
        np.empty(comm.size, int),
        send_displacements=list(range(comm.size)),
        receive_displacements=list(range(comm.size))[::-1],
    )
    np.testing.assert_array_equal(reversed_, np.full(comm.size, comm.rank))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", (reductions, moves, vectors, displacements))
def test_against_numpy(body, size: int) -> None:
    ranks.run(size, body)


def test_threads_of_one_process() -> None:
    """The interpreter runs the other rank while one waits: blocking calls release the lock."""
    ranks.run_threads(2, reductions)
    ranks.run_threads(2, vectors)


def test_in_place_and_into_given_arrays() -> None:
    def body(comm: tutti.Communicator) -> None:
        values = np.full(7, comm.rank + 1.0)
        out = np.empty(7)
        assert comm.all_reduce(values, out) is out
        assert comm.all_reduce(values, values) is values
        assert values[0] == out[0] == 3
        whole = np.zeros(8)
        mine = whole[4 * comm.rank : 4 * comm.rank + 4]
        mine[:] = comm.rank
        comm.all_gather(mine, whole)
        np.testing.assert_array_equal(whole, [0] * 4 + [1] * 4)
        view = comm.all_reduce(bytearray(b"\1\2"), bytearray(2))
        assert view.tolist() == [2, 4]

    ranks.run(2, body)


@pytest.mark.parametrize(
    "dtype",
    ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
     "complex64", "complex128", "bool"),
)  # fmt: skip
def test_datatypes(dtype: str) -> None:
    def body(comm: tutti.Communicator) -> None:
        total = comm.all_reduce(np.array([comm.rank, 1, 3], dtype))
        assert total.dtype == dtype
        np.testing.assert_array_equal(total, np.array([1, 2, 6], dtype))

    ranks.run_threads(2, body)


def test_large_and_empty_arrays() -> None:
    def body(comm: tutti.Communicator) -> None:
        ones = np.ones(1_000_003, np.float32)
        np.testing.assert_array_equal(comm.all_reduce(ones), 2 * ones)
        assert comm.all_reduce(np.empty(0)).shape == (0,)
        assert comm.all_gather(np.empty((0, 3))).shape == (0, 3)

    ranks.run(2, body)
