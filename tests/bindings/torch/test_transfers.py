"""Sends and receives."""

import resource
import time

import pytest
import torch
import torch.distributed as dist

import ranks
from test_collectives import MOVED, check, of

BIG = 1 << 21  # more than the buffers between two ranks can hold


def test_send_and_receive() -> None:
    def body(rank: int, size: int) -> None:
        for dtype in MOVED:
            for n in (0, 1, 1000):
                if rank == 0:
                    dist.send(of(3, n, dtype), 1)
                else:
                    tensor = torch.zeros(n).to(dtype)
                    assert dist.recv(tensor, 0) == 0
                    check(tensor, of(3, n, dtype))

    ranks.run(2, body)


def test_everybody_sends_before_anybody_receives() -> None:
    def body(rank: int, size: int) -> None:
        others = [r for r in range(size) if r != rank]
        sends = [dist.isend(of(rank * size + r, BIG), r) for r in others]
        tensors = {r: torch.zeros(BIG) for r in others}
        receives = [dist.irecv(tensors[r], r) for r in reversed(others)]
        for work in sends + receives:
            work.wait()
        for r in others:
            check(tensors[r], of(r * size + rank, BIG))

    ranks.run(3, body)


def test_transfers_and_collectives_do_not_wait_for_each_other() -> None:
    def body(rank: int, size: int) -> None:
        tensor = torch.zeros(BIG)
        if rank == 0:
            work = dist.irecv(tensor, 1)
            dist.barrier()
            work.wait()
            check(tensor, of(1, BIG))
        else:
            dist.barrier()
            dist.send(of(1, BIG), 0)

    ranks.run(2, body)


def test_messages_are_matched_in_order() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            works = [dist.isend(of(i, 10 + i), 1) for i in range(50)]
            for work in works:
                work.wait()
        else:
            tensors = [torch.zeros(10 + i) for i in range(50)]
            works = [dist.irecv(tensor, 0) for tensor in tensors]
            for work in reversed(works):
                work.wait()
            for i, tensor in enumerate(tensors):
                check(tensor, of(i, 10 + i))

    ranks.run(2, body)


TAGS = (7, 0, 3, 1 << 30, 1)


@pytest.mark.parametrize("n", (0, 5, BIG))
def test_tags_are_received_in_any_order(n: int) -> None:
    def body(rank: int, size: int) -> None:
        others = [r for r in range(size) if r != rank]
        sends = [dist.isend(of(rank * 100 + i, n), r, tag=tag) for i, tag in enumerate(TAGS) for r in others]
        for r in others:
            tensors = [torch.zeros(n) for _ in TAGS]
            # The last two at once, then the others one after the other.
            later = [dist.irecv(tensors[i], r, tag=TAGS[i]) for i in (4, 3)]
            for i in (2, 1, 0):
                dist.recv(tensors[i], r, tag=TAGS[i])
            for work in later:
                work.wait()
            for i, tensor in enumerate(tensors):
                check(tensor, of(r * 100 + i, n))
        for work in sends:
            work.wait()

    ranks.run(3, body)


def test_messages_of_one_tag_keep_their_order() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            works = [dist.isend(of(i, 10), 1, tag=1 + i % 2) for i in range(40)]
            for work in works:
                work.wait()
            return
        for i in [*range(1, 40, 2), *range(0, 40, 2)]:
            tensor = torch.zeros(10)
            dist.recv(tensor, 0, tag=1 + i % 2)
            check(tensor, of(i, 10))

    ranks.run(2, body)


