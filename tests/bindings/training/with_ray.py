"""Ray Train starts the processes, and makes the group of its TorchConfig's backend in them."""

import pathlib

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model

import common


def train(settings: dict) -> None:
    batches = [common.batch(0, step) for step in range(2 * common.STEPS)]
    dataset = torch.utils.data.TensorDataset(*(torch.cat(tensors) for tensors in zip(*batches)))
    loader = prepare_data_loader(torch.utils.data.DataLoader(dataset, batch_size=common.ROWS))
    network = prepare_model(common.model())
    assert isinstance(network, torch.nn.parallel.DistributedDataParallel)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, classes in loader:
            optimizer.zero_grad()
            loss = common.loss(network(inputs), classes)
            loss.backward()
            optimizer.step()
            losses.append(common.mean_over_ranks(loss))
        ray.train.report({"loss": losses[-1]})
    common.tell(pathlib.Path(settings["report"]), losses, list(network.parameters()))


if __name__ == "__main__":
    options = common.arguments("--folder")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    trainer = TorchTrainer(
        train,
        train_loop_config={"report": str(options.report)},
        torch_config=TorchConfig(backend=options.backend, timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=options.backend, storage_path=options.folder),
    )
    result = trainer.fit()
    assert result.error is None, result.error
    ray.shutdown()
