#!/usr/bin/env python3
"""Training by torchrun on one to three nodes. Nodes may die and come: torchrun starts the ranks of all nodes again, which
make a group of those that are there, and continue from the last checkpoint. On each node:

torchrun --nnodes 1:3 --max-restarts 10 --rdzv-backend c10d --rdzv-endpoint HOST:PORT nodes.py --checkpoint state.pt

The checkpoint is in a folder that all nodes share.
"""

import argparse
import os

import torch
import torch.distributed as dist


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="the file")
    parser.add_argument("--steps", type=int, default=100, help="at least")
    parser.add_argument("--until", help="go on until this file exists")
    return parser.parse_args()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the data of a step, whose solution is the weights 0, 1, 2, ..."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(32, 8, generator=generator)
    return inputs, inputs @ torch.arange(8.0)[:, None]


def save(path: str, state: dict) -> None:
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def more(chosen: argparse.Namespace, step: int) -> bool:
    """As rank 0 sees it."""
    wanted = step < chosen.steps or (chosen.until is not None and not os.path.exists(chosen.until))
    flag = torch.tensor([int(wanted)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def main() -> None:
    chosen = options()
    dist.init_process_group("tutti")
    model = torch.nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    step = 0
    if os.path.exists(chosen.checkpoint):
        state = torch.load(chosen.checkpoint)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} begins with step {step}, process {os.getpid()}", flush=True)
    while more(chosen, step):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(inputs), targets).backward()
        optimizer.step()
        step += 1
        if step % 10 == 0 and dist.get_rank() == 0:
            save(chosen.checkpoint, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
    away = (model.weight - torch.arange(8.0)).abs().max().item()
    print(f"after {step} steps {away:.1e} from the solution: {'right' if away < 1e-3 else 'wrong'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
