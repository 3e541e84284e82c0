"""Horovod's elastic training: ranks die, and workers come, while the other processes go on; states and their commits."""

import contextlib
import datetime
import io
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import forked
import ranks
import tutti_torch.horovod as hvd
from tutti_torch.horovod.membership import open_store

SOLUTION = torch.arange(8.0)[:, None]


def touch(folder: str, name: str) -> None:
    pathlib.Path(folder, name).touch()


def wait_for(folder: str, name: str) -> None:
    while not pathlib.Path(folder, name).exists():
        time.sleep(0.02)


def new_state() -> hvd.elastic.TorchState:
    torch.manual_seed(os.getpid())
    model = torch.nn.Linear(8, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5))
    return hvd.elastic.TorchState(model, optimizer, step=0, sizes=[])


def make_step(state: hvd.elastic.TorchState) -> None:
    inputs = torch.randn(32, 8)
    state.optimizer.zero_grad()
    torch.nn.functional.mse_loss(state.model(inputs), inputs @ SOLUTION).backward()
    state.optimizer.step()
    state.step += 1
    if state.step % 10 == 0:
        state.commit()


# Which rank dies, and the numbers of ranks: of two jobs a rank dies before a worker comes, of one after that.
@pytest.mark.parametrize(("victim", "sizes"), ((0, [3, 2, 3]), (2, [3, 4, 3]), (1, [2, 1, 2])))
def test_ranks_die_and_workers_come(victim: int, sizes: list[int]) -> None:
    first = sizes[0]
    dies_with = max(sizes)

    def body(worker: int, folder: str) -> tuple[int, list[int], float, list[int]]:
        if worker == first:  # the one that comes later
            wait_for(folder, "3" if dies_with == 4 else str(first - 1))
        hvd.init(datetime.timedelta(seconds=60), store=os.path.join(folder, "store"), ranks=first)
        resets = []
        state = new_state()
        state.register_reset_callbacks([lambda: resets.append(hvd.size())])

        @hvd.elastic.run
        def train(state: hvd.elastic.TorchState) -> None:
            state.sizes = [*state.sizes, hvd.size()]
            touch(folder, str(hvd.size()))
            while state.step < 100 or state.sizes != sizes:
                if state.step >= 25 and state.step % 10 == 5 and hvd.size() == dies_with and hvd.rank() == victim:
                    if len(state.sizes) < 3:
                        os.kill(os.getpid(), signal.SIGKILL)
                make_step(state)

        train(state)
        away = (state.model.weight.detach().flatten() - SOLUTION.flatten()).abs().max().item()
        result = os.getpid(), state.sizes, away, resets
        hvd.shutdown()
        return result

    results = ranks.fork_ranks(first + 1, body, dies=tuple(range(first)))
    lived = [result for result in results[:first] if result is not None]
    assert len(lived) == first - 1
    for _, seen, away, resets in lived:
        assert seen == sizes and resets == sizes[1:] and away < 1e-3
    _, seen, away, resets = results[first]
    assert seen == sizes and away < 1e-3
    assert resets == (sizes[1:] if dies_with == 4 else sizes[2:])


def test_a_worker_that_has_died_while_it_waited_is_left_out() -> None:
    def body(worker: int, folder: str) -> list[int]:
        path = os.path.join(folder, "store")
        if worker == 2:
            wait_for(folder, "2")
            store = dist.FileStore(path, -1)
            ticket = store.add("tickets", 1)
            store.set(f"waits {ticket}", "")
            touch(folder, "dead")
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.init(datetime.timedelta(seconds=60), store=path, ranks=2)
        state = new_state()

        @hvd.elastic.run
        def train(state: hvd.elastic.TorchState) -> None:
            state.sizes = [*state.sizes, hvd.size()]
            touch(folder, "2")
            wait_for(folder, "dead")
            while len(state.sizes) < 2 or state.step < 100:
                make_step(state)

        train(state)
        hvd.shutdown()
        return state.sizes

    assert ranks.fork_ranks(3, body, dies=(2,)) == [[2, 2], [2, 2], None]


def test_a_failure_without_a_death_is_raised() -> None:
    def body(worker: int, folder: str) -> None:
        hvd.init(datetime.timedelta(seconds=60), store=os.path.join(folder, "store"), ranks=2)

        @hvd.elastic.run
        def train(state: hvd.elastic.TorchState) -> None:
            hvd.allreduce(torch.ones(4 + hvd.rank()))

        with pytest.raises(hvd.HorovodInternalError, match="allreduce|all_reduce"):
            train(hvd.elastic.TorchState(step=0))
        hvd.shutdown()

    ranks.fork_ranks(2, body)


