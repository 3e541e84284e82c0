"""Ways to train without an all-reduce in each step, by sends, receives and groups. One pattern for each run:

    torchrun --standalone --nproc-per-node=4 examples/torch/patterns.py parameter_server
    torchrun --standalone --nproc-per-node=4 examples/torch/patterns.py gossip

    parameter_server  rank 0 has the parameters; workers take them, and send gradients. None is more than a few steps
                      ahead of the slowest (bounded staleness)
    asynchronous      the same without a bound: gradients are applied when they come
    gossip            each rank trains for itself, and averages with one other after each step: rings of changing distance
    federated         groups of clients train for themselves for some steps, and average within the group; the groups
                      average now and then

Each fits the same linear model to generated data, and prints how far the parameters are from the right ones.
"""

import argparse
import sys

import torch
import torch.distributed as dist


DIMENSIONS = 50
STEPS = 200
RATE = 0.05
STALENESS = 3  # steps


def truth() -> torch.Tensor:
    return torch.randn(DIMENSIONS, generator=torch.Generator().manual_seed(7))


def gradient(parameters: torch.Tensor, rank: int, step: int) -> torch.Tensor:
    """Of the mean squared error of a batch of the rank's own."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(32, DIMENSIONS, generator=generator)
    targets = inputs @ truth() + 0.01 * torch.randn(32, generator=generator)
    return inputs.T @ (inputs @ parameters - targets) / len(inputs)


def serve(workers: list[int], staleness: int) -> torch.Tensor:
    """Applies gradients in the order in which they come. Who is too far ahead gets its answer when the others follow."""
    parameters = torch.zeros(DIMENSIONS)
    gradients = {worker: torch.zeros(DIMENSIONS) for worker in workers}
    receives = {worker: dist.irecv(gradients[worker], worker) for worker in workers}
    steps = dict.fromkeys(workers, 0)
    waiting: list[int] = []
    answers = []
    while receives or waiting:
        for worker in [worker for worker, work in receives.items() if work.is_completed()]:
            receives.pop(worker).wait()
            parameters -= RATE / len(workers) * gradients[worker]
            steps[worker] += 1
            waiting.append(worker)
        slowest = min(steps.values())
        for worker in [worker for worker in waiting if steps[worker] <= slowest + staleness]:
            waiting.remove(worker)
            copy = parameters.clone()
            answers.append((copy, dist.isend(copy, worker)))
            if steps[worker] < STEPS:
                receives[worker] = dist.irecv(gradients[worker], worker)
    for _, answer in answers:
        answer.wait()
    return parameters


def parameter_server(rank: int, ranks: int, staleness: int = STALENESS) -> torch.Tensor:
    if rank == 0:
        parameters = serve(list(range(1, ranks)), staleness)
    else:
        parameters = torch.zeros(DIMENSIONS)
        for step in range(STEPS):
            dist.send(gradient(parameters, rank, step), 0)
            dist.recv(parameters, 0)
    dist.broadcast(parameters, 0)
    return parameters


def asynchronous(rank: int, ranks: int) -> torch.Tensor:
    return parameter_server(rank, ranks, staleness=STEPS)


def gossip(rank: int, ranks: int) -> torch.Tensor:
    parameters = torch.zeros(DIMENSIONS)
    theirs = torch.zeros(DIMENSIONS)
    for step in range(STEPS):
        parameters -= RATE * gradient(parameters, rank, step)
        distance = 1 << step % max(1, (ranks - 1).bit_length())
        send = dist.isend(parameters, (rank + distance) % ranks)
        dist.recv(theirs, (rank - distance) % ranks)
        send.wait()
        parameters = (parameters + theirs) / 2
    return parameters


def federated(rank: int, ranks: int) -> torch.Tensor:
    half = (ranks + 1) // 2
    groups = [dist.new_group(list(range(half))), dist.new_group(list(range(half, ranks)))]
    leaders = dist.new_group([0, half])
    mine = 0 if rank < half else 1
    parameters = torch.zeros(DIMENSIONS)
    for turn in range(STEPS // 10):
        for step in range(10):
            parameters -= RATE * gradient(parameters, rank, 10 * turn + step)
        dist.all_reduce(parameters, op=dist.ReduceOp.AVG, group=groups[mine])
        if turn % 4 == 3:
            if rank in (0, half):
                dist.all_reduce(parameters, op=dist.ReduceOp.AVG, group=leaders)
            dist.broadcast(parameters, (0, half)[mine], group=groups[mine])
    return parameters


PATTERNS = {f.__name__: f for f in (parameter_server, asynchronous, gossip, federated)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", choices=PATTERNS)
    parser.add_argument("--backend", default="tutti")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks < 2:
        parser.error("two ranks at least")
    parameters = PATTERNS[arguments.pattern](rank, ranks)
    error = (parameters - truth()).norm() / truth().norm()
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{arguments.pattern}, {ranks} ranks: the parameters are right within {error:.2%}")
    dist.destroy_process_group()
    return 0 if error < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
