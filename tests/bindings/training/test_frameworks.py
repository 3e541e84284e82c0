"""Frameworks for training, as their authors wrote them, on the backend: each ends with the same result as over gloo."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
LIMIT_S = 600.0
TENSOR, SEQUENCE, DATA = (
    ("--parallel", "tensor", "--on-cpu", "unchanged"),
    ("--parallel", "sequence", "--on-cpu", "replaced"),
    ("--parallel", "data", "--on-cpu", "replaced"),
)


def python(*command: str) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE),
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # What DeepSpeed compiles is kept beside the virtual environment.
        "TORCH_EXTENSIONS_DIR": str(pathlib.Path(sys.prefix).parent / "extensions"),
    }
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=LIMIT_S)


def trained(folder: pathlib.Path, backend: str, launcher: tuple[str, ...], program: str, *options: str) -> dict:
    report = folder / f"{backend}.json"
    done = python(*launcher, str(HERE / program), "--backend", backend, "--report", str(report), *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return json.loads(report.read_text())


def ends_as_over_gloo(folder: pathlib.Path, launcher: tuple[str, ...], program: str, *options: str) -> dict:
    """What the program told of its training over tutti."""
    ours, theirs = (trained(folder, backend, launcher, program, *options) for backend in ("tutti", "gloo"))
    assert (ours["backend"], theirs["backend"]) == ("tutti", "gloo")
    assert ours["ranks"] == theirs["ranks"] == 2
    assert "tutti:all_reduce" in ours["operations"] and not theirs["operations"]
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
    assert ours["parameters"] == pytest.approx(theirs["parameters"], rel=1e-5)
    assert ours["losses"][-1] < 0.95 * ours["losses"][0]
    return ours


def refused(folder: pathlib.Path, launcher: tuple[str, ...], program: str, *options: str) -> str:
    """What a program that ends with an error says."""
    report = folder / "refused.json"
    done = python(*launcher, str(HERE / program), "--backend", "tutti", "--report", str(report), *options)
    assert done.returncode != 0 and not report.exists()
    return done.stderr


def test_accelerate(tmp_path: pathlib.Path) -> None:
    ours = ends_as_over_gloo(tmp_path, TORCHRUN, "with_accelerate.py", "--group", "first")
    assert {"tutti:all_gather", "tutti:barrier", "tutti:broadcast"} <= set(ours["operations"])


def test_accelerate_refuses_its_setting_on_the_cpu(tmp_path: pathlib.Path) -> None:
    said = refused(tmp_path, TORCHRUN, "with_accelerate.py", "--group", "setting")
    assert "Your assigned backend tutti is not available, please use gloo" in said


@pytest.mark.parametrize("strategy", ("ddp", "fully_shard"))
def test_lightning(strategy: str, tmp_path: pathlib.Path) -> None:
    ends_as_over_gloo(tmp_path, (), "with_lightning.py", "--strategy", strategy, "--folder", str(tmp_path))


def test_lightning_refuses_its_older_sharding_on_the_cpu(tmp_path: pathlib.Path) -> None:
    said = refused(tmp_path, (), "with_lightning.py", "--strategy", "fsdp", "--folder", str(tmp_path))
    assert "The strategy `fsdp` requires a GPU accelerator" in said


@pytest.mark.parametrize("stage", (0, 1, 2, 3, "pipeline"))
def test_deepspeed(stage: int | str, tmp_path: pathlib.Path) -> None:
    ours = ends_as_over_gloo(tmp_path, TORCHRUN, "with_deepspeed.py", "--stage", str(stage))
    wanted = {3: {"tutti:all_gather", "tutti:reduce_scatter"}, "pipeline": {"tutti:send", "tutti:recv"}}
    assert wanted.get(stage, set()) <= set(ours["operations"])


def test_ray_train(tmp_path: pathlib.Path) -> None:
    ends_as_over_gloo(tmp_path, (), "with_ray.py", "--folder", str(tmp_path))


def test_ray_train_goes_on_after_a_death(tmp_path: pathlib.Path) -> None:
    runs = []
    for dies in ("no", "yes"):
        (tmp_path / dies).mkdir()
        runs.append(trained(tmp_path / dies, "tutti", (), "with_ray.py", "--folder", str(tmp_path), "--dies", dies))
    without, after_death = runs
    assert without["first_epoch"] == 0 and after_death["first_epoch"] in (1, 2)
    assert after_death["losses"] == pytest.approx(without["losses"], rel=1e-6)
    assert after_death["parameters"] == pytest.approx(without["parameters"], rel=1e-6)


def test_megatron(tmp_path: pathlib.Path) -> None:
    losses = []
    for name, options in (("tensor", TENSOR), ("sequence", SEQUENCE)):
        (tmp_path / name).mkdir()
        losses.append(ends_as_over_gloo(tmp_path / name, TORCHRUN, "with_megatron.py", *options)["losses"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_megatron_data_parallel(tmp_path: pathlib.Path) -> None:
    ends_as_over_gloo(tmp_path, TORCHRUN, "with_megatron.py", *DATA)


@pytest.mark.parametrize("options", (SEQUENCE, DATA))
def test_megatron_asks_for_a_gpu(options: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    said = refused(tmp_path, TORCHRUN, "with_megatron.py", *options[:-1], "unchanged")
    assert "device=torch.cuda.current_device()" in said
