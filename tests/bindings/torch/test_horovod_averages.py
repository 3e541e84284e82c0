"""Averages of numbers near the largest of their type, through Horovod's interface."""

import pytest
import torch

import ranks
import tutti_torch.horovod as hvd

LARGE = {torch.float16: 60000.0, torch.bfloat16: 2.5e38}


@pytest.mark.parametrize("dtype", LARGE, ids=str)
@pytest.mark.parametrize("join", (True, False))
def test_averages_of_16_bit_numbers_are_scaled_first(dtype: torch.dtype, join: bool) -> None:
    def body(rank: int, size: int) -> None:
        hvd.init(join=join)
        value = torch.full((10, 2), LARGE[dtype], dtype=dtype)
        assert torch.equal(hvd.allreduce(value), value)
        assert torch.equal(hvd.allreduce_(value.clone()), value)
        assert torch.equal(hvd.grouped_allreduce([value, value])[1], value)
        assert torch.equal(hvd.reducescatter(value), value[: 10 // size])
        # Factors scale as well, before and after.
        assert torch.equal(hvd.allreduce(value, prescale_factor=0.5), value * 0.5)
        assert torch.equal(hvd.allreduce(value * 0.25, postscale_factor=2.0), value * 0.5)
        # Sums are what they were.
        assert hvd.allreduce(value, op=hvd.Sum).isinf().all()
        hvd.shutdown()

    ranks.run(2, body)


def test_gradients_that_travel_in_16_bits_are_averaged_without_overflow() -> None:
    def body(rank: int, size: int) -> None:
        hvd.init()
        weight = torch.nn.Parameter(torch.zeros(4))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=hvd.Compression.fp16)
        (weight * 60000.0).sum().backward()
        optimizer.step()
        assert torch.equal(weight.detach(), torch.full((4,), -60000.0))
        hvd.shutdown()

    ranks.run(2, body)


def test_averages_of_other_types_are_those_of_the_backend() -> None:
    def body(rank: int, size: int) -> None:
        hvd.init()
        assert hvd.allreduce(torch.tensor([3.0, 4.0]) * (rank + 1)).tolist() == [4.5, 6.0]
        assert hvd.allreduce(torch.tensor([3, 4]) * (rank + 1)).tolist() == [4, 6]  # rounded towards zero
        hvd.shutdown()

    ranks.run(2, body)
