"""Wrong arguments, ranks that differ, and ranks that die: every rank gets an exception with the reason, soon."""

import contextlib
import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import ranks
import tutti_torch

# The requirement is a second; a loaded machine may take longer. Far below the timeout of most groups here.
SOON_S = 20.0
# Of groups in which operations time out. Ranks must also come together within it, on a loaded machine too.
SHORT_S = 5


def refused_text(call) -> str:
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        call()
    assert time.monotonic() - begun < SOON_S
    return str(caught.value)


WRONG = {
    "share memory": lambda: torch.ones(1).expand(10),
    "dense": lambda: torch.eye(10).to_sparse_csr(),
    "type": lambda: torch.ones(10).to(torch.float8_e4m3fnuz),
    "CPU": lambda: torch.ones(10, device="meta"),
}


@pytest.mark.parametrize("what", sorted(WRONG))
@pytest.mark.parametrize("async_op", (False, True))
def test_a_tensor_that_one_rank_refuses(what: str, async_op: bool) -> None:
    def body(rank: int, size: int) -> None:
        tensor = WRONG[what]() if rank == 1 else torch.ones(10)

        def call() -> None:
            # Through the group itself: torch.distributed picks the backend by the tensor's device.
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            options = dist.AllreduceOptions()
            options.asyncOp = async_op
            backend.allreduce([tensor], options).wait()

        text = refused_text(call)
        assert what in text, text
        if rank != 1:
            assert "rank 1 refused" in text, text

    ranks.run(3, body)


def test_what_all_ranks_refuse_leaves_the_group_as_it_was() -> None:
    def body(rank: int, size: int) -> None:
        for _ in range(3):
            refused_text(lambda: dist.all_reduce(WRONG["share memory"]()))
            with pytest.raises(RuntimeError, match="avg is not defined for datatype bool") as caught:
                dist.all_reduce(torch.ones(3, dtype=torch.bool), op=dist.ReduceOp.AVG)
            assert not isinstance(caught.value, dist.DistBackendError)
            with pytest.raises(RuntimeError, match="output tensors 0 and 2 share memory"):
                outputs = [torch.zeros(2) for _ in range(2)]
                dist.all_gather([*outputs, outputs[0]], torch.ones(2))
            tensor = torch.ones(5)
            dist.all_reduce(tensor)
            assert tensor[0].item() == size
        # Long after a refusal, no rank confuses it with a later operation.
        if rank == 0:
            time.sleep(1)
        dist.all_reduce(torch.ones(5))

    ranks.run(3, body)


@pytest.mark.parametrize("tag", (0, 7))
def test_a_receive_after_a_refused_one_waits_for_its_message(tag: int) -> None:
    def body(rank: int, size: int) -> None:
        # The ranks are connected.
        tensor = torch.zeros(10)
        dist.recv(tensor, 1, tag=tag) if rank == 0 else dist.send(tensor, 0, tag=tag)
        if rank == 0:
            refused_text(lambda: dist.recv(WRONG["share memory"](), 1, tag=tag))
            dist.recv(tensor, 1, tag=tag)
            assert tensor.eq(1).all()
        else:
            time.sleep(2)
            dist.send(torch.ones(10), 0, tag=tag)

    ranks.run(2, body)


def test_a_refusal_explains_no_later_failure() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            refused_text(lambda: dist.all_reduce(WRONG["share memory"]()))
        for _ in range(3):
            dist.all_reduce(torch.ones(5))
        if rank == 1:
            os._exit(3)
        text = refused_text(lambda: [dist.all_reduce(torch.ones(5)) for _ in range(2)])
        assert "rank 1" in text and "share memory" not in text, text

    ranks.run(2, body, dies=(1,))


def test_a_refusal_among_coalesced_calls_ends_their_list() -> None:
    def body(rank: int, size: int) -> None:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        backend._start_coalescing()
        backend.allreduce([torch.ones(4)])
        backend.allreduce([WRONG["share memory"]()])
        backend.allreduce([torch.ones(4)])
        assert "share memory" in refused_text(backend._end_coalescing)
        tensor = torch.ones(4)
        backend.allreduce([tensor]).wait()
        assert tensor[0].item() == size
        backend._start_coalescing()
        backend.allreduce([tensor])
        backend._end_coalescing().wait()
        assert tensor[0].item() == size * size

    ranks.run(2, body)


