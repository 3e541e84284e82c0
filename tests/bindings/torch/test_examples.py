"""The examples, as a user runs them."""

import contextlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch.distributed as dist

import forked
import ranks

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "torch"


def torchrun(processes: int, program: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, str(EXAMPLES / program), *arguments], capture_output=True, text=True, timeout=forked.LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_example(program: str, *arguments: str) -> str:
    """What it prints. For forked ranks: fresh interpreters take long to import PyTorch."""
    sys.argv = [program, *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_path(str(EXAMPLES / program), run_name="__main__")
        except SystemExit as end:
            assert not end.code, f"{program}: exit status {end.code}: {output.getvalue()}"
    return output.getvalue()


def fork_as_torchrun(processes: int, program: str, *arguments: str) -> str:
    """Runs it in forked ranks that have the variables and the store of torchrun; what they print."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def body(rank: int, folder: str) -> str:
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(processes),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(store.port),
            TORCHELASTIC_USE_AGENT_STORE="True",
        )
        return run_example(program, *arguments)

    return "".join(ranks.fork_ranks(processes, body))


@pytest.mark.parametrize("processes,start", ((2, torchrun), (4, fork_as_torchrun)))
def test_train(processes: int, start: Callable[..., object], tmp_path: pathlib.Path) -> None:
    results = []
    for backend in ("tutti", "gloo"):
        path = tmp_path / f"{backend}.json"
        start(processes, "train.py", "--backend", backend, "--steps", "150", "--batch", "480", "--json", str(path))
        results.append(json.loads(path.read_text()))
    ours, theirs = results
    assert ours["accuracy"] >= 0.97 and theirs["accuracy"] >= 0.97
    # The first steps to rounding; a few hundred steps make more of it.
    assert ours["losses"][:10] == pytest.approx(theirs["losses"][:10], rel=1e-4)


@pytest.mark.parametrize("pattern", ("parameter_server", "asynchronous", "gossip", "federated"))
def test_patterns(pattern: str) -> None:
    assert "right within" in fork_as_torchrun(4, "patterns.py", pattern)


@pytest.mark.parametrize("victim", (0, 2))
def test_go_on(victim: int) -> None:
    """As tutti run --keep-going starts it."""

    def body(rank: int, folder: str) -> str:
        os.environ.update(TUTTI_RANK=str(rank), TUTTI_WORLD_SIZE="4")
        return run_example("go_on.py", "--store", os.path.join(folder, "store"), "--victim", str(victim))

    outputs = ranks.fork_ranks(4, body, dies=(victim,))
    assert outputs.pop(victim) is None
    for output in outputs:
        assert f"goes on in step 50 without rank [{victim}]" in output, output
        assert "after 100 steps, at last of 3 ranks" in output and "right" in output, output


def test_elastic_without_a_launcher() -> None:
    def body(worker: int, folder: str) -> str:
        return run_example("elastic.py", "--store", os.path.join(folder, "store"), "--ranks", "3", "--fail-at", "25")

    outputs = [output for output in ranks.fork_ranks(3, body, dies=(0, 1, 2)) if output is not None]
    assert len(outputs) == 2
    printed = "".join(outputs)
    assert "3 ranks begin with step 0\n" in printed and "2 ranks begin with step 20\n" in printed
    assert "after 100 steps" in printed and "right" in printed