def test_a_rank_that_has_ended_repeats_the_last_steps_with_the_others() -> None:
    """Another process hosts their store."""

    def body(worker: int, folder: str) -> int:
        port = dist.FileStore(os.path.join(folder, "port"), -1)
        if worker == 3:
            server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port.set("port", str(server.port))
            server.wait(["left 0", "left 1"], datetime.timedelta(seconds=60))
            return 0
        address = f"localhost:{int(port.get('port'))}"
        hvd.init(datetime.timedelta(seconds=60), store=address, ranks=3)

        @hvd.elastic.run
        def train(state: hvd.elastic.TorchState) -> int:
            if hvd.size() == 3 and hvd.rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if hvd.size() == 3 and hvd.rank() == 0:
                return 0
            return int(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())

        result = train(hvd.elastic.TorchState(step=0))
        rank = hvd.rank()
        hvd.shutdown()
        open_store(address).set(f"left {rank}", "")
        return result

    results = ranks.fork_ranks(4, body, dies=(0, 1, 2))
    assert sorted(results[:3], key=str) == [2, 2, None]


def test_elastic_state(tmp_path: pathlib.Path) -> None:
    """Commits are restored in the process, read by a later one, and given to ranks that have none."""
    path = tmp_path / "state.pt"

    def state_of_seed(seed: int, where: pathlib.Path | None) -> hvd.elastic.TorchState:
        torch.manual_seed(seed)
        network = torch.nn.Linear(2, 1)
        return hvd.elastic.TorchState(network, torch.optim.Adam(network.parameters()), checkpoint=where, epoch=0)

    def first() -> torch.Tensor:
        state = state_of_seed(1, path)
        state.epoch = 3
        state.commit()
        committed = state.model.weight.detach().clone()
        state.epoch = 4
        with torch.no_grad():
            state.model.weight.zero_()
        state.restore()
        assert state.epoch == 3 and torch.equal(state.model.weight, committed)
        return committed

    def second() -> torch.Tensor:
        # The rank that has the file is not the first.
        state = state_of_seed(7 + hvd.rank(), path if hvd.rank() == 1 else None)
        resets = []
        state.register_reset_callbacks([lambda: resets.append(hvd.rank())])
        found = hvd.elastic.run(lambda s: (s.epoch, s.model.weight.detach()))(state)
        assert found[0] == 3 and resets == [hvd.rank()]
        return found[1]

    def in_job(body: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        def rank_body(rank: int, size: int) -> torch.Tensor:
            hvd.init()
            result = body()
            hvd.shutdown()
            return result

        return ranks.run(2, rank_body)

    committed = in_job(first)[0]
    for found in in_job(second):
        assert torch.equal(found, committed)


@pytest.mark.parametrize("launched", (False, True))
def test_elastic_tells_what_follows_a_failure(launched: bool) -> None:
    def body(rank: int, size: int) -> None:
        hvd.init()
        if launched:
            os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"

        def train(state: hvd.elastic.TorchState) -> None:
            if rank == 1:
                os._exit(3)
            hvd.allreduce(torch.ones(1000))
            hvd.barrier()

        told = io.StringIO()
        with contextlib.redirect_stderr(told), pytest.raises(hvd.HorovodInternalError):
            hvd.elastic.run(train)(hvd.elastic.TorchState(step=0))
        assert ("TorchState(checkpoint=PATH)" if launched else "use torchrun --max-restarts") in told.getvalue()
        hvd.shutdown()

    ranks.run(2, body, dies=(1,))


def test_elastic_training_goes_on_after_a_failure(tmp_path: pathlib.Path) -> None:
    program = pathlib.Path(__file__).parents[3] / "examples" / "torch" / "elastic.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [*command, str(program), "--checkpoint", str(tmp_path / "state.pt"), "--fail-at", "25"],
        capture_output=True,
        text=True,
        timeout=forked.LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    begins = [line for line in done.stdout.splitlines() if "begin with" in line]
    assert begins == ["2 ranks begin with step 0", "2 ranks begin with step 20"]
    assert "after 100 steps" in done.stdout and "right" in done.stdout
