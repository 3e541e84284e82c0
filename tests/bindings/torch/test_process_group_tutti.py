"""A backend object that the program makes itself, without init_process_group."""

import datetime
import os

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import ranks
import tutti_torch
from test_collectives import check, of


def made(folder: str, rank: int, size: int, name: str = "store", **options):
    store = dist.FileStore(os.path.join(folder, name), size)
    return tutti_torch.ProcessGroupTutti(store, rank, size, datetime.timedelta(seconds=60), **options)


def test_a_backend_that_the_program_makes_itself() -> None:
    def body(rank: int, folder: str) -> None:
        backend = made(folder, rank, 3)
        assert (backend.rank(), backend.size(), backend.name()) == (rank, 3, "tutti")
        tensor = of(rank, 100)
        backend.allreduce([tensor]).wait()
        check(tensor, sum(of(o, 100) for o in range(3)))
        assert backend.get_error() == ErrorType.SUCCESS
        if rank == 0:
            backend.send([tensor], 1, 0).wait()
        elif rank == 1:
            backend.recv([tensor.zero_()], 0, 0).wait()
            check(tensor, sum(of(o, 100) for o in range(3)))
        tutti_torch.monitored_barrier(backend)
        backend.shutdown()
        with pytest.raises(RuntimeError, match="rank 3 is not one of 3 ranks"):
            made(folder, 3, 3)
        assert not dist.is_initialized()

    ranks.fork_ranks(3, body)


def test_a_backend_in_a_process_group_that_is_made_anew_after_a_death() -> None:
    """As torchft makes them."""

    def reconfigured(folder: str, name: str, rank: int, size: int) -> dist.ProcessGroup:
        store = dist.PrefixStore(name, dist.FileStore(os.path.join(folder, "store"), 3))
        group = dist.ProcessGroup(store, rank, size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        backend = tutti_torch.ProcessGroupTutti(store, rank, size, timeout=datetime.timedelta(seconds=60))
        backend._set_sequence_number_for_group()
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        return group

    def body(rank: int, folder: str) -> None:
        group = reconfigured(folder, "first", rank, 3)
        tensor = torch.ones(4)
        group.allreduce([tensor]).wait()
        assert tensor[0].item() == 3
        if rank == 2:
            os._exit(3)
        with pytest.raises(RuntimeError, match="Connection closed by peer: .*rank 2"):
            for _ in range(2):
                group.allreduce([tensor]).wait()
        assert group._get_backend(torch.device("cpu")).get_error() == ErrorType.REMOTE_ERROR
        group.abort()
        group = reconfigured(folder, "second", rank, 2)
        tensor = torch.ones(4)
        group.allreduce([tensor]).wait()
        assert tensor[0].item() == 2
        group.shutdown()

    ranks.fork_ranks(3, body, dies=(2,))
