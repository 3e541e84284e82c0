#!/usr/bin/env python3
"""Training with DistributedDataParallel that goes on without ranks that die:

tutti run -n 4 --keep-going -- python3 go_on.py --store $PWD/store --victim 2

--store: a file that does not exist yet, in a folder that all ranks share. --victim: the rank that kills itself in step 50.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
import tutti_torch

DEATH = 50


class Job:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 1, bias=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.5)
        self.step = 0  # the next one
        self.error: Exception | None = None


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--victim", type=int, default=-1)
    return parser.parse_args()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the data of a step, whose solution is the weights 0, 1, 2, ..."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(32, 8, generator=generator)
    return inputs, inputs @ torch.arange(8.0)[:, None]


def take_furthest_state(job: Job) -> None:
    """When a rank died, some ranks may have ended that step, and others not: all take the state of one that has."""
    steps = [0] * dist.get_world_size()
    dist.all_gather_object(steps, job.step)
    state = [job.step, job.model.state_dict(), job.optimizer.state_dict()]
    dist.broadcast_object_list(state, src=steps.index(max(steps)))
    job.step = state[0]
    job.model.load_state_dict(state[1])
    job.optimizer.load_state_dict(state[2])


def do_steps(job: Job, steps: int, dies: bool) -> bool:
    """Does all steps that are left. False: an operation has failed, or another rank has died."""
    try:
        if dead := tutti_torch.failed():
            dist.shrink_group(dead)
            print(f"goes on in step {job.step} without rank {dead}, as rank {dist.get_rank()}", flush=True)
        take_furthest_state(job)
        model = torch.nn.parallel.DistributedDataParallel(job.model)  # of the group as it is now
        while job.step < steps:
            if dies and job.step == DEATH:
                os.kill(os.getpid(), signal.SIGKILL)
            inputs, targets = batch(job.step)
            job.optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            job.optimizer.step()
            job.step += 1
        return True
    except dist.DistBackendError as error:
        job.error = error
        return False


def main() -> None:
    chosen = options()
    rank = int(os.environ["TUTTI_RANK"])
    dist.init_process_group(
        "tutti", init_method=f"file://{chosen.store}", rank=rank, world_size=int(os.environ["TUTTI_WORLD_SIZE"])
    )
    job = Job()
    while True:
        done = do_steps(job, chosen.steps, rank == chosen.victim)
        # A rank may have ended the last step when another one fails in it. So no rank leaves before all have ended it.
        if tutti_torch.agree(int(done)):
            break
        if job.error is not None and not tutti_torch.failed():
            raise job.error
    away = (job.model.weight - torch.arange(8.0)).abs().max().item()
    print(
        f"after {job.step} steps, at last of {dist.get_world_size()} ranks, {away:.1e} from the solution: "
        f"{'right' if away < 1e-3 else 'wrong'}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
