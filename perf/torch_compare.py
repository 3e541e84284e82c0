#!/usr/bin/env python3
"""Times collectives of torch.distributed on CPU tensors over tutti and over gloo, in turns, in the same processes.

    perf/torch_compare.py -p 2 --collective all_reduce --sizes 8,1024,1048576 --rounds 9

Needs PyTorch and tutti_torch (docs/torch.md). Each round times each backend once, in a random order that is the same on
all ranks, as the mean of some calls; the table has the medians over the rounds of the slowest rank's, and how many times
as fast as gloo tutti is. Sizes are bytes of a rank's larger buffer.
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

import tutti_torch  # noqa: F401  registers the backend

BACKENDS = ("tutti", "gloo")
# Of one timing, as gloo's first estimate says.
SECONDS = 0.03
MOST_CALLS = 2000


def operation(collective: str, size: int, ranks: int) -> Callable[[dist.ProcessGroup], None]:
    whole = torch.ones(max(1, size // 4))
    part = torch.ones(max(1, size // 4 // ranks))
    joined = torch.ones(part.numel() * ranks)
    return {
        "all_reduce": lambda group: dist.all_reduce(whole, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "reduce": lambda group: dist.reduce(whole, 0, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(joined, part, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, joined, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(torch.empty_like(joined), joined, group=group),
        "async_all_reduce": lambda group: dist.all_reduce(whole, group=group, async_op=True).wait(),
        "barrier": lambda group: dist.barrier(group=group),
    }[collective]


def timed(call: Callable[[dist.ProcessGroup], None], group: dist.ProcessGroup, calls: int) -> float:
    """Seconds of one call, on the slowest rank."""
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(calls):
        call(group)
    took = torch.tensor((time.perf_counter() - begin) / calls, dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
    return took.item()


def measure(rank: int, folder: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), arguments.processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=arguments.processes)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    order = random.Random(1)
    if rank == 0:
        print(f"# {arguments.collective}, {arguments.processes} ranks, {arguments.rounds} rounds, us")
        print(f"{'bytes':>12} {'tutti':>12} {'gloo':>12} {'ratio':>8}")
    ratios = []
    for size in arguments.sizes:
        call = operation(arguments.collective, size, arguments.processes)
        calls = {b: max(3, min(MOST_CALLS, int(SECONDS / timed(call, groups[b], 5)))) for b in BACKENDS}
        times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for _ in range(arguments.rounds):
            for backend in order.sample(BACKENDS, len(BACKENDS)):
                times[backend].append(timed(call, groups[backend], calls[backend]))
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
    parser.add_argument("--collective", default="all_reduce")
    sizes = ",".join(str(1 << i) for i in range(10, 27, 2))
    parser.add_argument("--sizes", type=lambda text: [int(s) for s in text.split(",")], default=sizes)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (folder, arguments), nprocs=arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
