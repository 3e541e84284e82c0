"""What asynchronous operations return to their caller: waits, futures, callbacks, profiles, the flight record."""

import datetime
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist

import forked
import ranks
import tutti_torch


def test_many_operations_at_once_complete_in_order() -> None:
    def body(rank: int, size: int) -> None:
        tensors = [torch.full((1 << (i % 16),), float(rank + i)) for i in range(100)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        dist.barrier()  # in the calling thread, behind all of them
        assert all(work.is_completed() for work in works)
        for i, (work, tensor) in enumerate(zip(works, tensors)):
            assert work.wait() and work.is_success()
            assert torch.equal(tensor, torch.full_like(tensor, sum(range(size)) + size * i))

    ranks.run(3, body)


def test_futures_and_callbacks_that_wait_for_later_operations() -> None:
    def body(rank: int, size: int) -> None:
        order = []

        def after(future: torch.futures.Future) -> torch.Tensor:
            order.append("first")
            second = torch.ones(10)
            return dist.all_reduce(second, async_op=True).get_future().wait()[0] + future.value()[0][0]

        first = torch.full((10,), float(rank))
        chained = dist.all_reduce(first, async_op=True).get_future().then(after)
        assert torch.equal(chained.wait(), torch.full((10,), float(size + sum(range(size)))))
        assert order == ["first"]
        done = dist.barrier(async_op=True).get_future()
        assert done.wait() == []
        result = dist.all_reduce(first, async_op=True).get_future_result()
        assert result.wait() == 0

    ranks.run(2, body)


def test_a_future_that_the_program_completes_itself() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(10)
        if rank == 1:
            time.sleep(0.3)
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        if rank == 0:
            future.set_result([tensor])
        work.wait()
        assert tensor[0].item() == size
        # The thread that has found it complete continues.
        assert dist.all_reduce(tensor, async_op=True).get_future().wait()[0][0].item() == size * size

    ranks.run(2, body)


def test_memory_of_a_tensor_that_gets_another_meanwhile() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(1 << 22)
        before = tensor.detach()
        view = before.untyped_storage()._weak_ref()
        del before
        if rank == 1:
            time.sleep(0.3)
        work = dist.all_reduce(tensor, async_op=True)
        tensor.data = torch.zeros(3)
        if rank == 0:
            assert not torch.UntypedStorage._expired(view)
        work.wait()
        assert tensor.tolist() == [0, 0, 0]

    ranks.run(2, body)


def test_wait_with_a_timeout_leaves_the_operation_alone() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(10)
        if rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            begun = time.monotonic()
            with pytest.raises(RuntimeError, match="Timed out waiting 200ms"):
                work.wait(datetime.timedelta(milliseconds=200))
            assert 0.2 <= time.monotonic() - begun < 20
            dist.send(torch.zeros(1), 1)
            assert work.wait()
        else:
            dist.recv(torch.zeros(1), 0)
            dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((10,), float(size)))

    ranks.run(2, body)


def test_the_timeout_of_a_group_names_the_rank_that_does_not_come() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.wait(["raised"])
            return
        for async_op in (False, True):
            with pytest.raises(dist.DistBackendError, match="Timed out waiting: .*rank 1" if not async_op else "tutti"):
                work = dist.all_reduce(torch.ones(10), async_op=async_op)
                if work is not None:
                    work.wait()
        store.set("raised", "")

    ranks.run(2, body, timeout_s=5)


def test_tensors_are_kept_while_needed_and_no_longer() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(1 << 20)
        freed = weakref.ref(tensor.untyped_storage())
        work = dist.all_reduce(tensor, async_op=True)
        del tensor
        gc.collect()
        work.wait()
        assert torch.equal(work.result()[0][:3], torch.full((3,), float(size)))
        del work
        dist.all_reduce(torch.ones(1 << 20), async_op=True)  # no thread waits
        dist.barrier()
        deadline = time.monotonic() + 20
        while freed() is not None and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        assert freed() is None

    ranks.run(2, body)


def test_groups_in_threads() -> None:
    def body(rank: int, size: int) -> None:
        groups = [dist.new_group() for _ in range(4)]
        wrong = []

        def work(i: int) -> None:
            for k in range(50):
                tensor = torch.full((100,), float(rank + i))
                dist.all_reduce(tensor, group=groups[i], async_op=k % 2 == 0) if k % 2 else dist.all_reduce(
                    tensor, group=groups[i]
                )
                dist.barrier(group=groups[i])
                if not torch.equal(tensor, torch.full((100,), float(sum(range(size)) + size * i))):
                    wrong.append((i, k))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    ranks.run(2, body)


