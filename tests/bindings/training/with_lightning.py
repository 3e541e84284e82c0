"""Lightning starts its own processes; the backend is a setting of its strategies."""

import pytorch_lightning as lightning
import torch
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

import common


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = common.model()
        self.losses: list[float] = []

    def configure_model(self) -> None:
        if options.strategy == "fully_shard" and not isinstance(self.network, torch.distributed.fsdp.FSDPModule):
            fully_shard(self.network, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        inputs, classes = batch
        loss = common.loss(self.network(inputs), classes)
        self.log("loss", loss, sync_dist=True)
        self.losses.append(self.all_gather(loss.detach()).mean().item())
        return loss

    def validation_step(self, batch, index):
        inputs, classes = batch
        self.log("validation", common.loss(self.network(inputs), classes), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def strategy():
    kwargs = {"process_group_backend": options.backend}
    if options.strategy == "ddp":
        return DDPStrategy(**kwargs)
    if options.strategy == "fsdp":
        return FSDPStrategy(**kwargs)
    return ModelParallelStrategy(**kwargs, data_parallel_size=2, tensor_parallel_size=1)


options = common.arguments("--strategy", "--folder")
batches = [common.batch(0, step) for step in range(2 * common.STEPS)]
dataset = torch.utils.data.TensorDataset(*(torch.cat(tensors) for tensors in zip(*batches)))
loader = torch.utils.data.DataLoader(dataset, batch_size=common.ROWS)
classifier = Classifier()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=strategy(),
    max_epochs=2,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    use_distributed_sampler=True,
    default_root_dir=options.folder,
)
trainer.fit(classifier, loader, loader)
losses = [*classifier.losses, trainer.callback_metrics["validation"].item()]
trainer.save_checkpoint(f"{options.folder}/last.ckpt")
common.tell(options.report, losses, [])
