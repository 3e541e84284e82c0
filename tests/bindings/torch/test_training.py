"""Training on the backend: each pattern ends with the same parameters as over gloo."""

import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks

STEPS = 4


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 4))


def batch(rank: int, step: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(rows, 20, generator=generator), torch.randn(rows, 4, generator=generator)


def train(network: Callable, optimizer: torch.optim.Optimizer, rank: int, steps: int = STEPS) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = batch(rank, step)
        torch.nn.functional.mse_loss(network(inputs), targets).backward()
        optimizer.step()


def parameters(network: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def ends_as_over_gloo(body: Callable[[int, int], list[torch.Tensor]], n: int = 2) -> None:
    ours, theirs = (ranks.run(n, body, backend=backend) for backend in ("tutti", "gloo"))
    for mine, other in zip(ours, theirs):
        assert len(mine) == len(other) > 0
        for a, b in zip(mine, other):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", (2, 3))
@pytest.mark.parametrize("options", ({}, {"static_graph": True}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}))
def test_data_parallel(n: int, options: dict) -> None:
    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model(), **options)
        train(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), rank)
        return parameters(network)

    ends_as_over_gloo(body, n)


@pytest.mark.parametrize("hook", ("fp16_compress_hook", "bf16_compress_hook", "allreduce_hook", "power_sgd"))
def test_data_parallel_with_hooks(hook: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model())
        if hook == "power_sgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            network.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            # In a function of its own: DistributedDataParallel takes that for bfloat16 with NCCL alone.
            network.register_comm_hook(None, lambda state, bucket: getattr(default_hooks, hook)(state, bucket))
        train(network, torch.optim.SGD(network.parameters(), lr=0.1), rank, steps=6)
        return parameters(network)

    ends_as_over_gloo(body)


def test_sparse_gradients() -> None:
    def body(rank: int, size: int) -> list[torch.Tensor]:
        torch.manual_seed(1)
        network = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True, mode="sum"))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            words = torch.randint(50, (6, 3), generator=torch.Generator().manual_seed(10 * step + rank))
            network(words).pow(2).sum().backward()
            optimizer.step()
        return parameters(network)

    ends_as_over_gloo(body)


def test_uneven_inputs() -> None:
    from torch.distributed.algorithms.join import Join

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model())
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        with Join([network]):
            train(network, optimizer, rank, steps=STEPS + 3 * rank)
        return parameters(network)

    ends_as_over_gloo(body, 3)


def test_no_sync_and_find_unused_parameters() -> None:
    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model(), find_unused_parameters=True)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        with network.no_sync():
            network(batch(rank, 0)[0]).sum().backward()
        network(batch(rank, 1)[0]).sum().backward()
        optimizer.step()
        return parameters(network)

    ends_as_over_gloo(body)


def test_zero_redundancy_optimizer() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model())
        train(network, ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=0.01), rank)
        return parameters(network)

    ends_as_over_gloo(body, 3)


def test_fully_shard() -> None:
    from torch.distributed.fsdp import fully_shard

    def body(rank: int, size: int) -> list[torch.Tensor]:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (size,))
        network = model()
        for layer in network:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        train(network, torch.optim.Adam(network.parameters(), lr=0.01), rank)
        return [parameter.full_tensor().detach() for parameter in network.parameters()]

    ends_as_over_gloo(body)


def test_tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def body(rank: int, size: int) -> list[torch.Tensor]:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (size,))
        network = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        train(network, torch.optim.SGD(network.parameters(), lr=0.1), 0)
        return [parameter.full_tensor().detach() for parameter in network.parameters()]

    ends_as_over_gloo(body)


