"""The examples, as a user runs them."""

import contextlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

import forked
import ranks

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


@pytest.mark.parametrize("victim", (0, 2))
def test_go_on(victim: int) -> None:
    """As tutti run --keep-going starts it, but forked: four fresh interpreters take long to import PyTorch."""

    def body(rank: int, folder: str) -> str:
        os.environ.update(TUTTI_RANK=str(rank), TUTTI_WORLD_SIZE="4")
        sys.argv = ["go_on.py", "--store", os.path.join(folder, "store"), "--victim", str(victim)]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            runpy.run_path(str(EXAMPLES / "go_on.py"), run_name="__main__")
        return output.getvalue()

    outputs = ranks.fork_ranks(4, body, dies=(victim,))
    assert outputs.pop(victim) is None
    for output in outputs:
        assert f"goes on in step 50 without rank [{victim}]" in output, output
        assert "after 100 steps, at last of 3 ranks" in output and "right" in output, output