def test_a_profile_that_ends_with_the_last_wait_is_whole() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.ones(10)
        for i in range(60):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                for _ in range(5):
                    work = dist.all_reduce(tensor, async_op=True)
                    if i % 3 == 0:
                        work.wait()
                    elif i % 3 == 1:
                        work.get_future().wait()
                    else:
                        while not work.is_completed():
                            pass
            counted = sum(event.name == "tutti:all_reduce" for event in profile.events())
            assert counted == 5, counted

    ranks.run(2, body)


def test_profiles_show_the_operations() -> None:
    def body(rank: int, size: int) -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
            work.wait()
            dist.broadcast(torch.ones(10), 0)
            with dist._coalescing_manager():
                dist.all_gather_into_tensor(torch.ones(4 * size), torch.ones(4))
                dist.all_gather_into_tensor(torch.ones(6 * size), torch.ones(6))
            if rank == 0:
                dist.recv(torch.ones(7), 1)
            else:
                dist.send(torch.ones(7), 0)
            time.sleep(0.2)
        shapes = {event.name: event.input_shapes for event in profile.events()}
        names = set(shapes)
        assert {"tutti:all_reduce", "tutti:broadcast", "tutti:all_gather"} <= names, names
        assert shapes["tutti:recv" if rank == 0 else "tutti:send"] == [[7]], shapes
        lasted = max(event.cpu_time_total for event in profile.events() if event.name == "tutti:all_reduce")
        assert lasted > 0

    ranks.run(2, body)


def test_flight_record() -> None:
    def body(rank: int, size: int) -> bytes:
        dist.new_group([0])  # one that rank 1 is not in
        dist.all_reduce(torch.ones(3, 4))
        dist.broadcast(torch.ones(5, dtype=torch.int32), 0, async_op=True).wait()
        if rank == 0:
            dist.send(torch.ones(7), 1)
        else:
            dist.recv(torch.ones(7), 0)
        record = tutti_torch.flight_record()
        by_name = {entry["profiling_name"]: entry for entry in record["entries"]}
        assert by_name["tutti:all_reduce"]["input_sizes"] == [[3, 4]]
        assert by_name["tutti:broadcast"]["input_dtypes"] == ["Int"]
        assert by_name["tutti:send" if rank == 0 else "tutti:recv"]["is_p2p"]
        assert {entry["state"] for entry in record["entries"]} == {"completed"}
        assert [group["ranks"] for group in record["pg_config"].values()] == ["[0, 1]"] + ["[0]"] * (rank == 0)
        assert record["comm_lib_version"] == f"tutti {tutti_torch.version()}"
        return pickle.dumps(record)

    ranks.run(2, body)


GROUP_OF_ONE = """
import sys, threading, time, torch, torch.distributed as dist
dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
"""
# The interpreter's last steps take longer than all operations in flight.
SLOW_END = """
class Late:
    def __del__(self):
        time.sleep(0.5)
sys.late = Late()
"""
CALLED = """
begun = threading.Event()
def slow(future):
    begun.set()
    time.sleep(0.2)
    print("told")
    return future.value()
dist.all_reduce(torch.ones(4), async_op=True).get_future().then(slow)
"""


def run_program(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=forked.LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ends", ("", "dist.destroy_process_group()"))
def test_a_program_ends_before_its_callbacks(ends: str) -> None:
    run_program(GROUP_OF_ONE + SLOW_END + CALLED + ends)


def test_a_callback_that_has_begun_ends_before_its_program() -> None:
    assert run_program(GROUP_OF_ONE + SLOW_END + CALLED + "begun.wait()") == "told\n"


def test_what_a_callback_waits_for_is_called_as_well() -> None:
    waits = """
begun = threading.Event()
other = threading.Event()
def first(future):
    begun.set()
    time.sleep(0.1)
    dist.all_reduce(torch.ones(4), async_op=True).get_future().then(second)
    other.wait()
    print("told")
def second(future):
    time.sleep(0.3)
    other.set()
dist.all_reduce(torch.ones(4), async_op=True).get_future().then(first)
begun.wait()
"""
    assert run_program(GROUP_OF_ONE + SLOW_END + waits) == "told\n"


def test_a_program_ends_while_what_nobody_has_waited_for_is_freed() -> None:
    """By a thread that cannot have Python's lock before the program has come to its end."""
    keeps_the_lock = """
sys.setswitchinterval(30)
dist.all_reduce(torch.ones(4), async_op=True)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    pass
"""
    run_program(GROUP_OF_ONE + keeps_the_lock)


def test_exit_handlers_hear_of_their_operations() -> None:
    """Also those that run after the backend's own."""
    handler = """
import atexit
def handler():
    dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda future: print("told")).wait()
    print("waited")
atexit.register(handler)
"""
    assert run_program(handler + GROUP_OF_ONE) == "told\nwaited\n"
