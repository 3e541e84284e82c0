"""DeepSpeed on the CPU: ZeRO's stages, 0 for none, and its pipelines."""

import itertools

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule

import common


def zero() -> tuple[list[float], list[torch.Tensor]]:
    network = common.model()
    config = {
        "train_micro_batch_size_per_gpu": common.ROWS,
        "zero_optimization": {"stage": int(options.stage)},
        "gradient_clipping": 1.0,
    }
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config)
    losses = []
    for step in range(common.STEPS):
        inputs, classes = common.batch(dist.get_rank(), step)
        loss = common.loss(engine(inputs), classes)
        engine.backward(loss)
        engine.step()
        losses.append(common.mean_over_ranks(loss))
    parameters = []
    for parameter in engine.module.parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            parameters.append(parameter.detach().clone())
    return losses, parameters


def pipeline() -> tuple[list[float], list[torch.Tensor]]:
    network = PipelineModule(list(common.model()), num_stages=2, loss_fn=common.loss, partition_method="uniform")
    config = {"train_micro_batch_size_per_gpu": common.ROWS, "gradient_accumulation_steps": 4}
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config)
    batches = (common.batch(0, step) for step in itertools.count())
    losses = [engine.train_batch(data_iter=batches).item() for _ in range(common.STEPS)]
    return losses, list(network.parameters())


options = common.arguments("--stage")
deepspeed.init_distributed(dist_backend=options.backend)
common.tell(options.report, *(pipeline() if options.stage == "pipeline" else zero()))
dist.destroy_process_group()
