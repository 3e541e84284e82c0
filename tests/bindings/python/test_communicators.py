"""How communicators are made and ended, and their errors."""

import dataclasses
import multiprocessing
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import forked
import ranks
import tutti


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_from_environment() -> None:
    program = (
        "import numpy, tutti\n"
        "with tutti.Communicator.from_environment() as comm:\n"
        "    print(comm.rank, comm.size, comm.all_reduce(numpy.ones(1000))[0])\n"
    )
    root = f"127.0.0.1:{free_port()}"
    started = []
    for rank in range(2):
        variables = {"TUTTI_RANK": str(rank), "TUTTI_WORLD_SIZE": "2", "TUTTI_ROOT": root}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", program], env=os.environ | variables, stdout=subprocess.PIPE, text=True
            )
        )
    assert [process.communicate(timeout=forked.LIMIT_S)[0] for process in started] == ["0 2 2.0\n", "1 2 2.0\n"]


def test_alone_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_RANK", "0")
    monkeypatch.setenv("TUTTI_WORLD_SIZE", "1")
    with tutti.Communicator.from_environment() as comm:
        assert (comm.rank, comm.size) == (0, 1) and comm.all_reduce(np.ones(3)).tolist() == [1, 1, 1]


def test_no_launcher() -> None:
    with pytest.raises(tutti.InvalidUsage, match="TUTTI_RANK") as raised:
        tutti.Communicator.from_environment()
    assert raised.value.code == 5


def test_names_of_other_libraries_are_answered_with_those_of_this_one() -> None:
    for name, hint in (
        ("timeout", "timeout_ms .in milliseconds."),
        ("init_timeout", "init_timeout_ms .in milliseconds."),
        ("timeout_MS", "timeout_ms"),
        ("algoritm", "algorithm"),
    ):
        with pytest.raises(TypeError, match=f"Config has no field '{name}'; is {hint} meant"):
            tutti.Config(**{name: 3})
    with pytest.raises(TypeError, match="Config has no field 'pigeons'$"):
        tutti.Config(pigeons=1)
    assert dataclasses.replace(tutti.Config(timeout_ms=5), check="strict") == tutti.Config(5, check="strict")
    assert pickle.loads(pickle.dumps(tutti.Config(timeout_ms=5))).timeout_ms == 5
    with tutti.Communicator.in_process(1)[0] as comm:
        for name, meant in (
            ("allreduce", "all_reduce"),
            ("Allreduce", "all_reduce"),
            ("AllReduce", "all_reduce"),
            ("alltoall", "all_to_all"),
            ("Alltoallv", "all_to_all_v"),
            ("Bcast", "broadcast"),
            ("Get_rank", "rank"),
            ("world_size", "size"),
            ("brodcast", "broadcast"),
        ):
            with pytest.raises(AttributeError, match=f"Communicator has no attribute '{name}'; is {meant} meant"):
                getattr(comm, name)
        assert not hasattr(comm, "__array_interface__") and not hasattr(comm, "pigeons")
        for name in ("all-reduce", "allreduce", "AllReduce"):
            assert comm.explain(name, 8) == comm.explain("all_reduce", 8)
        assert comm.explain("alltoall", 8) == comm.explain("all_to_all", 8)


def test_split() -> None:
    def body(comm: tutti.Communicator) -> None:
        halves = comm.split(comm.rank % 2, -comm.rank)
        assert halves is not None
        with halves:
            assert halves.all_reduce(np.array([comm.rank]))[0] == (2 if comm.rank % 2 == 0 else 1)
            assert halves.rank == (1 if comm.rank == 0 else 0)
        for none in (None, -1):
            some = comm.split(none if comm.rank == 0 else 0)
            assert (some is None) == (comm.rank == 0)

    ranks.run(3, body)


def test_a_job_within_a_job() -> None:
    def body(comm: tutti.Communicator) -> None:
        unique_id = bytearray(comm.unique_id() if comm.rank == 0 else bytes(128))
        comm.broadcast(unique_id)
        with tutti.Communicator.from_unique_id(bytes(unique_id), comm.rank, comm.size) as second:
            assert second.all_reduce(np.ones(1))[0] == 2

    ranks.run(2, body)


def test_explain_and_config() -> None:
    def body(comm: tutti.Communicator) -> str:
        assert comm.explain("all_reduce", 1 << 20) == comm.explain(tutti.Collective.ALL_REDUCE, np.int64(1 << 20))
        return comm.explain(tutti.Collective.ALL_REDUCE, 1 << 20)

    config = tutti.Config(algorithm="all_reduce:ring", transports="tcp", timeout_ms=60000)
    assert ranks.run(2, body, config) == ["ring over tcp"] * 2
    with pytest.raises(tutti.InvalidArgument, match="no_such"):
        tutti.Communicator.in_process(1, tutti.Config(algorithm="no_such"))


