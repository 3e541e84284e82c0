"""Horovod's interface: every operation, and training with the same result as one process with the whole batch."""

import os
import socket
import time

import pytest
import torch

import forked
import ranks
import tutti_torch.horovod as hvd


def run(n: int, body, **options) -> list:
    """body() on every rank of an initialised job."""

    def rank_body(rank: int, size: int):
        hvd.init(**options)
        assert (hvd.rank(), hvd.size()) == (rank, size)
        result = body()
        hvd.shutdown()
        return result

    return ranks.run(n, rank_body)


def test_places() -> None:
    def body() -> None:
        assert hvd.is_initialized() and hvd.is_homogeneous()
        assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), 3)
        assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)

    run(3, body)
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="call init"):
        hvd.rank()


@pytest.mark.parametrize(
    "environment, told",
    (
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "start the ranks with srun"),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0"}, "set MASTER_ADDR and MASTER_PORT"),
        ({"TUTTI_RANK": "0", "TUTTI_WORLD_SIZE": "2"}, "set MASTER_ADDR and MASTER_PORT"),
        ({"PMIX_RANK": "0"}, "how many ranks there are"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, ""),
        ({}, ""),
    ),
)
def test_no_rank_of_several_is_alone(environment: dict, told: str) -> None:
    def body(rank: int, folder: str) -> None:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "PMI", "OMPI_", "TUTTI_RANK", "TUTTI_WORLD", "RANK", "WORLD_SIZE", "MASTER_")):
                del os.environ[name]
        os.environ.update(environment)
        if told:
            with pytest.raises(ValueError, match=told):
                hvd.init()
        else:
            hvd.init()
            assert hvd.size() == 1

    forked.fork_ranks(1, body)


@pytest.mark.parametrize(
    "environment",
    (
        lambda rank: {"SLURM_PROCID": rank, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0"},
        lambda rank: {"TUTTI_RANK": rank, "TUTTI_WORLD_SIZE": "2"},
    ),
)
def test_ranks_of_other_launchers(environment) -> None:
    def body(rank: int, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        path = os.path.join(folder, "port")
        if rank == 0:
            with open(path + ".part", "w") as file:
                file.write(port)
            os.rename(path + ".part", path)
        while not os.path.exists(path):
            time.sleep(0.001)
        with open(path) as file:
            os.environ.update(environment(str(rank)), MASTER_ADDR="127.0.0.1", MASTER_PORT=file.read())
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, 2)
        hvd.shutdown()

    forked.fork_ranks(2, body)


def test_what_there_is_not_says_what_there_is() -> None:
    for name, told in (("Adasum", "op=Average"), ("add_process_set", "new_group"), ("start_timeline", "torch.profiler")):
        with pytest.raises(AttributeError, match=told):
            getattr(hvd, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hvd.nothing  # noqa: B018


def test_what_horovod_may_be_built_with() -> None:
    built = [hvd.mpi_built, hvd.gloo_built, hvd.nccl_built, hvd.ddl_built, hvd.ccl_built, hvd.cuda_built, hvd.rocm_built]
    assert not any(ask() for ask in (*built, hvd.mpi_enabled, hvd.gloo_enabled, hvd.mpi_threads_supported))


def test_allreduce() -> None:
    def body() -> None:
        mine = torch.full((3, 2), float(hvd.rank() + 1))
        assert hvd.allreduce(mine).unique().tolist() == [1.5]
        assert hvd.allreduce(mine, op=hvd.Sum).unique().tolist() == [3]
        assert hvd.allreduce(mine, average=False).unique().tolist() == [3]
        assert hvd.allreduce(mine, op=hvd.Min).unique().tolist() == [1]
        assert hvd.allreduce(mine, op=hvd.Max).unique().tolist() == [2]
        assert hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2, postscale_factor=10).unique().tolist() == [60]
        short = hvd.allreduce(mine, compression=hvd.Compression.fp16)
        assert short.dtype == torch.float32 and short.unique().tolist() == [1.5]
        assert mine.unique().tolist() == [hvd.rank() + 1]
        handle = hvd.allreduce_async_(mine, op=hvd.Sum)
        assert hvd.synchronize(handle) is mine and hvd.poll(handle) and mine.unique().tolist() == [3]
        columns = torch.zeros(2, 3).t()
        columns += hvd.rank()
        assert hvd.allreduce_(columns, op=hvd.Sum) is columns and columns.unique().tolist() == [1]
        assert hvd.allreduce(torch.tensor([3, -3]), op=hvd.Sum, prescale_factor=0.5).tolist() == [2, -2]
        with pytest.raises(ValueError, match="Average, Sum"):
            hvd.allreduce(mine, op="sum")
        with pytest.raises(ValueError, match="to_dense"):
            hvd.allreduce(mine.to_sparse())
        # Refused by the library: nothing has failed.
        with pytest.raises(RuntimeError, match="avg is not defined") as caught:
            hvd.allreduce(torch.ones(2, dtype=torch.bool))
        assert not isinstance(caught.value, hvd.HorovodInternalError)

    run(2, body)


def test_grouped_allreduce() -> None:
    def body() -> None:
        tensors = [torch.ones(3), torch.ones(2, 2, dtype=torch.float64), torch.full((4,), 2.0)]
        sums = hvd.grouped_allreduce(tensors, op=hvd.Sum, compression=hvd.Compression.fp16)
        assert [(t.dtype, t.unique().tolist()) for t in sums] == [(t.dtype, (2 * t).unique().tolist()) for t in tensors]
        handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)
        assert [t.unique().tolist() for t in hvd.synchronize(handle)] == [[2], [2], [4]]
        assert tensors[0][0] == 2

    run(2, body)


