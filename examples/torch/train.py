"""Trains a classifier with data parallelism, over tutti or another backend, and says where the time goes.

    torchrun --standalone --nproc-per-node=2 examples/torch/train.py
    torchrun --standalone --nproc-per-node=2 examples/torch/train.py --backend gloo --json gloo.json

The data are generated: points on three spirals that wind around each other. The model, a multilayer perceptron of some
200,000 parameters, is at an accuracy of 97 % or more after the default number of steps. Every rank has its share of
each batch; any number of ranks and any backend give the same losses, except for rounding.
"""

import argparse
import json
import math
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


ARMS = 3


def spirals(points: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates in the plane, and on which arm each lies."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(ARMS, (points,), generator=generator)
    radius = torch.rand(points, generator=generator).sqrt()
    angle = 2 * math.pi * (radius * 1.5 + arm / ARMS)
    noise = 0.02 * torch.randn(points, 2, generator=generator)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1) + noise, arm


def model(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = [torch.nn.Linear(2, width), torch.nn.ReLU()]
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, ARMS))


class Clock:
    """A communication hook of DistributedDataParallel that adds up how long gradients are on their way."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def hook(self, group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        begin = time.perf_counter()
        gradients = bucket.buffer().div_(dist.get_world_size())
        future = dist.all_reduce(gradients, group=group, async_op=True).get_future()

        def done(reduced: torch.futures.Future) -> torch.Tensor:
            self.seconds += time.perf_counter() - begin
            return reduced.value()[0]

        return future.then(done)


def train(arguments: argparse.Namespace) -> dict:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    network = DistributedDataParallel(model(arguments.width), bucket_cap_mb=0.3)
    clock = Clock()
    network.register_comm_hook(None, clock.hook)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=arguments.steps)
    losses, seconds = [], []
    for step in range(arguments.steps):
        points, arms = spirals(arguments.batch, seed=step)
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(points[rank::ranks]), arms[rank::ranks])
        loss.backward()
        optimizer.step()
        schedule.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    shared = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(shared, op=dist.ReduceOp.AVG)
    points, arms = spirals(10_000, seed=1_000_000)
    with torch.no_grad():
        accuracy = (network.module(points).argmax(dim=1) == arms).double().mean().item()
    return {
        "backend": dist.get_backend(),
        "ranks": ranks,
        "losses": shared.tolist(),
        "accuracy": accuracy,
        "step_ms": 1e3 * sorted(seconds)[len(seconds) // 2],
        "communication_share": clock.seconds / sum(seconds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=960, help="points in a batch, of all ranks together")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--json", help="write the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    result = train(arguments)
    if dist.get_rank() == 0:
        print(
            f"{result['backend']}, {result['ranks']} ranks: loss {result['losses'][-1]:.4f}, "
            f"accuracy {result['accuracy']:.1%}, step {result['step_ms']:.2f} ms, "
            f"gradients on their way for {result['communication_share']:.0%} of the time"
        )
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
