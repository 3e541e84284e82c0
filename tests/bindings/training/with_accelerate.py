"""Accelerate: its own setting of the backend, and a group that exists before it."""

import datetime

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

import common

options = common.arguments("--group")
if options.group == "first":
    dist.init_process_group(options.backend)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
else:
    kwargs = InitProcessGroupKwargs(backend=options.backend, timeout=datetime.timedelta(seconds=60))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[kwargs], gradient_accumulation_steps=2)

rank = accelerator.process_index
batches = [common.batch(0, step) for step in range(2 * common.STEPS)]
dataset = torch.utils.data.TensorDataset(*(torch.cat(tensors) for tensors in zip(*batches)))
loader = torch.utils.data.DataLoader(dataset, batch_size=common.ROWS)
network = common.model()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
assert isinstance(network, torch.nn.parallel.DistributedDataParallel)

losses = []
for _ in range(2):
    for inputs, classes in loader:
        with accelerator.accumulate(network):
            loss = common.loss(network(inputs), classes)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather_for_metrics(loss.detach()).mean().item())
assert accelerator.reduce(torch.tensor(rank + 1.0)).item() == 3
assert len(accelerator.gather_for_metrics([rank], use_gather_object=True)) == 2
accelerator.wait_for_everyone()
common.tell(options.report, losses, list(accelerator.unwrap_model(network).parameters()))
accelerator.end_training()
