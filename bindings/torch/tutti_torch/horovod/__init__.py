"""Horovod's interface over tutti: ``import tutti_torch.horovod as hvd`` in place of ``import horovod.torch as hvd``.

Start it with torchrun. Names, defaults and results are Horovod's. What differs: ranks call operations in the same order
(``name`` is for the reader alone), and ``init(store=...)`` takes the place of Horovod's elastic launcher (``elastic``).
"""

from tutti_torch.horovod import elastic
from tutti_torch.horovod.built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from tutti_torch.horovod.compression import Compression
from tutti_torch.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
from tutti_torch.horovod.gathers import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    reducescatter,
    reducescatter_async,
)
from tutti_torch.horovod.handles import Handle, poll, synchronize
from tutti_torch.horovod.job import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from tutti_torch.horovod.joining import join
from tutti_torch.horovod.objects import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from tutti_torch.horovod.optimizer import DistributedOptimizer
from tutti_torch.horovod.reductions import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Handle",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "rocm_built",
    "shutdown",
    "size",
    "synchronize",
]

_ABSENT = {
    "Adasum": "give op=Average",
    "ProcessSet": "there are no process sets: torch.distributed.new_group makes groups",
    "add_process_set": "there are no process sets: torch.distributed.new_group makes groups",
    "remove_process_set": "there are no process sets: torch.distributed.new_group makes groups",
    "global_process_set": "there are no process sets: torch.distributed.group.WORLD is all ranks",
    "SyncBatchNorm": "torch.nn.SyncBatchNorm.convert_sync_batchnorm makes what works here",
    "sparse_allreduce_async": "give tensor.to_dense() to allreduce_async",
    "start_timeline": "torch.profiler shows the operations",
    "stop_timeline": "torch.profiler shows the operations",
    "run": "torchrun starts ranks; hvd.elastic.run is the decorator",
}


def __getattr__(name: str) -> object:
    if name in _ABSENT:
        raise AttributeError(f"tutti_torch.horovod has no {name}: {_ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