def test_data_and_tensor_parallel() -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def body(rank: int, size: int) -> list[torch.Tensor]:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        network = parallelize_module(model(), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(network, mesh=mesh["data"])
        train(network, torch.optim.SGD(network.parameters(), lr=0.1), mesh["data"].get_local_rank())
        return [parameter.full_tensor().detach() for parameter in network.parameters()]

    ends_as_over_gloo(body, 4)


def test_pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    def body(rank: int, size: int) -> list[torch.Tensor]:
        parts = model()
        part = torch.nn.Sequential(parts[0], parts[1]) if rank == 0 else parts[2]
        stage = PipelineStage(part, rank, size, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            inputs, targets = batch(0, step)
            schedule.step(inputs) if rank == 0 else schedule.step(target=targets)
            optimizer.step()
        return parameters(part)

    ends_as_over_gloo(body)


def test_local_sgd() -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = model()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        averager = PeriodicModelAverager(period=2, warmup_steps=1)
        for step in range(STEPS):
            optimizer.zero_grad()
            inputs, targets = batch(rank, step)
            torch.nn.functional.mse_loss(network(inputs), targets).backward()
            optimizer.step()
            averager.average_parameters(network.parameters())
        return parameters(network)

    ends_as_over_gloo(body)


def test_checkpoints(tmp_path) -> None:
    import torch.distributed.checkpoint as checkpoint

    def body(rank: int, size: int) -> list[torch.Tensor]:
        folder = os.path.join(tmp_path, dist.get_backend())
        network = DistributedDataParallel(model())
        train(network, torch.optim.SGD(network.parameters(), lr=0.1), rank)
        checkpoint.save(network.module.state_dict(), checkpoint_id=folder)
        other = model()
        state = other.state_dict()
        checkpoint.load(state, checkpoint_id=folder)
        other.load_state_dict(state)
        for a, b in zip(parameters(network), parameters(other)):
            assert torch.equal(a, b)
        return parameters(other)

    ends_as_over_gloo(body)


def test_post_local_sgd() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = DistributedDataParallel(model())
        halves = dist.new_subgroups(2)[0]
        state = post.PostLocalSGDState(process_group=None, subgroup=halves, start_localSGD_iter=3)
        network.register_comm_hook(state, post.post_localSGD_hook)
        averager = PeriodicModelAverager(period=2, warmup_steps=3)
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), averager)
        train(network, optimizer, rank, steps=8)
        return parameters(network)

    ends_as_over_gloo(body, 4)


@pytest.mark.parametrize("compiler", ("aot_eager", "inductor"))
@pytest.mark.parametrize("sharded", (False, True))
def test_compiled(compiler: str, sharded: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    def body(rank: int, size: int) -> list[torch.Tensor]:
        network = model()
        if sharded:
            for layer in (network[0], network[2], network):
                fully_shard(layer)
        else:
            network = DistributedDataParallel(network)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        train(torch.compile(network, backend=compiler), optimizer, rank)
        return [parameter.full_tensor() if sharded else parameter for parameter in parameters(network)]

    ends_as_over_gloo(body)


@pytest.mark.parametrize("compiler", ("aot_eager", "inductor"))
def test_compiled_functional_collectives(compiler: str) -> None:
    from torch.distributed import _functional_collectives as functional

    def body(rank: int, size: int) -> list[torch.Tensor]:
        def step(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
            summed = functional.all_reduce(tensor * 2, "sum", dist.group.WORLD)
            gathered = functional.all_gather_tensor(tensor + 1, 0, dist.group.WORLD)
            scattered = functional.reduce_scatter_tensor(gathered * summed[0], "avg", 0, dist.group.WORLD)
            return summed.relu(), gathered.sin(), scattered * 3

        compiled = torch.compile(step, backend=compiler, fullgraph=True)
        return [result for i in range(3) for result in compiled(batch(rank, i)[0])]

    ends_as_over_gloo(body)


def test_sharded_checkpoints_are_resumed(tmp_path) -> None:
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        network = fully_shard(model())
        return network, torch.optim.Adam(network.parameters(), lr=0.01)

    def body(rank: int, size: int) -> list[torch.Tensor]:
        folder = os.path.join(tmp_path, dist.get_backend())
        network, optimizer = made()
        train(network, optimizer, rank)
        states = get_state_dict(network, optimizer)
        saved = checkpoint.async_save(dict(zip(("model", "optimizer"), states)), checkpoint_id=folder)
        saved.result()
        train(network, optimizer, rank)
        resumed, its_optimizer = made()
        states = dict(zip(("model", "optimizer"), get_state_dict(resumed, its_optimizer)))
        checkpoint.load(states, checkpoint_id=folder)
        set_state_dict(
            resumed, its_optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"]
        )
        train(resumed, its_optimizer, rank)
        for a, b in zip(network.parameters(), resumed.parameters()):
            torch.testing.assert_close(a.full_tensor(), b.full_tensor())
        return [parameter.full_tensor().detach() for parameter in resumed.parameters()]

    ends_as_over_gloo(body)