def test_tensors_that_differ_between_ranks() -> None:
    def different_sizes(rank: int) -> torch.Tensor:
        return torch.ones(10 + rank)

    def different_types(rank: int) -> torch.Tensor:
        return torch.ones(10, dtype=torch.float32 if rank == 0 else torch.int32)

    for make in (different_sizes, different_types):

        def body(rank: int, size: int) -> None:
            text = refused_text(lambda: dist.all_reduce(make(rank)))
            assert "rank 0" in text and "rank 1" in text, text

        ranks.run(2, body)


def test_different_collectives() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(10)

        def call() -> None:
            dist.all_reduce(tensor) if rank == 0 else dist.broadcast(tensor, 1)
            dist.barrier()  # the root of a broadcast does not wait

        text = refused_text(call)
        assert "all-reduce" in text or "all_reduce" in text or "broadcast" in text, text

    ranks.run(2, body)


@pytest.mark.parametrize("async_op", (False, True))
def test_a_killed_rank_is_named(async_op: bool) -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(1000))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

        def call() -> None:
            for _ in range(1000):
                work = dist.all_reduce(torch.ones(1000), async_op=async_op)
                if work is not None:
                    work.wait()

        text = refused_text(call)
        assert "rank 1" in text and "Connection closed by peer" in text, text
        # The failure stays in its group.
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(1))

    ranks.run(3, body, dies=(1,))


@pytest.mark.parametrize("sends", (False, True))
def test_the_first_message_of_two_ranks_ends_with_the_other_rank(sends: bool) -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            os._exit(3)
        if rank == 2:
            first = (lambda: dist.send(torch.ones(3), 1)) if sends else (lambda: dist.recv(torch.ones(3), 1))
            assert "rank 1" in refused_text(first)

    ranks.run(3, body, dies=(1,))


@pytest.mark.parametrize("ends", ("killed", "gives_up"))
def test_a_first_message_to_a_rank_that_had_come_to_it_before(ends: str) -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(1))
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            work = dist.irecv(torch.ones(3), 0)
            if ends == "killed":
                store.set("has called", "")
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGKILL)
            refused_text(work.wait)
            store.set("has given up", "")
        elif rank == 0:
            store.wait(["has called" if ends == "killed" else "has given up"])
            if ends == "killed":
                time.sleep(1.2)
            assert "rank 1" in refused_text(lambda: dist.send(torch.ones(3), 1))

    ranks.run(3, body, timeout_s=SHORT_S, dies=(1,) if ends == "killed" else ())


def test_the_first_message_of_two_ranks_has_the_timeout_of_the_group() -> None:
    def body(rank: int, size: int) -> None:
        # Each waits for the other.
        text = refused_text(lambda: dist.recv(torch.ones(3), 1 - rank))
        assert f"rank {1 - rank}" in text and f"{SHORT_S}000 ms" in text, text
        text = refused_text(lambda: dist.irecv(torch.ones(3), 1 - rank).wait())
        assert f"rank {1 - rank}" in text, text
        # Other operations of the group continue.
        dist.all_reduce(torch.ones(1))

    ranks.run(2, body, timeout_s=SHORT_S)


def test_a_python_exception_in_one_rank_ends_the_others() -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(10))
        if rank == 0:
            os._exit(3)  # as the interpreter does after a traceback
        refused_text(lambda: dist.all_reduce(torch.ones(10)))

    ranks.run(2, body, dies=(0,))


def test_an_error_of_a_message_says_which_ranks_of_the_group_it_is_of() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 1:
            # A short message may be in flight before the ranks know of each other's call.
            with contextlib.suppress(dist.DistBackendError):
                dist.send(torch.ones(4), 2)
        elif rank == 2:
            text = refused_text(lambda: dist.recv(torch.ones(3), 1))
            assert "rank 1 runs send 1 to rank 2" in text and "rank 0" not in text, text
            assert "process group has failed before" in refused_text(lambda: dist.recv(torch.ones(3), 1))

    ranks.run(3, body)


def test_a_message_that_nobody_sends_is_told_of_in_the_ranks_of_the_group() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 2:
            dist.recv(torch.ones(3), 1)
            text = refused_text(lambda: dist.recv(torch.ones(3), 1))
            assert "waiting for data from rank 1" in text, text
            assert "rank 0" not in text and "tuttiGroup" not in text and "or cannot be reached" in text, text
            store.set("raised", "")
        elif rank == 1:
            dist.send(torch.ones(3), 2)
            store.wait(["raised"])

    ranks.run(3, body, timeout_s=SHORT_S)


def test_what_follows_a_failure_says_that_there_was_one() -> None:
    def body(rank: int, size: int) -> None:
        first = refused_text(lambda: dist.all_reduce(torch.ones(10 + rank)))
        assert "failed before" not in first, first
        for _ in range(2):
            text = refused_text(dist.barrier)
            assert "tutti barrier: the process group has failed before, and can only be shrunk or destroyed" in text, text
            assert "all_reduce(count 10" in text, text

    ranks.run(2, body)