def test_moves() -> None:
    def body() -> None:
        rank, size = hvd.rank(), hvd.size()
        gathered = hvd.allgather(torch.full((rank + 1, 2), rank))
        assert gathered[:, 1].tolist() == [r for r in range(size) for _ in range(r + 1)]
        assert hvd.broadcast(torch.tensor([rank]), 1).item() == 1
        filled = torch.tensor([rank])
        assert hvd.synchronize(hvd.broadcast_async_(filled, 2)) is filled and filled.item() == 2
        assert hvd.alltoall(torch.arange(size) + 10 * rank).tolist() == [10 * r + rank for r in range(size)]
        splits = [r for r in range(size)]
        received, counts = hvd.alltoall(torch.full((sum(splits),), rank), splits)
        assert counts.tolist() == [rank] * size and received.tolist() == [r for r in range(size) for _ in range(rank)]
        part = hvd.reducescatter(torch.arange(5), op=hvd.Sum)
        assert part.tolist() == [[0, 3], [6, 9], [12]][rank]
        part = hvd.reducescatter(torch.ones(3), "named", hvd.Compression.fp16, prescale_factor=2, postscale_factor=3)
        assert part.tolist() == [6] and part.dtype == torch.float32
        with pytest.raises(ValueError, match="0 or more"):
            hvd.alltoall(torch.ones(4), [5, -1, 0])
        with pytest.raises(ValueError, match="equal parts"):
            hvd.alltoall(torch.ones(4))
        hvd.barrier()

    run(3, body)


def test_gradients_flow() -> None:
    def body() -> None:
        x = torch.full((2,), 2.0, requires_grad=True)
        hvd.allreduce(x * x, op=hvd.Sum).sum().backward()
        assert x.grad.tolist() == [8, 8]
        y = torch.ones(hvd.rank() + 1, requires_grad=True)
        (hvd.allgather(y) * torch.arange(3.0)).sum().backward()
        assert y.grad.tolist() == [[0], [2, 4]][hvd.rank()]
        z = torch.ones(2, requires_grad=True)
        (hvd.broadcast(z, 1) * 3).sum().backward()
        assert z.grad.tolist() == [[0, 0], [6, 6]][hvd.rank()]
        w = torch.ones(2, requires_grad=True)
        (hvd.alltoall(w) * (hvd.rank() + 1)).sum().backward()
        assert w.grad.tolist() == [1, 2]
        tensors = [torch.ones(2, requires_grad=True), torch.ones(3), torch.ones(1, dtype=int)]
        first, second, third = hvd.grouped_allreduce(tensors, op=hvd.Sum)
        assert second.tolist() == [2, 2, 2] and third.tolist() == [2] and not third.requires_grad
        (first * (hvd.rank() + 1)).sum().backward()
        assert tensors[0].grad.tolist() == [3, 3]
        v = torch.ones(3, requires_grad=True)
        (hvd.reducescatter(v) * (hvd.rank() + 2)).sum().backward()
        assert v.grad.tolist() == [1, 1, 1.5]

    run(2, body)


