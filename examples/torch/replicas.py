#!/usr/bin/env python3
"""Training by torchft on tutti: one replica of a model. The others go on while it is dead, and it takes their state when
it comes back:

torchft_lighthouse --min_replicas 2 --join_timeout_ms 100 &
for replica in 0 1 2; do TORCHFT_LIGHTHOUSE=http://localhost:29510 python3 replicas.py --replica $replica & done
"""

import argparse
import contextlib
import datetime
import time

import torch
import torch.distributed as dist
import torchft
import torchft.local_sgd
import torchft.process_group
import tutti_torch.torchft

# Of LocalSGD and DiLoCo: batches of a replica between two averages, which count as one step.
LOCAL_BATCHES = 10


class DataParallel(torchft.DistributedDataParallel):
    """If an all-reduce fails in the backward pass, torchft's own class ends the process (0.2.0). Here the pass goes on with
    gradients that the optimizer does not take."""

    @staticmethod
    def _comm_hook(manager: torchft.Manager, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        manager.allreduce(bucket.buffer()).wait()  # the manager keeps an error
        averaged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        averaged.set_result(bucket.buffer())
        return averaged


GROUPS = {"tutti": tutti_torch.torchft.ProcessGroupTutti, "gloo": torchft.process_group.ProcessGroupGloo}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replica", type=int, required=True)
    parser.add_argument("--backend", choices=GROUPS, default="tutti")
    parser.add_argument(
        "--method",
        choices=("ddp", "local_sgd", "diloco"),
        default="ddp",
        help=f"what replicas average: gradients, or after {LOCAL_BATCHES} batches of each their weights or the changes",
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the data")
    parser.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    return parser.parse_args()


def batch(seed: int, number: int, part: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1_000_000 * seed + 10 * number + part)
    inputs = torch.randn(size, 8, generator=generator)
    return inputs, inputs.square().sum(1, keepdim=True)


def tests(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return batch(seed, 0, 9, 1024)


def new_model(hidden: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))


def new_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.003)


def main() -> None:
    chosen = options()
    torch.manual_seed(chosen.seed)
    model = new_model(chosen.hidden)
    inner = new_optimizer(model)

    def load_state_dict(state: dict) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    # Of this replica, which has one rank.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=GROUPS[chosen.backend](timeout=datetime.timedelta(seconds=30)),
        load_state_dict=load_state_dict,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=2,
        use_async_quorum=chosen.method == "ddp",
        replica_id=f"replica_{chosen.replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    parallel, optimizer, context = model, inner, contextlib.nullcontext()
    if chosen.method == "ddp":
        # zero_grad() finds out which replicas live. step() leaves the weights alone if a replica has died in this step.
        parallel, optimizer = DataParallel(manager, model), torchft.Optimizer(manager, inner)
    elif chosen.method == "local_sgd":
        context = torchft.local_sgd.LocalSGD(manager, model, inner, LOCAL_BATCHES)
    else:
        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        context = torchft.local_sgd.DiLoCo(manager, [model], inner, outer, LOCAL_BATCHES)
    batches = 0  # since the last step
    with context:
        while manager.current_step() < chosen.steps:
            step = manager.current_step()
            optimizer.zero_grad()
            inputs, targets = batch(chosen.seed, step * LOCAL_BATCHES + batches, chosen.replica)
            torch.nn.functional.mse_loss(parallel(inputs), targets).backward()
            optimizer.step()
            batches += 1
            if manager.current_step() > step:
                batches = 0
                report(manager, model, chosen.seed)
    manager.shutdown(wait=False)


def report(manager: torchft.Manager, model: torch.nn.Module, seed: int) -> None:
    inputs, targets = tests(seed)
    weights = sum(parameter.sum().item() for parameter in model.parameters())
    with torch.no_grad():
        loss = torch.nn.functional.mse_loss(model(inputs), targets).item()
    print(
        f"{time.monotonic():.6f} step {manager.current_step()} of {manager.num_participants()} replicas: "
        f"sum of the weights {weights!r}, loss {loss!r}",
        flush=True,
    )


if __name__ == "__main__":
    main()