def test_a_refusal_for_which_others_have_ended_the_group_is_told_later() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            with pytest.raises(RuntimeError, match="7 elements"):
                dist.reduce_scatter_tensor(torch.ones(3), torch.ones(7))
            time.sleep(2)
            assert "it had refused" in refused_text(dist.barrier)
        else:
            refused_text(lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(6)))

    ranks.run(2, body)


def test_a_failed_group_with_first_messages_that_nobody_has_waited_for_ends() -> None:
    def body(rank: int, size: int) -> None:
        # Begun before the group fails: a later one may fail at once.
        works = [dist.isend(torch.ones(3), 1 - rank)]
        refused_text(lambda: dist.all_reduce(torch.ones(10 + rank)))
        with contextlib.suppress(RuntimeError):
            works.append(dist.isend(torch.ones(3), 1 - rank))
        refused_text(lambda: dist.recv(torch.ones(4), 1 - rank))
        began = time.monotonic()
        dist.destroy_process_group()
        assert time.monotonic() - began < 20, works
        dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)

    ranks.run(2, body, timeout_s=SHORT_S)


def test_an_error_names_the_process_group() -> None:
    def body(rank: int, size: int) -> None:
        plain, described = dist.new_group([0, 1]), dist.new_group([0, 1], group_desc="of the data")
        if rank > 1:
            return
        for group, name in ((plain, plain.group_name), (described, "of the data"), (None, None)):
            text = refused_text(lambda group=group: dist.all_reduce(torch.ones(10 + rank), group=group))
            assert (f"(in process group {name})" in text) if name else ("process group" not in text), text

    ranks.run(3, body)


def test_a_rank_that_has_left_is_named_as_one() -> None:
    def body(rank: int, size: int) -> None:
        dist.all_reduce(torch.ones(10))
        if rank == 1:
            return
        text = refused_text(lambda: dist.all_reduce(torch.ones(10)))
        assert "Connection closed by peer: " in text, text
        assert "rank 1 has left after 1 operation" in text and "different" not in text, text

    ranks.run(3, body)


def test_a_dead_rank_may_have_had_the_store() -> None:
    def body(rank: int, folder: str) -> None:
        path = os.path.join(folder, "port")
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, 3, is_master=True, wait_for_workers=False)
            with open(path + ".part", "w") as file:
                file.write(str(store.port))
            os.rename(path + ".part", path)
        else:
            while not os.path.exists(path):
                time.sleep(0.001)
            with open(path) as file:
                store = dist.TCPStore("127.0.0.1", int(file.read()), 3, wait_for_workers=False)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=3)
        dist.barrier()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        assert "rank 0" in refused_text(lambda: [dist.all_reduce(torch.ones(10)) for _ in range(2)])

    ranks.fork_ranks(3, body, dies=(0,))


def test_abort_ends_what_waits() -> None:
    def body(rank: int, size: int) -> None:
        dist.barrier()
        if rank == 1:
            time.sleep(2)
            return
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        threading.Timer(0.3, backend.abort).start()
        refused_text(lambda: dist.all_reduce(torch.ones(10)))

    ranks.run(2, body)


def test_the_monitored_barrier_names_who_is_missing() -> None:
    def body(rank: int, size: int) -> None:
        tutti_torch.monitored_barrier()
        store = dist.distributed_c10d._get_default_store()
        if rank in (1, 3):
            store.wait(["raised 0", "raised 2"])
            return
        # They begin together, so that both come within the limit.
        store.set(f"begins {rank}", "")
        store.wait(["begins 0", "begins 2"])
        limit = datetime.timedelta(seconds=3)
        text = refused_text(lambda: tutti_torch.monitored_barrier(timeout=limit, wait_all_ranks=True))
        assert text.startswith("tutti monitored_barrier: Timed out waiting: "), text
        assert "Ranks 1, 3 failed to pass monitoredBarrier" in text, text
        # With the words by which programs recognise gloo's errors.
        assert ("Rank 0 timed out in monitoredBarrier" if rank == 0 else "Rank 2 successfully reached") in text, text
        store.set(f"raised {rank}", "")

    ranks.run(4, body)


def test_a_failed_group_leaves_the_next_one_alone() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.new_group()
        refused_text(lambda: dist.all_reduce(torch.ones(10 + rank), group=group))
        dist.destroy_process_group(group)
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=dist.new_group())
        assert tensor[0].item() == size * size

    ranks.run(2, body)
