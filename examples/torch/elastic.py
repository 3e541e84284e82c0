#!/usr/bin/env python3
"""Training with Horovod's interface that goes on after a rank has failed:

torchrun --nproc-per-node 2 --max-restarts 3 elastic.py --checkpoint state.pt

Without torchrun the other ranks go on in their processes, and take workers that are started later with the same arguments:

for worker in 0 1 2; do python3 elastic.py --store $PWD/store --ranks 3 & done

--fail-at N: the last rank ends in step N of its first life, as if its machine had failed.
"""

import argparse
import os

import torch
import tutti_torch.horovod as hvd


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", help="the file that commits go to")
    parser.add_argument("--store", help="a file that does not exist yet, in a folder that all workers share")
    parser.add_argument("--ranks", type=int, default=2, help="with --store, the number of workers that begin")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fail-at", type=int, help="a step")
    return parser.parse_args()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the data of a step, whose solution is the weights 0, 1, 2, ..."""
    generator = torch.Generator().manual_seed(step * hvd.size() + hvd.rank())
    inputs = torch.randn(32, 8, generator=generator)
    return inputs, inputs @ torch.arange(8.0)[:, None]


@hvd.elastic.run
def train(state: hvd.elastic.TorchState, steps: int, fail_at: int | None) -> None:
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks begin with step {state.step}", flush=True)
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" and hvd.size() == state.ranks
    while state.step < steps:
        if first_life and state.step == fail_at and hvd.rank() == hvd.size() - 1:
            os._exit(1)
        inputs, targets = batch(state.step)
        state.optimizer.zero_grad()
        torch.nn.functional.mse_loss(state.model(inputs), targets).backward()
        state.optimizer.step()
        state.step += 1
        if state.step % 10 == 0:
            state.commit()


def main() -> None:
    chosen = options()
    hvd.init(store=chosen.store, ranks=chosen.ranks)
    model = torch.nn.Linear(8, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5), model.named_parameters()
    )
    state = hvd.elastic.TorchState(model, optimizer, checkpoint=chosen.checkpoint, step=0, ranks=hvd.size())
    train(state, chosen.steps, chosen.fail_at)
    away = (model.weight - torch.arange(8.0)).abs().max().item()
    if hvd.rank() == 0:
        print(f"after {state.step} steps {away:.1e} from the solution: {'right' if away < 1e-3 else 'wrong'}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
