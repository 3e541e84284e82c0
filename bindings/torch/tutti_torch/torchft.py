"""tutti for torchft's ``Manager``: training that goes on with the replicas that live.

``ProcessGroupTutti`` replaces torchft's ``ProcessGroupGloo``, and on CUDA devices its ``ProcessGroupNCCL``::

    manager = torchft.Manager(pg=tutti_torch.torchft.ProcessGroupTutti(), ...)
"""

import datetime

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType
from torchft.process_group import ProcessGroupWrapper

import tutti_torch

__all__ = ["ProcessGroupTutti"]


class ProcessGroupTutti(ProcessGroupWrapper):
    """A process group that torchft makes anew, with other ranks, when replicas die or come back.

    ``timeout``: of the connection to the store, of the wait for the other ranks, and of each operation. If a rank dies,
    the operations of the others fail within a second, long before it. All operations of ``torch.distributed`` work on
    the CPU, also those that torchft's group of gloo refuses (``reduce_scatter``).
    """

    def __init__(self, timeout: datetime.timedelta = datetime.timedelta(seconds=60)) -> None:
        super().__init__(timeout)

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        backend = tutti_torch.ProcessGroupTutti(store, rank, world_size, self._timeout)
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, backend)
        return group

    def errored(self) -> Exception | None:
        """On CUDA devices the failure of an operation, whose work does not raise it. On the CPU the work does."""
        if self._pg is None or not torch.cuda.is_available():
            return None
        torch.cuda.current_stream().synchronize()
        error = self._pg._get_backend(torch.device("cuda")).get_error()
        if error == ErrorType.SUCCESS:
            return None
        return RuntimeError(f"tutti: an operation has failed, and all others are aborted ({error.name})")

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Of the next operations, unless it is longer than before: then from the next group on."""
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802  torchft's name
        return "torchft-tutti"
