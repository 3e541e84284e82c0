"""Calls that are refused inside a coalesced list: torch must not swallow later calls, and every rank gets the error."""

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import ranks

# The ranks must notice a refusal much earlier than at the timeout of their group.
TIMEOUT_S = 40
SOON_S = 20.0


def wrong_output() -> torch.Tensor:
    return torch.zeros(1).expand(4)


def refused_soon(call: Callable[[], object]) -> str:
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        call()
    assert time.monotonic() - begun < SOON_S
    return str(caught.value)


def call_batch(*operations: dist.P2POp) -> None:
    for work in dist.batch_isend_irecv(list(operations)):
        work.wait()


def check_collectives(size: int) -> None:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3
    assert isinstance(dist.all_reduce(tensor, async_op=True), dist.Work)


@pytest.mark.parametrize("first", (False, True))
def test_batch_isend_irecv_raises_a_refusal_and_later_collectives_run(first: bool) -> None:
    def body(rank: int, size: int) -> None:
        peer = 1 - rank
        wrong = dist.P2POp(dist.irecv, wrong_output(), peer)
        good = dist.P2POp(dist.isend, torch.ones(4), peer)
        assert "share memory" in refused_soon(lambda: call_batch(*((wrong, good) if first else (good, wrong))))
        check_collectives(size)
        received = torch.zeros(4)
        call_batch(good, dist.P2POp(dist.irecv, received, peer))
        assert received.tolist() == [1] * 4

    ranks.run(2, body, timeout_s=TIMEOUT_S)


ODD_TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.quint8),
    "mkldnn": lambda: torch.eye(3).to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.parametrize("first", (False, True))
@pytest.mark.parametrize("call", (dist.isend, dist.irecv))
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_batch_isend_irecv_refuses_tensors_that_are_not_dense(kind: str, call: Callable, first: bool) -> None:
    def body(rank: int, size: int) -> None:
        peer = 1 - rank
        wrong = dist.P2POp(call, ODD_TENSORS[kind](), peer)
        good = dist.P2POp(dist.isend, torch.ones(4), peer)
        refused = refused_soon(lambda: call_batch(*((wrong, good) if first else (good, wrong))))
        assert "only supports dense tensors" in refused
        check_collectives(size)
        received = torch.zeros(4)
        call_batch(good, dist.P2POp(dist.irecv, received, peer))
        assert received.tolist() == [1] * 4

    ranks.run(2, body, timeout_s=TIMEOUT_S)


def test_a_sparse_message_outside_of_a_batch_is_refused_for_tutti_and_gloo() -> None:
    def body(rank: int, size: int) -> None:
        gloo = dist.new_group(backend="gloo")
        tensor = torch.eye(3).to_sparse()
        assert "only supports dense tensors" in refused_soon(lambda: dist.isend(tensor, 1 - rank))
        with pytest.raises(NotImplementedError, match="gloo"):
            dist.isend(tensor, 1 - rank, group=gloo)
        check_collectives(size)

    ranks.run(2, body, timeout_s=TIMEOUT_S)


def test_batch_isend_irecv_with_itself_is_refused_and_later_collectives_run() -> None:
    def body(rank: int, size: int) -> None:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))

        def call() -> None:
            # Not through dist.isend, which itself refuses that.
            with dist._coalescing_manager(device=torch.device("cpu")):
                backend.send([torch.ones(4)], rank, 0)
                backend.send([torch.ones(4)], size, 0)

        assert "a rank cannot exchange messages with itself" in refused_soon(call)
        check_collectives(size)

    ranks.run(2, body, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("device", (None, torch.device("cpu")))
def test_coalescing_manager_raises_a_refusal_and_later_collectives_run(device: torch.device | None) -> None:
    def body(rank: int, size: int) -> None:
        def call() -> None:
            with dist._coalescing_manager(device=device):
                dist.all_reduce(torch.ones(4))
                dist.all_reduce(wrong_output())

        assert "share memory" in refused_soon(call)
        check_collectives(size)

    ranks.run(2, body, timeout_s=TIMEOUT_S)


def test_a_sparse_tensor_in_a_coalesced_list_is_refused_and_later_collectives_run() -> None:
    def body(rank: int, size: int) -> None:
        def call() -> None:
            with dist._coalescing_manager(device=torch.device("cpu")):
                dist.broadcast(torch.ones(4), 0)
                dist.group.WORLD.allreduce([torch.eye(3).to_sparse()])

        assert "cannot be coalesced" in refused_soon(call)
        check_collectives(size)

    ranks.run(2, body, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("first", (False, True))
def test_a_refusal_in_a_batch_is_told_to_every_rank_of_the_list(first: bool) -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            wrong = dist.P2POp(dist.irecv, wrong_output(), 1)
            good = dist.P2POp(dist.isend, torch.zeros(4), 2)
            assert "share memory" in refused_soon(lambda: call_batch(*((wrong, good) if first else (good, wrong))))
        elif rank == 2:
            assert "rank 0 refused" in refused_soon(lambda: dist.recv(torch.zeros(4), 0))
            store.set("raised", "")
        # A rank that has left sends no more notices.
        store.wait(["raised"])

    ranks.run(3, body, timeout_s=TIMEOUT_S)


def test_wait_of_a_batch_raises_as_soon_as_one_part_has_failed() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            receives = [dist.P2POp(dist.irecv, torch.zeros(4), peer) for peer in (2, 1)]
            assert "rank 1 refused" in refused_soon(lambda: call_batch(*receives))
            store.set("raised", "")
        elif rank == 1:
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            assert "single-element" in refused_soon(lambda: backend.send([torch.zeros(4)] * 2, 0, 0))
        # Rank 2 is there, and sends nothing.
        store.wait(["raised"])

    ranks.run(3, body, timeout_s=TIMEOUT_S)
