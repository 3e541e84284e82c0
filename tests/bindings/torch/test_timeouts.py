"""Every timeout error begins with the words by which programs recognise gloo's: "Timed out waiting"."""

import datetime
import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import ranks
import tutti_torch

# Also of what the ranks do before, on a loaded machine too.
TIMEOUT_S = 5

# The calls of rank 0 in which the other rank does not take part.
CALLS: dict[str, Callable[[], object]] = {
    "recv": lambda: dist.recv(torch.zeros(4), 1),
    "recv of a tag": lambda: dist.recv(torch.zeros(4), 1, tag=7),
    "future of recv": lambda: dist.irecv(torch.zeros(4), 1).get_future().wait(),
    "future of recv of a tag": lambda: dist.irecv(torch.zeros(4), 1, tag=7).get_future().wait(),
    "send": lambda: dist.isend(torch.zeros(1 << 22), 1).wait(),
    "send of a tag": lambda: dist.isend(torch.zeros(1 << 22), 1, tag=7).wait(),
    "batch": lambda: [w.wait() for w in dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.zeros(4), 1)])],
    "all_reduce": lambda: dist.all_reduce(torch.zeros(4)),
    "async all_reduce": lambda: dist.all_reduce(torch.zeros(4), async_op=True).wait(),
    "wait with a timeout": lambda: dist.all_reduce(torch.zeros(4), async_op=True).wait(datetime.timedelta(seconds=0.2)),
    "sparse all_reduce": lambda: dist.all_reduce(torch.eye(4).to_sparse()),
    "monitored_barrier": lambda: tutti_torch.monitored_barrier(),
}


@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize("met_before", (False, True))
def test_an_operation_whose_peer_does_not_come_says_timed_out_waiting(call: str, met_before: bool) -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if met_before:
            for tag in (0, 7):
                dist.send(torch.zeros(1), 1, tag=tag) if rank == 0 else dist.recv(torch.zeros(1), 0, tag=tag)
                dist.recv(torch.zeros(1), 1, tag=tag) if rank == 0 else dist.send(torch.zeros(1), 0, tag=tag)
        if rank == 0:
            with pytest.raises(RuntimeError, match="^tutti [a-z_ ]+: Timed out waiting"):
                CALLS[call]()
            store.set("raised", "")
        else:
            store.wait(["raised"], datetime.timedelta(seconds=60))

    ranks.run(2, body, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("rank", (0, 1))
def test_a_group_whose_other_rank_does_not_come_says_timed_out_waiting(rank: int) -> None:
    def body(_: int, folder: str) -> None:
        store = dist.FileStore(os.path.join(folder, "store"), 2)
        with pytest.raises(RuntimeError, match="^tutti init: Timed out waiting: "):
            tutti_torch.ProcessGroupTutti(store, rank, 2, datetime.timedelta(seconds=TIMEOUT_S))

    ranks.fork_ranks(1, body)