def test_death_of_a_rank() -> None:
    def body(comm: tutti.Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            os._exit(3)
        with pytest.raises(tutti.RemoteError, match="rank 1") as raised:
            comm.all_reduce(np.ones(1000))
            comm.barrier()
        assert raised.value.code == 6

    ranks.run(2, body, dies=(1,))


def test_ranks_go_on_without_a_killed_one() -> None:
    def body(comm: tutti.Communicator) -> tuple[list[int], int, float]:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tutti.RemoteError, match="rank 1"):
            while True:
                comm.all_reduce(np.ones(1000))
        assert comm.agree(0b1110 if comm.rank == 0 else 0b0111) == 0b0110
        with comm.shrink() as rest:
            total = rest.all_reduce(np.full(1000, comm.rank, np.float64))
            assert (total == 5).all() and rest.failed() == []
            return comm.failed(), rest.rank, rest.size

    assert ranks.run(4, body, dies=(1,)) == [([1], 0, 3), None, ([1], 1, 3), ([1], 2, 3)]


def test_collectives_go_on_in_survivor_mode() -> None:
    def body(world: tutti.Communicator) -> object:
        comm = world.split(0, config=tutti.Config(survivors="on"))
        assert comm is not None and world.contributors() == comm.contributors() == [0, 1, 2, 3]
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        average = comm.all_reduce(np.full(1000, comm.rank, np.float64), op="avg")
        assert (average == 5 / 3).all()
        with pytest.raises(tutti.RemoteError, match="rank 1, the root, has died"):
            comm.broadcast(np.ones(10), root=1)
        gathered = np.full((4, 3), -1)
        comm.all_gather(np.full(3, comm.rank), out=gathered)
        return comm.contributors(), gathered[:, 0].tolist()

    expected = ([0, 2, 3], [0, -1, 2, 3])
    assert ranks.run(4, body, dies=(1,)) == [expected, None, expected, expected]


def test_a_rank_that_has_died_is_replaced() -> None:
    post = multiprocessing.get_context("fork").SimpleQueue()

    def body(world: tutti.Communicator) -> object:
        comm = world.split(0 if world.rank < 3 else None)
        if comm is None:
            with tutti.Communicator.from_unique_id(post.get(), 1, 3) as new:
                return new.rank, new.all_reduce(np.array([new.rank]))[0]
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tutti.RemoteError, match="rank 1"):
            while True:
                comm.all_reduce(np.ones(1000))
        unique_id = comm.unique_id() if comm.rank == 2 else None
        if unique_id is not None:
            post.put(unique_id)
        with pytest.raises(tutti.InvalidArgument, match="bytes"):
            comm.grow(4, b"short")
        with comm.grow(3, unique_id) as new:
            assert comm.failed() == [1]
            return new.rank, new.all_reduce(np.array([new.rank]))[0]

    assert ranks.run(4, body, dies=(1,)) == [(0, 3), None, (2, 3), (1, 3)]