def test_batches_with_tags_are_received_in_any_order() -> None:
    def body(rank: int, size: int) -> None:
        right, left = (rank + 1) % size, (rank - 1) % size
        tensors = [torch.zeros(BIG) for _ in range(3)]
        batch = [dist.P2POp(dist.isend, of(rank + i, BIG), right, tag=i) for i in range(3)]
        batch += [dist.P2POp(dist.irecv, tensors[i], left, tag=i) for i in (2, 0, 1)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        for i, tensor in enumerate(tensors):
            check(tensor, of(left + i, BIG))

    ranks.run(3, body)


def test_a_receive_of_another_size_fails_alone() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            for tag, n in ((5, 3), (6, 3), (5, 4)):
                dist.send(of(tag, n), 1, tag=tag)
        else:
            tensor = torch.zeros(3)
            dist.recv(tensor, 0, tag=6)
            check(tensor, of(6, 3))
            with pytest.raises(dist.DistBackendError, match="tag 5 .12 bytes. of another type or size"):
                dist.recv(torch.zeros(4), 0, tag=5)
            tensor = torch.zeros(4)
            dist.recv(tensor, 0, tag=5)
            check(tensor, of(5, 4))

    ranks.run(2, body)


def test_messages_beyond_the_limit_fail_on_both_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_TUTTI_KEPT_MIB", "1")

    def body(rank: int, size: int) -> None:
        for _ in range(2):
            with pytest.raises(dist.DistBackendError, match="tag 1 .8388608 bytes., and the receiver waits for tag 2"):
                if rank == 0:
                    dist.send(of(1, BIG), 1, tag=1)
                else:
                    dist.recv(torch.zeros(BIG), 0, tag=2)
            # The pair still works, with tags and without.
            for tag in (3, 0):
                tensor = of(tag, BIG) if rank == 0 else torch.zeros(BIG)
                dist.send(tensor, 1, tag=tag) if rank == 0 else dist.recv(tensor, 0, tag=tag)
                check(tensor, of(tag, BIG))
            dist.all_reduce(torch.ones(1))

    ranks.run(2, body)


def test_a_message_that_fits_no_waiting_receive_counts_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_TUTTI_KEPT_MIB", "1")

    def body(rank: int, size: int) -> None:
        for _ in range(2):
            with pytest.raises(dist.DistBackendError, match="tag 5 .8388608 bytes., and a receive of 4 bytes"):
                dist.send(of(1, BIG), 1, tag=5) if rank == 0 else dist.recv(torch.zeros(1), 0, tag=5)
            tensor = of(3, BIG) if rank == 0 else torch.zeros(BIG)
            dist.send(tensor, 1, tag=5) if rank == 0 else dist.recv(tensor, 0, tag=5)
            check(tensor, of(3, BIG))

    ranks.run(2, body)


def test_a_message_that_memory_cannot_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_TUTTI_KEPT_MIB", "4096")
    room = 512 << 20

    def body(rank: int, size: int) -> None:
        tensor = torch.ones(1)
        dist.send(tensor, 1, tag=1) if rank == 0 else dist.recv(tensor, 0, tag=1)
        dist.barrier()
        if rank == 1:
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        for receiver_tag in (5, 6):
            with pytest.raises(dist.DistBackendError, match="no memory to keep it"):
                if rank == 0:
                    dist.send(torch.empty(4 * room, dtype=torch.uint8), 1, tag=5)
                else:
                    dist.recv(torch.zeros(1, dtype=torch.uint8), 0, tag=receiver_tag)
        dist.send(tensor, 1, tag=7) if rank == 0 else dist.recv(tensor, 0, tag=7)

    ranks.run(2, body)


@pytest.mark.parametrize("form", ("recv", "irecv", "batch", "future", "polling"))
def test_messages_of_other_tags_do_not_restart_the_timeout_of_a_receive(form: str) -> None:
    """The sender's messages of tag 1 never pause for long; the receive of tag 2 ends nevertheless, and the pair goes on."""
    timeout_s, tag = 5, 2
    done = -1.0

    def receive(tensor: torch.Tensor) -> None:
        if form == "recv":
            dist.recv(tensor, 0, tag=tag)
        elif form == "irecv":
            dist.irecv(tensor, 0, tag=tag).wait()
        elif form == "future":
            dist.irecv(tensor, 0, tag=tag).get_future().wait()
        elif form == "polling":
            work = dist.irecv(tensor, 0, tag=tag)
            while not work.is_completed():
                time.sleep(0.01)
            work.wait()
        else:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, 0, tag=tag)]):
                work.wait()

    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            sent = 0
            begun = time.monotonic()
            while not store.check(["ended"]) and time.monotonic() - begun < 6 * timeout_s:
                dist.send(of(sent, 10), 1, tag=1)
                sent += 1
                time.sleep(0.1)
            dist.send(torch.full((10,), done), 1, tag=1)
            dist.send(of(7, 10), 1, tag=tag)
            assert store.check(["ended"]), "the receive has not ended"
        else:
            with pytest.raises(dist.DistBackendError, match="Timed out waiting: rank 0 has sent no message with tag 2 for 5000 ms"):
                receive(torch.zeros(10))
            store.set("ended", "1")
            tensor, i = torch.zeros(10), 0
            while True:
                dist.recv(tensor, 0, tag=1)
                if tensor[0].item() == done:
                    break
                check(tensor, of(i, 10))
                i += 1
            # The failed receive takes no message.
            dist.recv(tensor, 0, tag=tag)
            check(tensor, of(7, 10))

    ranks.run(2, body, timeout_s=timeout_s)


@pytest.mark.parametrize("n", (2, 4))
def test_batches(n: int) -> None:
    def body(rank: int, size: int) -> None:
        right, left = (rank + 1) % size, (rank - 1) % size
        tensor = torch.zeros(BIG)
        batch = [dist.P2POp(dist.isend, of(rank, BIG), right), dist.P2POp(dist.irecv, tensor, left)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        check(tensor, of(left, BIG))

    ranks.run(n, body)


def test_messages_to_oneself_and_to_nobody_are_refused() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD
        with pytest.raises(RuntimeError, match="itself"):
            group.send([torch.ones(1)], rank, 0)
        with pytest.raises(RuntimeError, match="invalid rank"):
            group.recv([torch.ones(1)], size, 0)

    ranks.run(2, body)


def test_a_group_ends_while_a_receive_waits_for_nobody() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            work = dist.irecv(torch.zeros(1), 1)
        dist.barrier()
        dist.destroy_process_group()
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match="shut down"):
                work.wait()
        dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)

    ranks.run(2, body)
