"""The examples, as a user runs them."""

import json
import pathlib
import subprocess
import sys

import pytest

import forked

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "torch"


def torchrun(processes: int, program: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, str(EXAMPLES / program), *arguments], capture_output=True, text=True, timeout=forked.LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("processes", (2, 4))
def test_train(processes: int, tmp_path) -> None:
    results = []
    for backend in ("tutti", "gloo"):
        path = tmp_path / f"{backend}.json"
        torchrun(processes, "train.py", "--backend", backend, "--steps", "150", "--batch", "480", "--json", str(path))
        results.append(json.loads(path.read_text()))
    ours, theirs = results
    assert ours["accuracy"] >= 0.97 and theirs["accuracy"] >= 0.97
    # The first steps to rounding; a few hundred steps make more of it.
    assert ours["losses"][:10] == pytest.approx(theirs["losses"][:10], rel=1e-4)


@pytest.mark.parametrize("pattern", ("parameter_server", "asynchronous", "gossip", "federated"))
def test_patterns(pattern: str) -> None:
    assert "right within" in torchrun(4, "patterns.py", pattern)