def test_objects() -> None:
    def body() -> None:
        assert hvd.broadcast_object({"from": hvd.rank()}, 1) == {"from": 1}
        assert hvd.allgather_object("x" * hvd.rank()) == ["", "x"]
        torch.manual_seed(hvd.rank())
        model = torch.nn.Linear(3, 2)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        weights = hvd.allgather(model.weight.detach().flatten()[None])
        assert torch.equal(weights[0], weights[1])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 if hvd.rank() == 0 else 0.7)
        if hvd.rank() == 0:
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert optimizer.state[model.weight]["step"] == 1

    run(2, body)


@pytest.mark.parametrize("joinable", (True, False))
def test_join(joinable: bool) -> None:
    def body() -> None:
        if not joinable:
            with pytest.raises(ValueError, match="join=True"):
                hvd.join()
            return
        # Rank 1 has the most data, rank 0 none.
        sums = [hvd.allreduce(torch.ones(r + 5), op=hvd.Sum)[0].item() for r in range([0, 3, 2][hvd.rank()])]
        assert hvd.join() == 1
        assert sums == [[], [2, 2, 1], [2, 2]][hvd.rank()]
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 3
        assert hvd.join() == 2

    run(3, body, join=joinable)


def test_handles_keep_their_end() -> None:
    def body() -> None:
        handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
        assert handle.synchronize() is handle.synchronize()
        failed = hvd.allreduce_async(torch.ones(3 + hvd.rank()))
        for _ in range(2):
            with pytest.raises(hvd.HorovodInternalError, match="different operations"):
                hvd.synchronize(failed)

    run(2, body)


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(12, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3)).double()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return tuple(torch.randn(16, width, generator=generator, dtype=torch.float64) for width in (12, 3))


KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


# What the first optimizer imports, ranks need not import for themselves.
KINDS["adam"]([torch.zeros(1, requires_grad=True)])


def alone(kind: str, steps: int = 4) -> list[torch.Tensor]:
    """Training of one process with the whole batch.

    Not of this one: once torch has gone backward in a process, neither it nor its forks can use devices that are
    registered later, and other tests do that.
    """

    def train(rank: int, folder: str) -> list[torch.Tensor]:
        network = model()
        optimizer = KINDS[kind](network.parameters())
        for step in range(steps):
            optimizer.zero_grad()
            inputs, targets = batch(step)
            torch.nn.functional.mse_loss(network(inputs), targets).backward()
            optimizer.step()
        return [p.detach() for p in network.parameters()]

    return ranks.fork_ranks(1, train)[0]


def distributed(kind: str, passes: int, steps: int = 4, **options) -> list[torch.Tensor]:
    """The same with a part of each batch, in `passes` backward passes."""
    network = model()
    if hvd.rank() > 0:
        with torch.no_grad():
            network[0].weight.zero_()
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        KINDS[kind](network.parameters()), network.named_parameters(), backward_passes_per_step=passes, **options
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = (whole.chunk(hvd.size())[hvd.rank()].chunk(passes) for whole in batch(step))
        for part, target in zip(inputs, targets):
            (torch.nn.functional.mse_loss(network(part), target) / passes).backward()
        optimizer.step()
    return [p.detach() for p in network.parameters()]


