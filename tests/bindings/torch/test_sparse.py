"""all_reduce of sparse tensors that the ranks cannot add up: every rank raises, and the group stays usable."""

import time

import pytest
import torch
import torch.distributed as dist

import ranks

TIMEOUT_S = 40
SOON_S = 20.0


def sparse(size: tuple[int, ...], dtype: torch.dtype = torch.float32, dense: int = 0) -> torch.Tensor:
    """Ones at the first and the last index."""
    dims = len(size) - dense
    indices = torch.tensor([[0, n - 1] for n in size[:dims]])
    return torch.sparse_coo_tensor(indices, torch.ones((2, *size[dims:]), dtype=dtype), size)


def refused_soon(tensor: torch.Tensor) -> str:
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(tensor)
    assert time.monotonic() - begun < SOON_S
    assert not isinstance(caught.value, dist.DistBackendError)
    return str(caught.value)


def check_group(size: int) -> None:
    """Also what waits for all operations before it: a transposed tensor is copied."""
    for tensor in (torch.ones(4), torch.ones(3, 4).t()):
        dist.all_reduce(tensor)
        assert tensor.eq(size).all()
    tensor = sparse((4,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [size, 0, 0, size]


DIFFERENT = {
    "larger": (lambda: sparse((8,)), "sizes [8], 1 sparse and 0 dense dimensions and type Float"),
    "huge": (lambda: sparse((1 << 30,)), "sizes [1073741824]"),
    "two dimensions": (lambda: sparse((4, 4)), "sizes [4, 4], 2 sparse and 0 dense"),
    "dense dimension": (lambda: sparse((4, 4), dense=1), "sizes [4, 4], 1 sparse and 1 dense"),
    "type": (lambda: sparse((4,), torch.float64), "type Double"),
}


@pytest.mark.parametrize("what", sorted(DIFFERENT))
def test_sparse_tensors_that_differ_are_refused_on_all_ranks(what: str) -> None:
    def body(rank: int, size: int) -> None:
        make, told = DIFFERENT[what]
        text = refused_soon(make() if rank == 1 else sparse((4,)))
        assert "rank 0 has one with sizes [4], 1 sparse and 0 dense dimensions and type Float, rank 1" in text, text
        assert told in text, text
        check_group(size)

    ranks.run(3, body, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("dtype", (torch.uint16, torch.uint32, torch.float8_e4m3fn))
@pytest.mark.parametrize("coalesced", (False, True))
def test_sparse_tensors_of_a_type_that_torch_cannot_add_up_are_refused(dtype: torch.dtype, coalesced: bool) -> None:
    def body(rank: int, size: int) -> None:
        tensor = sparse((4,), dtype)._coalesced_(coalesced)
        assert "torch cannot add up tensors of type" in refused_soon(tensor)
        check_group(size)

    ranks.run(2, body, timeout_s=TIMEOUT_S)


def test_a_type_that_one_rank_cannot_add_up_is_told_to_the_others() -> None:
    def body(rank: int, size: int) -> None:
        begun = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(sparse((4,), torch.uint16 if rank == 1 else torch.float32))
        assert time.monotonic() - begun < SOON_S
        told = "torch cannot add up tensors of type" if rank == 1 else "rank 1 refused all_reduce of sparse tensors"
        assert told in str(caught.value)

    ranks.run(3, body, timeout_s=TIMEOUT_S)
