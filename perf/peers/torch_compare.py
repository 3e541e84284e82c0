#!/usr/bin/env python3
"""Times collectives of torch.distributed on CPU tensors, or training steps, over tutti and over gloo, in turns, in the
same processes.

    perf/peers/torch_compare.py -p 2 --collective all_reduce --sizes 8,1024,1048576 --rounds 9
    perf/peers/torch_compare.py --collective ddp --batch 32      # DistributedDataParallel; fully_shard: FSDP2

Needs PyTorch and tutti_torch (docs/torch.md). Each round times each backend once, in a random order that is the same on
all ranks, as the mean of some calls; the table has the medians over the rounds of the slowest rank's, and how many times
as fast as gloo tutti is. Sizes are bytes of a rank's larger buffer, of training those of all parameters.
"""

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import tutti_torch  # noqa: F401  registers the backend

BACKENDS = ("tutti", "gloo")
# Of one timing, as gloo's first estimate says.
SECONDS = 0.03
MOST_CALLS = 2000
LAYERS = 4
TRAINING = ("ddp", "fully_shard")


def collective(name: str, size: int, group: dist.ProcessGroup) -> Callable[[], object]:
    whole = torch.ones(max(1, size // 4))
    part = torch.ones(max(1, size // 4 // group.size()))
    joined = torch.ones(part.numel() * group.size())
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "reduce": lambda: dist.reduce(whole, 0, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(joined, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, joined, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(joined), joined, group=group),
        "async_all_reduce": lambda: dist.all_reduce(whole, group=group, async_op=True).wait(),
        "barrier": lambda: dist.barrier(group=group),
    }[name]


def collective_named(text: str) -> str:
    """As tutti's commands read it: case, "_" and "-" do not count."""
    names = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "async_all_reduce", "barrier")
    bare = text.replace("_", "").replace("-", "").lower()
    for name in names:
        if name.replace("_", "") == bare:
            return name
    raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(names + TRAINING)}")


def training_step(name: str, size: int, batch: int, group: dist.ProcessGroup) -> Callable[[], None]:
    """Of a perceptron whose square layers have `size` bytes of parameters together."""
    width = max(8, int(math.sqrt(size / 4 / LAYERS)))
    torch.manual_seed(1)
    model: torch.nn.Module = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
    if name == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    else:
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in (*model.children(), model):
            fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def timed(call: Callable[[], object], group: dist.ProcessGroup, calls: int) -> float:
    """Seconds of one call, on the slowest rank."""
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    took = torch.tensor((time.perf_counter() - begin) / calls, dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
    return took.item()


def measure(rank: int, folder: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), arguments.processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=arguments.processes)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    order = random.Random(1)
    training = arguments.collective in TRAINING
    if rank == 0:
        what = f"{arguments.collective}, batch {arguments.batch}" if training else arguments.collective
        print(f"# {what}, {arguments.processes} ranks, {arguments.rounds} rounds, us")
        print(f"{'bytes':>12} {'tutti':>12} {'gloo':>12} {'ratio':>8}")
    ratios = []
    for size in arguments.sizes:
        run = {
            b: training_step(arguments.collective, size, arguments.batch, groups[b])
            if training
            else collective(arguments.collective, size, groups[b])
            for b in BACKENDS
        }
        calls = {b: max(3, min(MOST_CALLS, int(SECONDS / timed(run[b], groups[b], 5)))) for b in BACKENDS}
        times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for _ in range(arguments.rounds):
            for backend in order.sample(BACKENDS, len(BACKENDS)):
                times[backend].append(timed(run[backend], groups[backend], calls[backend]))
        ours, theirs = (statistics.median(times[backend]) for backend in BACKENDS)
        ratios.append(theirs / ours)
        if rank == 0:
            print(f"{size:12} {ours * 1e6:12.1f} {theirs * 1e6:12.1f} {theirs / ours:8.2f}", flush=True)
    if rank == 0:
        print(f"# geometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--processes", type=int, default=2)
    parser.add_argument(
        "--collective",
        default="all_reduce",
        type=lambda text: text if text in TRAINING else collective_named(text),
    )
    sizes = ",".join(str(1 << i) for i in range(10, 27, 2))
    parser.add_argument("--sizes", type=lambda text: [int(s) for s in text.split(",")], default=sizes)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=32, help="rows of a training step's input (default 32)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (folder, arguments), nprocs=arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