@pytest.mark.parametrize("n", (1, 2, 4))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ({}, {"fusion_threshold": 1}, {"groups": 2}, {"gradient_predivide_factor": 2.0}))
def test_training_as_one_process(n: int, kind: str, options: dict) -> None:
    expected = alone(kind)
    for parameters in run(n, lambda: distributed(kind, 1, **options)):
        torch.testing.assert_close(parameters, expected)


@pytest.mark.parametrize("n", (2, 4))
def test_training_with_passes_and_compression(n: int) -> None:
    expected = alone("sgd")
    for parameters in run(n, lambda: distributed("sgd", 2)):
        torch.testing.assert_close(parameters, expected)
    for parameters in run(n, lambda: distributed("sgd", 1, compression=hvd.Compression.fp16)):
        torch.testing.assert_close(parameters, expected, rtol=1e-2, atol=1e-2)


def test_optimizer_keeps_to_its_rules() -> None:
    def body() -> None:
        network = model()
        plain = torch.optim.SGD(network.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain)
        assert isinstance(optimizer, torch.optim.SGD)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        network(batch(0)[0]).sum().backward()
        with pytest.raises(AssertionError, match="between backward"):
            optimizer.zero_grad()
        with pytest.raises(AssertionError, match="more than backward_passes_per_step"):
            network(batch(0)[0]).sum().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.05
        optimizer.zero_grad()
        # A layer that a rank does not use has a gradient of zeros there.
        output = network[0](batch(0)[0]).sum()
        (output if hvd.rank() == 0 else network(batch(0)[0]).sum()).backward()
        optimizer.step()
        assert torch.equal(*hvd.allgather(network[2].weight.detach()[None]).unbind())
        with pytest.raises(ValueError, match="before DistributedOptimizer"):
            optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
        with pytest.raises(ValueError, match="lacks parameters"):
            hvd.DistributedOptimizer(plain, [("first", network[0].weight)])

    run(2, body)


def test_schedulers_of_the_optimizer_within() -> None:
    """One that was made before DistributedOptimizer goes on to set the rates, whatever is loaded."""

    def body() -> float:
        plain = torch.optim.SGD(model().parameters(), lr=0.1 + hvd.rank(), momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(plain)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer.step()
        scheduler.step()
        optimizer.load_state_dict(optimizer.state_dict())
        hvd.broadcast_optimizer_state(plain, root_rank=0)
        assert optimizer.state is plain.state
        scheduler.step()
        return optimizer.param_groups[0]["lr"]

    assert run(2, body) == [0.025, 0.025]


@pytest.mark.parametrize("kind", (torch.optim.SGD, torch.optim.LBFGS))
def test_steps_with_closures(kind: type) -> None:
    """Gradients of a closure are those of all ranks, as often as it is called."""

    def trained(inputs: torch.Tensor, targets: torch.Tensor, distribute) -> list[torch.Tensor]:
        network = model()
        optimizer = distribute(kind(network.parameters(), lr=0.1))

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(network(inputs), targets)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return [p.detach() for p in network.parameters()]

    def body() -> list[torch.Tensor]:
        return trained(*(whole.chunk(2)[hvd.rank()] for whole in batch(0)), hvd.DistributedOptimizer)

    expected = trained(*batch(0), lambda plain: plain)
    for parameters in run(2, body):
        torch.testing.assert_close(parameters, expected)


def test_uneven_data_with_join() -> None:
    def body() -> list:
        network = model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1))
        for step in range(1 + hvd.rank()):
            optimizer.zero_grad()
            network(batch(step)[0]).sum().backward()
            optimizer.step()
        last = hvd.join()
        hvd.broadcast_parameters(network.state_dict(), last)
        return [last, *(p.detach() for p in network.parameters())]

    first, second = run(2, body)
    assert first[0] == second[0] == 1
    torch.testing.assert_close(first[1:], second[1:])


def test_a_failed_rank_is_named() -> None:
    def body(rank: int, size: int) -> None:
        hvd.init()
        hvd.barrier()
        if rank == 1:
            os._exit(3)
        with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
            hvd.allreduce(torch.ones(1000))
            hvd.barrier()
        hvd.shutdown()

    ranks.run(2, body, dies=(1,))
