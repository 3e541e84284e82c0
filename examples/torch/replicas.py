#!/usr/bin/env python3
"""Training by torchft on tutti: one replica of a model. The others go on while it is dead, and it takes their state when
it comes back:

torchft_lighthouse --min_replicas 2 --join_timeout_ms 100 &
for replica in 0 1 2; do TORCHFT_LIGHTHOUSE=http://localhost:29510 python3 replicas.py --replica $replica & done
"""

import argparse
import datetime
import time

import torch
import torch.distributed as dist
import torchft
import torchft.process_group
import tutti_torch.torchft

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
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    return parser.parse_args()


def batch(step: int, part: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + part)
    inputs = torch.randn(32, 8, generator=generator)
    return inputs, inputs.square().sum(1, keepdim=True)


def main() -> None:
    chosen = options()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, chosen.hidden), torch.nn.ReLU(), torch.nn.Linear(chosen.hidden, 1))
    inner = torch.optim.Adam(model.parameters())

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
        replica_id=f"replica_{chosen.replica}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    parallel = DataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, inner)
    while manager.current_step() < chosen.steps:
        step = manager.current_step()
        optimizer.zero_grad()  # finds out which replicas live
        inputs, targets = batch(step, chosen.replica)
        torch.nn.functional.mse_loss(parallel(inputs), targets).backward()
        optimizer.step()  # not if a replica has died in this step
        if manager.current_step() > step:
            weights = sum(parameter.sum().item() for parameter in model.parameters())
            print(
                f"{time.monotonic():.6f} step {manager.current_step()} of {manager.num_participants()} replicas: "
                f"sum of the weights {weights!r}",
                flush=True,
            )
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