def test_shrink_excludes_ranks() -> None:
    def body(comm: tutti.Communicator) -> None:
        if comm.rank != 1:
            with comm.shrink([1]) as pair:
                assert (pair.rank, pair.size) == (comm.rank // 2, 2)
                assert pair.all_reduce(np.array([comm.rank]))[0] == 2
        assert comm.all_reduce(np.array([1]))[0] == 3 and comm.failed() == []
        assert comm.agree(2**64 - 1 - (1 << comm.rank)) == 2**64 - 8
        if comm.rank != 1:
            with comm.shrink((1,), tutti.Config(algorithm="all_reduce:ring"), abort=True) as pair:
                assert pair.explain("all_reduce", 8).startswith("ring")
            assert isinstance(comm.error(), tutti.Aborted)
        for wrong in (-1, 3, comm.rank):
            with pytest.raises(tutti.InvalidArgument, match=str(wrong)):
                comm.shrink([wrong])
        for wrong in (-1, 2**64):
            with pytest.raises(OverflowError):
                comm.agree(wrong)
        comm.abort()

    ranks.run_threads(3, body)


def test_timeout(tmp_path: pathlib.Path) -> None:
    def body(comm: tutti.Communicator) -> None:
        if comm.rank == 0:
            with pytest.raises(tutti.Timeout, match="rank 1") as raised:
                comm.all_reduce(np.ones(1000))
            assert isinstance(raised.value, TimeoutError) and raised.value.code == 8
            (tmp_path / "raised").touch()
        else:
            while not (tmp_path / "raised").exists():
                time.sleep(0.01)

    ranks.run(2, body, tutti.Config(timeout_ms=300))


def test_mismatch() -> None:
    def body(comm: tutti.Communicator) -> None:
        with pytest.raises(tutti.Mismatch, match="all_reduce.*broadcast|broadcast.*all_reduce"):
            comm.all_reduce(np.ones(3)) if comm.rank else comm.broadcast(np.ones(3))

    ranks.run(2, body, tutti.Config(check="strict"))


def test_calls_after_a_failure_say_that_it_was_before() -> None:
    """The class and the code stay those of the failure; what is refused for itself is refused as ever."""
    before = "has failed before: it can only be shrunk, destroyed or aborted.*rank 1 runs operation 1, all_reduce"

    def body(comm: tutti.Communicator) -> None:
        values = np.ones(3)
        held = sys.getrefcount(values)
        with pytest.raises(tutti.Mismatch, match="^ranks called different operations"):
            comm.all_reduce(values) if comm.rank else comm.broadcast(values)
        assert sys.getrefcount(values) == held
        calls = (
            lambda: comm.reduce(np.ones(3)),
            lambda: comm.scatter(np.ones(4), comm.rank),
            lambda: comm.all_gather(np.zeros(3, "S5")),
            lambda: comm.split(0),
            lambda: with_group(comm),
            comm.finalize,
        )
        for call in calls:
            with pytest.raises(tutti.Mismatch, match=f"^the communicator {before}"):
                call()
        with pytest.raises(tutti.InvalidArgument, match="of type list"):
            comm.reduce([1])
        assert str(comm.error()).startswith("ranks called different operations")
        comm.destroy()

    def with_group(comm: tutti.Communicator) -> None:
        with tutti.group():
            comm.barrier()
            comm.barrier()

    ranks.run(2, body, tutti.Config(check="strict"))


@pytest.mark.parametrize("begin", (tutti.Stream, tutti.group))
def test_failures_of_streams_and_groups_are_before_later_calls(begin) -> None:
    def body(comm: tutti.Communicator) -> None:
        if comm.rank == 1:
            comm.abort()
            return
        bystander, received = tutti.Communicator.in_process(1)[0], np.empty(3)
        held = sys.getrefcount(received)
        with pytest.raises(tutti.Aborted, match="^(?!the communicator has).*rank 1"), begin() as begun:
            stream = begun if begin is tutti.Stream else None
            bystander.barrier(stream=stream)
            comm.recv(received, 1, stream=stream)
        assert sys.getrefcount(received) == held
        with pytest.raises(tutti.Aborted, match="^the communicator has failed before.*rank 1"):
            comm.barrier()
        bystander.barrier()

    ranks.run(2, body)


def test_a_block_that_raises_aborts_its_peers() -> None:
    def body(comm: tutti.Communicator) -> None:
        if comm.rank == 1:
            with pytest.raises(KeyError), comm:
                raise KeyError("this rank gives up")
        else:
            with pytest.raises(tutti.Aborted) as raised:
                comm.barrier()
                comm.barrier()
            assert raised.value.code == 1000

    ranks.run(2, body)


def test_abort_by_another_thread() -> None:
    """While one thread waits, another runs."""

    def body(comm: tutti.Communicator) -> None:
        if comm.rank == 0:
            threading.Timer(0.1, comm.abort).start()
            with pytest.raises((tutti.Aborted, tutti.InvalidArgument)):
                comm.recv(np.empty(3), 1)
        else:
            with pytest.raises(tutti.Aborted):
                comm.recv(np.empty(3), 0)

    ranks.run(2, body)


def test_ended_communicators_are_refused() -> None:
    comm = tutti.Communicator.in_process(1)[0]
    comm.destroy()
    comm.destroy()
    comm.abort()
    with pytest.raises(tutti.InvalidArgument):
        comm.barrier()


def test_communicators_say_who_they_are() -> None:
    first, second = tutti.Communicator.in_process(2)
    assert repr(first) == "<Communicator: rank 0 of 2>"
    first.abort()
    assert repr(first) == "<Communicator: rank 0 of 2, aborted>"
    second.destroy()
    second.abort()
    assert repr(second) == "<Communicator: rank 1 of 2, destroyed>"


def test_revoke_and_finalize() -> None:
    comm = tutti.Communicator.in_process(1)[0]
    comm.finalize()
    with pytest.raises(tutti.InvalidUsage):
        comm.barrier()
    comm = tutti.Communicator.in_process(1)[0]
    assert comm.error() is None
    comm.revoke()
    assert isinstance(comm.error(), tutti.Aborted)


def test_errors_can_be_passed_on() -> None:
    error = pickle.loads(pickle.dumps(tutti.RemoteError("rank 3 died")))
    assert type(error) is tutti.RemoteError and error.code == 6 and str(error) == "rank 3 died"
