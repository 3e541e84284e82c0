"""Ray Train starts the processes, and makes the group of its TorchConfig's backend in them. If one of them dies, it
starts all again, and the training goes on from the last checkpoint."""

import os
import pathlib
import signal
import tempfile

import ray
import torch
import torch.distributed as dist
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model

import common

EPOCHS = 3


def train(settings: dict) -> None:
    batches = [common.batch(0, step) for step in range(2 * common.STEPS)]
    dataset = torch.utils.data.TensorDataset(*(torch.cat(tensors) for tensors in zip(*batches)))
    loader = prepare_data_loader(torch.utils.data.DataLoader(dataset, batch_size=common.ROWS))
    network = prepare_model(common.model())
    assert isinstance(network, torch.nn.parallel.DistributedDataParallel)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses: list[float] = []
    first_epoch = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(pathlib.Path(folder, "state.pt"))
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        losses, first_epoch = state["losses"], state["epoch"] + 1
    for epoch in range(first_epoch, EPOCHS):
        loader.sampler.set_epoch(epoch)
        for step, (inputs, classes) in enumerate(loader):
            # The last report may be lost with the process, the one before it not.
            if settings["dies"] and checkpoint is None and dist.get_rank() == 1 and (epoch, step) == (2, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss = common.loss(network(inputs), classes)
            loss.backward()
            optimizer.step()
            losses.append(common.mean_over_ranks(loss))
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses, "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, pathlib.Path(folder, "state.pt"))
            saved = Checkpoint.from_directory(folder) if dist.get_rank() == 0 else None
            ray.train.report({"loss": losses[-1]}, checkpoint=saved)
    path = pathlib.Path(settings["report"])
    common.tell(path, losses, list(network.parameters()), first_epoch=first_epoch)


if __name__ == "__main__":
    options = common.arguments("--folder", "--dies")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    trainer = TorchTrainer(
        train,
        train_loop_config={"report": str(options.report), "dies": options.dies == "yes"},
        torch_config=TorchConfig(backend=options.backend, timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=f"{options.backend}-{options.dies}",
            storage_path=options.folder,
            failure_config=FailureConfig(max_failures=1 if options.dies == "yes" else 0),
        ),
    )
    result = trainer.fit()
    assert result.error is None, result.error
    ray.shutdown()
