#!/usr/bin/env python3
"""Losses of a training by torchft on tutti in which one of three replicas is killed and comes back, beside those of the
same training without a death:

python3 loss_curve.py --json losses.json --picture losses.svg

The replicas are those of replicas.py. They are forked from this process, so that each need not import PyTorch.
"""

import argparse
import json
import os
import pathlib
import re
import runpy
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable

import torch
import torch._dynamo  # noqa: F401  optimizers import it; as the next ones, for the replicas
import torchft.coordination
import torchft.local_sgd  # noqa: F401
import tutti_torch.torchft  # noqa: F401

REPLICAS = 3
VICTIM = 2
LIMIT_S = 300


class Child:
    """A forked process, and what it prints."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.output, write = os.pipe()
        self.unfinished = b""
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.dup2(write, 1)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                body()
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def lines(self) -> list[str] | None:
        """Those that are complete. Waits for output if there is none. None: the process has ended."""
        read = os.read(self.output, 65536)
        if not read:
            return None
        *complete, self.unfinished = (self.unfinished + read).split(b"\n")
        return [line.decode() for line in complete]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def status(self) -> int:
        """Waits for the end of the process. The negative number of the signal that has killed it, or its exit status."""
        os.close(self.output)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def lighthouse() -> None:
    # A step without the victim begins after the join timeout. A shorter one leaves out replicas that are only late.
    server = torchft.coordination.LighthouseServer(bind="[::]:0", min_replicas=REPLICAS - 1, join_timeout_ms=5000)
    print(server.address(), flush=True)
    signal.pause()


def replica(number: int, arguments: list[str]) -> None:
    torch.set_num_threads(1)
    sys.argv = ["replicas.py", f"--replica={number}", *arguments]
    runpy.run_path(str(pathlib.Path(__file__).with_name("replicas.py")), run_name="__main__")


class Training:
    """Trains. If ``dies``, the victim is killed after an eighth of the steps, and started again after half of them."""

    def __init__(self, arguments: list[str], steps: int, dies: bool) -> None:
        self.arguments = [f"--steps={steps}", *arguments]
        self.kill_after = steps // 8 if dies else None
        self.start_after = steps // 2
        # After each step the loss, which is the same on all replicas that have made the step, and their number. A replica
        # that is late may miss a step.
        self.made: dict[int, tuple[float, int]] = {}
        # The steps after which the victim was killed and started again, and the first that it has made since.
        self.killed: int | None = None
        self.started: int | None = None
        self.returned: int | None = None
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        beacon = Child(lighthouse)
        try:
            os.environ["TORCHFT_LIGHTHOUSE"] = (beacon.lines() or [""])[0]
            for number in range(REPLICAS):
                self._start(number)
            self._follow()
        finally:
            for child in [beacon, *self.children.values()]:
                child.kill()
                child.status()

    def _start(self, number: int) -> None:
        self.children[number] = child = Child(lambda: replica(number, self.arguments))
        self.selector.register(child.output, selectors.EVENT_READ, number)

    def _follow(self) -> None:
        """Until all replicas have ended."""
        deadline = time.monotonic() + LIMIT_S
        while self.children:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the training has made {len(self.made)} steps in {LIMIT_S} s, and has not ended")
            for key, _ in self.selector.select(timeout=1):
                lines = self.children[key.data].lines()
                if lines is None:
                    self._ended(key.data)
                for line in lines or []:
                    self._made_step(key.data, line)
            done = max(self.made, default=0)
            if self.kill_after is not None and self.killed is None and done >= self.kill_after:
                self.killed = done
                self.children[VICTIM].kill()
            if self.killed is not None and self.started is None and VICTIM not in self.children and done >= self.start_after:
                self.started = done
                self._start(VICTIM)

    def _made_step(self, number: int, line: str) -> None:
        found = re.fullmatch(r"\S+ step (\d+) of (\d+) replicas: .* loss (\S+)", line)
        if found is None:
            raise RuntimeError(f"replica {number} has printed {line!r}")
        step, loss = int(found[1]), float(found[3])
        if self.made.setdefault(step, (loss, int(found[2])))[0] != loss:
            raise RuntimeError(f"replica {number} has loss {loss} after step {step}, another one {self.made[step][0]}")
        if number == VICTIM and self.started is not None and self.returned is None:
            self.returned = step

    def _ended(self, number: int) -> None:
        child = self.children.pop(number)
        self.selector.unregister(child.output)
        status = child.status()
        if status != 0 and not (number == VICTIM and self.killed is not None and self.started is None):
            raise RuntimeError(f"replica {number} has ended with status {status} after {len(self.made)} steps")

    def record(self) -> dict:
        steps = sorted(self.made)
        return {
            "steps": steps,
            "losses": [self.made[step][0] for step in steps],
            "replicas": [self.made[step][1] for step in steps],
            "killed": self.killed,
            "started": self.started,
            "returned": self.returned,
        }


def draw(trainings: dict, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    import matplotlib.ticker as ticker

    figure, axes = pyplot.subplots(figsize=(8, 4))
    without, dies = trainings["without"], trainings["with"]
    for number, other in enumerate(trainings["other_seeds"]):
        label = "no death, other seeds" if number == 0 else None
        axes.plot(other["steps"], other["losses"], color="lightgray", label=label)
    axes.plot(without["steps"], without["losses"], color="tab:blue", label="no death")
    axes.plot(dies["steps"], dies["losses"], "--", color="tab:red", label="a replica is killed and comes back")
    axes.axvspan(dies["killed"], dies["returned"], color="tab:red", alpha=0.1, linewidth=0, label="two replicas live")
    axes.set(xlabel="step", ylabel="loss on test data", yscale="log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, help="the file for the losses of both trainings")
    parser.add_argument("--picture", help="an .svg or .png file; needs matplotlib")
    parser.add_argument("--other-seeds", type=int, default=0, help="trainings without a death, from other first weights")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--method", default="ddp", help="see replicas.py")
    chosen = parser.parse_args()
    os.environ.setdefault("RUST_LOG", "warn")  # torchft logs every step otherwise
    method = f"--method={chosen.method}"
    trainings = {
        "without": Training([method], chosen.steps, dies=False).record(),
        "with": Training([method], chosen.steps, dies=True).record(),
        "other_seeds": [
            Training([method, f"--seed={seed}"], chosen.steps, dies=False).record()
            for seed in range(1, chosen.other_seeds + 1)
        ],
    }
    pathlib.Path(chosen.json).write_text(json.dumps(trainings), encoding="utf-8")
    dies = trainings["with"]
    if dies["returned"] is None:
        raise SystemExit(f"the replica was not back before step {chosen.steps}: give more --steps")
    print(
        f"loss after {chosen.steps} steps: {trainings['without']['losses'][-1]:.3f} without a death, "
        f"{dies['losses'][-1]:.3f} with one after step {dies['killed']}; the replica was back in step {dies['returned']}"
    )
    if chosen.picture:
        draw(trainings, chosen.picture)


if __name__ == "__main__":
    main()
