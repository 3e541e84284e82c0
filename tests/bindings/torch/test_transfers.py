"""Sends and receives."""

import pytest
import torch
import torch.distributed as dist

import ranks
from test_collectives import MOVED, check, of

BIG = 1 << 21  # more than any buffer between two ranks holds


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


def test_tags_name_the_next_message() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 0:
            for tag in (7, 0, 7, 8):
                dist.send(of(tag, 5), 1, tag=tag)
            for work in [dist.isend(of(tag, BIG), 1, tag=tag) for tag in (1, 2)]:
                work.wait()
            dist.send(of(5, 3), 1, tag=5)
        else:
            tensor = torch.zeros(5)
            for tag in (7, 0, 7, 8):
                dist.recv(tensor, 0, tag=tag)
                check(tensor, of(tag, 5))
            tensors = [torch.zeros(BIG) for _ in range(2)]
            for work in [dist.irecv(tensor, 0, tag=tag) for tag, tensor in enumerate(tensors, 1)]:
                work.wait()
            for tag, tensor in enumerate(tensors, 1):
                check(tensor, of(tag, BIG))
            with pytest.raises(dist.DistBackendError, match="rank 0 has tag 5, and this receive tag 6"):
                dist.recv(torch.zeros(3), 0, tag=6)

    ranks.run(2, body)


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
