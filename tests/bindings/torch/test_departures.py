"""Ranks that leave the group in order: ranks that wait for a first message from or to them notice at once."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import forked
import ranks

# The ranks must notice a departure much earlier than at the timeout of their group.
TIMEOUT_S = 60
SOON_S = 25.0
LEFT = "Connection closed by peer: rank 1 has left the process group"


def batch(*operations: dist.P2POp) -> None:
    for work in dist.batch_isend_irecv(list(operations)):
        work.wait()


CALLS: dict[str, Callable[[], object]] = {
    "recv": lambda: dist.recv(torch.zeros(4), 1),
    "recv with a tag": lambda: dist.recv(torch.zeros(4), 1, tag=7),
    "irecv": lambda: dist.irecv(torch.zeros(4), 1).wait(),
    "batch": lambda: batch(dist.P2POp(dist.irecv, torch.zeros(4), 1), dist.P2POp(dist.isend, torch.zeros(4), 1)),
    "send": lambda: dist.send(torch.zeros(4), 1),
    "send with a tag": lambda: dist.send(torch.zeros(4), 1, tag=7),
}


def failed_soon(call: Callable[[], object]) -> str:
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError) as caught:
        call()
    assert time.monotonic() - begun < SOON_S
    return str(caught.value)


@pytest.mark.parametrize("leaves_first", (False, True))
@pytest.mark.parametrize("call", CALLS)
def test_a_first_message_to_or_from_a_rank_that_has_left_fails_at_once(call: str, leaves_first: bool) -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            if not leaves_first:
                store.wait(["calls"])
                time.sleep(0.3)
            return
        if leaves_first:
            time.sleep(0.5)
        elif rank == 0:
            store.set("calls", "")
        assert LEFT in failed_soon(CALLS[call])

    ranks.run(3, body, timeout_s=TIMEOUT_S)


def test_first_messages_between_ranks_that_stay_arrive_after_another_has_left() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 1:
            return
        time.sleep(0.5)
        tensor = torch.full((4,), float(rank))
        if rank == 0:
            dist.send(tensor, 2)
        else:
            dist.recv(tensor, 0)
        assert tensor.tolist() == [0] * 4

    ranks.run(3, body, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("tag", (0, 7))
def test_messages_that_a_rank_has_sent_before_it_left_arrive(tag: int) -> None:
    def body(rank: int, size: int) -> None:
        if rank == 1:
            for i in range(3):
                dist.send(torch.full((4,), float(i)), 0, tag=tag)
            return
        for i in range(3):
            tensor = torch.zeros(4)
            dist.recv(tensor, 1, tag=tag)
            assert tensor.tolist() == [i] * 4
            time.sleep(0.3)
        assert "rank 1 has left" in failed_soon(lambda: dist.recv(torch.zeros(4), 1, tag=tag))

    ranks.run(2, body, timeout_s=TIMEOUT_S)


PROGRAM = f"""
import datetime, sys, torch, torch.distributed as dist, tutti_torch
rank = int(sys.argv[1])
timeout = datetime.timedelta(seconds={TIMEOUT_S})
dist.init_process_group("tutti", init_method="file://" + sys.argv[2], rank=rank, world_size=2, timeout=timeout)
dist.barrier()
if rank == 0:
    dist.recv(torch.zeros(4), 1)
"""


def test_a_first_receive_from_a_process_that_has_ended_fails_at_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM]
        waits, ends = (
            subprocess.Popen([*command, str(rank), os.path.join(folder, "store")], stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        )
        assert ends.wait(forked.LIMIT_S) == 0
        begun = time.monotonic()
        _, errors = waits.communicate(timeout=forked.LIMIT_S)
        assert time.monotonic() - begun < SOON_S
        assert waits.returncode == 1 and LEFT in errors, errors
