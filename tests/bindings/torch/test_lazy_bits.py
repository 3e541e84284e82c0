"""Tensors that torch negates lazily: their values are moved, not their memory. Torch's dispatcher resolves a single
tensor; those in lists come as they are. (Torch refuses lazily conjugated ones in lists by itself.)"""

import pytest
import torch
import torch.distributed as dist

import ranks


def negated(i: int) -> torch.Tensor:
    """A view of one element, contiguous, with the bit: -2 (i + 1)."""
    tensor = (torch.tensor([1 + 2j]) * (i + 1)).conj().imag
    assert tensor.is_neg() and tensor.is_contiguous()
    return tensor


def negated_strided(i: int) -> torch.Tensor:
    return (torch.tensor([1 + 2j, 3 + 4j]) * (i + 1)).conj().imag


def values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_neg().clone()


def check(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert torch.equal(values(got), wanted)


KINDS = {"negated": negated, "strided": negated_strided}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("size", (2, 3))
def test_lists_that_are_read(kind: str, size: int) -> None:
    made = KINDS[kind]

    def body(rank: int, size: int) -> None:
        got = torch.zeros_like(values(made(0)))
        dist.scatter(got, [made(i) for i in range(size)] if rank == 0 else None, 0)
        check(got, values(made(rank)))
        dist.reduce_scatter(got, [made(i) for i in range(size)])
        check(got, size * values(made(rank)))
        all_got = [torch.zeros_like(got) for _ in range(size)]
        dist.all_to_all(all_got, [made(i + rank) for i in range(size)])
        for i in range(size):
            check(all_got[i], values(made(rank + i)))
        dist.all_gather(all_got, made(rank))
        for i in range(size):
            check(all_got[i], values(made(i)))

    ranks.run(size, body)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("size", (2, 3))
def test_lists_that_are_written(kind: str, size: int) -> None:
    made = KINDS[kind]

    def body(rank: int, size: int) -> None:
        own = values(made(rank))
        outputs = [made(7) for _ in range(size)]
        dist.all_gather(outputs, own)
        for i in range(size):
            check(outputs[i], values(made(i)))
        outputs = [made(7) for _ in range(size)]
        dist.gather(own, outputs if rank == 1 else None, 1)
        if rank == 1:
            for i in range(size):
                check(outputs[i], values(made(i)))

    ranks.run(size, body)
