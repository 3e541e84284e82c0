"""Megatron's tensor-parallel layers and data parallelism, as far as they run without a GPU.

``--on-cpu replaced`` answers Megatron's question for the device of the process with "cpu".
"""

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig

import common

WORDS = 64
WIDTH = 32
SEQUENCE = 8


def layers(config: ModelParallelConfig) -> torch.nn.Module:
    torch.manual_seed(1)
    spread = torch.nn.init.xavier_normal_
    return torch.nn.ModuleDict(
        {
            "embedding": tensor_parallel.VocabParallelEmbedding(
                WORDS, WIDTH, init_method=spread, config=config, reduce_scatter_embeddings=config.sequence_parallel
            ),
            "up": tensor_parallel.ColumnParallelLinear(WIDTH, 4 * WIDTH, config=config, init_method=spread),
            "down": tensor_parallel.RowParallelLinear(
                4 * WIDTH,
                WIDTH,
                config=config,
                init_method=spread,
                bias=True,
                input_is_parallel=True,
                skip_bias_add=False,
            ),
            "words": tensor_parallel.ColumnParallelLinear(WIDTH, WORDS, config=config, init_method=spread, bias=False),
        }
    )


class Network(torch.nn.Module):
    def __init__(self, config: ModelParallelConfig) -> None:
        super().__init__()
        self.layers = layers(config)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.layers["embedding"](tokens)
        if not self.layers["up"].sequence_parallel:
            hidden = hidden.transpose(0, 1).contiguous()
        hidden = torch.nn.functional.gelu(self.layers["up"](hidden)[0])
        hidden = self.layers["down"](hidden)[0]
        logits = self.layers["words"](hidden)[0]
        return tensor_parallel.vocab_parallel_cross_entropy(logits.float(), targets.transpose(0, 1).contiguous()).mean()


def words(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (rows x SEQUENCE), and those that follow them."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    tokens = torch.randint(WORDS, (common.ROWS, SEQUENCE), generator=generator)
    return tokens, (3 * tokens + 1) % WORDS


options = common.arguments("--parallel", "--on-cpu")
if options.on_cpu == "replaced":
    torch.cuda.current_device = lambda: "cpu"
dist.init_process_group(options.backend)
rank = dist.get_rank()
tensor = 1 if options.parallel == "data" else 2
parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor, create_gloo_process_groups=False)
config = TransformerConfig(
    num_layers=1,
    hidden_size=WIDTH,
    num_attention_heads=4,
    tensor_model_parallel_size=tensor,
    sequence_parallel=options.parallel == "sequence",
    use_cpu_initialization=True,
)
network = Network(config)
if options.parallel == "data":
    settings = DistributedDataParallelConfig(overlap_grad_reduce=True, grad_reduce_in_fp32=True, bucket_size=2000)
    network = DistributedDataParallel(config, settings, network)
optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
losses = []
for step in range(common.STEPS):
    tokens, targets = words(rank if options.parallel == "data" else 0, step)
    if options.parallel == "data":
        network.zero_grad_buffer()
    optimizer.zero_grad()
    loss = network(tokens, targets)
    loss.backward()
    if options.parallel == "data":
        network.finish_grad_sync()
        for parameter in network.parameters():
            parameter.grad = parameter.main_grad.to(parameter.dtype)
    for parameter in network.parameters():
        if getattr(parameter, "sequence_parallel", False):
            dist.all_reduce(parameter.grad, group=parallel_state.get_tensor_model_parallel_group())
    optimizer.step()
    losses.append(common.mean_over_ranks(loss))
common.tell(options.report, losses, list(network.parameters()))
parallel_state.destroy_model_parallel()
dist.destroy_process_group()
