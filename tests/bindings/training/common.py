"""The training of all programs here, and how they report its result."""

import argparse
import json
import pathlib
import sys

import torch
import torch.distributed as dist

STEPS = 8
ROWS = 16


def arguments(*switches: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--report", type=pathlib.Path, required=True)
    for switch in switches:
        parser.add_argument(switch)
    return parser.parse_args()


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and the classes that a fixed matrix gives them."""
    generator = torch.Generator().manual_seed(1000 + 100 * step + rank)
    inputs = torch.randn(ROWS, 20, generator=generator)
    matrix = torch.randn(20, 4, generator=torch.Generator().manual_seed(7))
    return inputs, (inputs @ matrix).argmax(dim=1)


def loss(outputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, classes)


def mean_over_ranks(value: torch.Tensor) -> float:
    total = value.detach().clone().float()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def tell(path: pathlib.Path, losses: list[float], parameters: list[torch.Tensor], **more: int) -> None:
    """Rank 0 writes what the test compares; ``operations`` are those that went through tutti in its process."""
    if dist.get_rank() != 0:
        return
    operations: list[str] = []
    if "tutti_torch" in sys.modules:
        entries = sys.modules["tutti_torch"].flight_record()["entries"]
        operations = sorted({entry["profiling_name"] for entry in entries})
    path.write_text(
        json.dumps(
            {
                "backend": dist.get_backend(),
                "ranks": dist.get_world_size(),
                "operations": operations,
                "losses": losses,
                "parameters": [parameter.detach().float().norm().item() for parameter in parameters],
                **more,
            }
        )
    )
