"""Inputs that overlap outputs: the results are those of separate inputs, for all positions on each rank."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import ranks

K = 3  # elements of a block
Run = Callable[[torch.Tensor, int, int, bool], torch.Tensor]


def block(whole: torch.Tensor, rank: int, place: str) -> torch.Tensor:
    begin = {"own": rank * K, "first": 0, "between": 1, "other": (rank + 1) * K % whole.numel()}[place]
    return whole[begin : begin + K]


def apart(tensor: torch.Tensor, is_apart: bool) -> torch.Tensor:
    return tensor.clone() if is_apart else tensor


def moves(place: str) -> dict[str, Run]:
    """Each runs on a tensor of all blocks, with its inputs in it or apart, and returns what it has written."""

    def all_gather_single(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.all_gather_single(whole, apart(block(whole, rank, place), is_apart))
        return whole

    def all_gather(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.all_gather(list(whole.split(K)), apart(block(whole, rank, place), is_apart))
        return whole

    def gather(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        for root in range(size):
            blocks = list(whole.split(K)) if rank == root else None
            dist.gather(apart(block(whole, rank, place), is_apart), blocks, root)
        return whole

    def scatter(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        for root in range(size):
            blocks = list(apart(whole, is_apart).split(K)) if rank == root else None
            dist.scatter(block(whole, rank, place), blocks, root)
        return block(whole, rank, place)

    def reduce_scatter_single(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.reduce_scatter_single(block(whole, rank, place), apart(whole, is_apart))
        return block(whole, rank, place)

    def reduce_scatter(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.reduce_scatter(block(whole, rank, place), list(apart(whole, is_apart).split(K)))
        return block(whole, rank, place)

    def coalesced_all_gathers(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        second = whole + 1000
        inputs = [apart(block(second, rank, place), is_apart), apart(block(whole, rank, place), is_apart)]
        with dist._coalescing_manager():
            for output, tensor in zip((whole, second), inputs, strict=True):
                dist.all_gather_single(output, tensor)
        return torch.cat((whole, second))

    def coalesced_reduce_scatters(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        outputs = [block(whole, rank, place), torch.zeros(K)]
        tensor = apart(whole, is_apart)
        with dist._coalescing_manager():
            for output in outputs:
                dist.reduce_scatter_single(output, tensor)
        return torch.cat(outputs)

    def gathered_lists(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        second = whole + 1000
        lists = [list(parts) for parts in zip(whole.split(K), second.split(K), strict=True)]
        dist.all_gather_coalesced(lists, [apart(block(one, rank, place), is_apart) for one in (second, whole)])
        return torch.cat((whole, second))

    return {name: run for name, run in locals().items() if callable(run)}


def exchanges() -> dict[str, Run]:
    def all_to_all_single(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.all_to_all_single(whole, apart(whole, is_apart))
        return whole

    def uneven_all_to_all_single(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        # Rank 0 gets one element less of itself, and rank 1 one more: the positions of the blocks differ.
        sends = [[K] * size for _ in range(size)]
        sends[0][0], sends[0][1] = K - 1, K + 1
        receives = [sends[other][rank] for other in range(size)]
        memory = torch.cat((whole, whole))
        output = memory[: sum(receives)]
        dist.all_to_all_single(output, apart(memory[: whole.numel()], is_apart), receives, sends[rank])
        return output

    def all_to_all(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.all_to_all(list(whole.split(K)), list(apart(whole, is_apart).split(K)))
        return whole

    def all_to_all_reversed(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        dist.all_to_all(list(whole.split(K))[::-1], list(apart(whole, is_apart).split(K)))
        return whole

    def all_to_all_shifted(whole: torch.Tensor, rank: int, size: int, is_apart: bool) -> torch.Tensor:
        memory = torch.cat((whole, whole))
        output = memory[1 : 1 + whole.numel()]
        dist.all_to_all_single(output, apart(memory[: whole.numel()], is_apart))
        return output

    return {name: run for name, run in locals().items() if callable(run)}


def check_run(run: Run, size: int) -> None:
    def body(rank: int, _: int) -> None:
        def whole() -> torch.Tensor:
            return torch.arange(size * K, dtype=torch.float32) + 100 * rank

        expected = run(whole(), rank, size, True).clone()
        for _ in range(2):
            assert run(whole(), rank, size, False).tolist() == expected.tolist()

    ranks.run(size, body, timeout_s=40)


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("place", ("own", "first", "between", "other"))
@pytest.mark.parametrize("name", sorted(moves("own")))
def test_inputs_in_the_memory_of_outputs(name: str, place: str, size: int) -> None:
    check_run(moves(place)[name], size)


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("name", sorted(exchanges()))
def test_all_to_all_in_the_memory_of_its_outputs(name: str, size: int) -> None:
    check_run(exchanges()[name], size)
