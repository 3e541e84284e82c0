"""The losses of a training by torchft in which a replica is killed and comes back."""

import json
import pathlib
import runpy
import subprocess
import sys

import pytest
import torch

import ranks

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "torch"
# Two trainings, for each of which loss_curve.py has a limit of 300 s.
LIMIT_S = 700.0


def trainings(folder: pathlib.Path, method: str, steps: int) -> tuple[dict, dict]:
    """Without a death, and with one."""
    path = folder / "losses.json"
    command = [sys.executable, str(EXAMPLES / "loss_curve.py"), "--json", str(path)]
    done = subprocess.run(
        [*command, "--method", method, "--steps", str(steps)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found = json.loads(path.read_text())
    without, dies = found["without"], found["with"]
    assert without["steps"][-1] == dies["steps"][-1] == steps
    # The others have made steps while the victim was dead, and steps with the replica that has taken its place.
    assert dies["killed"] < dies["started"] < dies["returned"] <= steps
    by_step = dict(zip(dies["steps"], dies["replicas"]))
    assert {by_step[step] for step in range(dies["killed"] + 3, dies["started"] + 1) if step in by_step} == {2}
    assert 3 in dies["replicas"][dies["steps"].index(dies["returned"]) :]
    return without, dies


def without_torchft(seed: int, steps: int) -> float:
    """The last loss of the same training in one process, with the batches of all replicas."""
    example = runpy.run_path(str(EXAMPLES / "replicas.py"))
    torch.manual_seed(seed)
    model = example["new_model"](64)
    optimizer = example["new_optimizer"](model)
    for step in range(steps):
        batches = [example["batch"](seed, step * example["LOCAL_BATCHES"], part) for part in range(3)]
        inputs, targets = map(torch.cat, zip(*batches))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    inputs, targets = example["tests"](seed)
    return torch.nn.functional.mse_loss(model(inputs), targets).item()


def test_loss_of_a_training_in_which_a_replica_dies(tmp_path: pathlib.Path) -> None:
    steps = 300
    without, dies = trainings(tmp_path, "ddp", steps)
    # In forked processes: the threads of a backward pass must not be there when other tests fork.
    seeds = ranks.fork_ranks(4, lambda seed, folder: without_torchft(seed, steps))
    noise = max(seeds) - min(seeds)
    print(f"without {without['losses'][-1]}, with {dies['losses'][-1]}, seeds {seeds}")
    # 10 % of the loss. The death changes 2 % of it.
    assert noise < 0.2 * seeds[0]
    assert dies["losses"][0] > 10 * seeds[0]
    assert without["losses"][-1] == pytest.approx(seeds[0], abs=noise)
    assert dies["losses"][-1] == pytest.approx(without["losses"][-1], abs=noise)


@pytest.mark.parametrize("method", ("local_sgd", "diloco"))
def test_averages_of_weights_when_a_replica_dies(method: str, tmp_path: pathlib.Path) -> None:
    without, dies = trainings(tmp_path, method, 100)
    print(f"without {without['losses'][-1]}, with {dies['losses'][-1]}")
    assert without["losses"][0] > 10 * without["losses"][-1]
    # Losses of four seeds differ by 20 % (LocalSGD) and 7 % (DiLoCo). The death changes 1 % and 6 to 10 %: the replica is
    # dead for half of the training.
    assert dies["losses"][-1] == pytest.approx(without["losses"][-1], rel=0.2)
