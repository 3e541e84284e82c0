"""Streams, events, groups, sends and receives."""

import contextlib
import gc
import weakref

import numpy as np
import pytest

import ranks
import tutti


class Watched(np.ndarray):
    """An array that a weak reference can watch."""


def test_streams_and_events() -> None:
    def body(comm: tutti.Communicator) -> None:
        event = tutti.Event()
        assert event.query()
        with tutti.Stream() as stream, tutti.Stream() as behind:
            values = np.full(100_000, comm.rank + 1.0)
            first = comm.all_reduce(values, stream=stream)
            event.record(stream)
            behind.wait_event(event)
            second = comm.all_reduce(first, stream=behind)
            event.synchronize()
            assert first[0] == 3
            behind.synchronize()
            assert second[0] == 6 and stream.query() and behind.query()

    ranks.run(2, body)


def test_buffers_live_as_long_as_operations() -> None:
    """Both ranks are this thread's: the operation of the first cannot be complete before the second has queued its."""
    first, second = tutti.Communicator.in_process(2)
    with tutti.Stream() as stream, tutti.Stream() as other:
        values = np.ones(100_000).view(Watched)
        watch = weakref.ref(values)
        total = first.all_reduce(values, stream=stream)
        del values
        gc.collect()
        assert watch() is not None and not stream.query()
        second.all_reduce(np.ones(100_000), stream=other)
        stream.synchronize()
        assert total[-1] == 2
        assert watch() is None


def test_streams_that_are_dropped_finish() -> None:
    def body(comm: tutti.Communicator) -> None:
        total = comm.all_reduce(np.ones(1000), stream=tutti.Stream())
        gc.collect()
        assert total[-1] == 2

    ranks.run(2, body)


def test_errors_of_queued_operations() -> None:
    def body(comm: tutti.Communicator) -> str:
        stream = tutti.Stream()
        with pytest.raises(tutti.Error) as raised:
            comm.all_reduce(np.ones(10 + comm.rank), stream=stream)
            stream.synchronize()
        assert comm.error().code == raised.value.code
        return type(raised.value).__name__

    assert "Mismatch" in ranks.run(2, body)


def test_sends_and_receives() -> None:
    def body(comm: tutti.Communicator) -> None:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        received = np.empty(1000)
        with tutti.group():
            comm.send(np.full(1000, float(comm.rank)), right)
            assert comm.recv(received, left) is received
        assert received.tolist() == [left] * 1000
        with tutti.Stream() as stream:
            with tutti.group():
                comm.send(np.full(10, comm.rank, np.int8), right, stream=stream)
                small = comm.recv(np.empty(10, np.int8), left, stream=stream)
        assert small.tolist() == [left] * 10

    ranks.run(3, body)


def test_groups_of_collectives() -> None:
    def body(comm: tutti.Communicator) -> None:
        with tutti.group():
            with tutti.group():
                a = comm.all_reduce(np.full(3, 1.0))
            b = comm.all_gather(np.array([comm.rank]))
        assert a.tolist() == [2, 2, 2] and b.tolist() == [0, 1]

    ranks.run_threads(2, body)


def test_groups_that_raise_start_nothing() -> None:
    def body(comm: tutti.Communicator) -> None:
        values = np.ones(3)
        with pytest.raises(KeyError), tutti.group():
            comm.all_reduce(values, values)
            raise KeyError("before the end")
        with pytest.raises(tutti.InvalidArgument, match="strides"), tutti.group():
            comm.all_reduce(values, values)
            comm.all_reduce(np.ones((3, 3))[:, 1])
        with pytest.raises(tutti.InvalidArgument, match="a block inside it raised KeyError") as raised, tutti.group():
            comm.all_reduce(values, values)
            with contextlib.suppress(KeyError), tutti.group():
                raise KeyError("inside")
        assert isinstance(raised.value.__cause__, KeyError)
        assert values.tolist() == [1, 1, 1]
        assert comm.all_reduce(values).tolist() == [2, 2, 2]

    ranks.run(2, body)


def test_streams_whose_block_raises_wait_for_nothing() -> None:
    """The other rank never comes to what is queued, until the communicator is aborted."""
    first, second = tutti.Communicator.in_process(2)
    with pytest.raises(KeyError), first, tutti.Stream() as stream:
        first.all_reduce(np.ones(3), stream=stream)
        raise KeyError("before the end")
    with pytest.raises(tutti.Aborted):
        second.barrier()
