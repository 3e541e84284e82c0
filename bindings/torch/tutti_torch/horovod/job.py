"""The job: this process's place in it."""

import dataclasses
import datetime
import os
import socket

import torch
import torch.distributed as dist

import tutti_torch
from tutti_torch.horovod.membership import Membership


@dataclasses.dataclass
class Job:
    group: dist.ProcessGroup
    # Whether the process group is init's own, and shutdown's to destroy.
    owned: bool
    joinable: bool
    timeout: datetime.timedelta | None = None
    # Of a job whose ranks can be replaced.
    membership: Membership | None = None
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    homogeneous: bool = True


_job: Job | None = None


def current() -> Job:
    if _job is None:
        raise ValueError("the job has not been initialised: call init() first")
    return _job


def init(
    timeout: datetime.timedelta | None = None, join: bool = True, store: str | None = None, ranks: int = 0
) -> None:
    """Joins the job that torchrun describes, or mpirun or srun with MASTER_ADDR and MASTER_PORT; else
    one alone.

    Where torch.distributed is initialised already, its ranks are the job's. ``join=False`` saves the announcement, a
    tiny operation, that each all-reduce is preceded by for the sake of join().

    With ``store`` the job needs no launcher, and its ranks can be replaced: ``elastic.run`` goes on without those that
    die, and with workers that come. ``ranks`` of them begin; each further one waits until elastic.run takes it. The
    store is a file that does not exist yet and that all hosts share, or the HOST:PORT of a TCPStore. It must outlive
    the job.
    """
    global _job
    if _job is not None:
        return
    if store is not None:
        if dist.is_initialized():
            raise ValueError("init(store=...) makes the process group itself: do not call init_process_group before")
        _enter(Membership(store, ranks, timeout or dist.default_pg_timeout), timeout, join)
        return
    owned = not dist.is_initialized()
    if owned:
        _init_process_group(timeout)
    group = dist.group.WORLD if owned else dist.new_group(backend="tutti", timeout=timeout)
    _job = Job(group, owned, join, timeout)
    _find_places(_job)


def _enter(membership: Membership, timeout: datetime.timedelta | None, join: bool) -> None:
    """The process group of the current generation."""
    global _job
    place = membership.place
    dist.init_process_group(
        "tutti", store=membership.group_store(), rank=place.rank, world_size=place.size, timeout=timeout
    )
    _job = Job(dist.group.WORLD, True, join, timeout, membership)
    _find_places(_job)


def agree(done: bool) -> bool:
    """Whether all ranks that live are done. All of them call it, also after an operation has failed."""
    return bool(tutti_torch.agree(int(done), current().group))


def renew(failure: Exception | None) -> None:
    """Replaces the process group by one without the ranks that have died, and with the workers that wait. All ranks that
    live call it after agree(). Raises the failure of an operation if no rank has died."""
    old = current()
    dead = tutti_torch.failed(old.group)
    if failure is not None and not dead:
        raise failure
    living = [one for one in range(old.group.size()) if one not in dead]
    shutdown()
    old.membership.renew(living)
    _enter(old.membership, old.timeout, old.joinable)


# The variables for ranks of launchers other than torchrun.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("TUTTI_RANK", "TUTTI_WORLD_SIZE"),
)


def _init_process_group(timeout: datetime.timedelta | None) -> None:
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        dist.init_process_group("tutti", timeout=timeout)
        return
    for rank_name, size_name in _LAUNCHERS:
        if rank_name in os.environ and size_name in os.environ:
            place = {"rank": int(os.environ[rank_name]), "world_size": int(os.environ[size_name])}
            if place["world_size"] == 1:
                break
            if rank_name == "SLURM_PROCID" and "SLURM_STEP_ID" not in os.environ:
                raise ValueError(
                    f"{size_name} says {place['world_size']} ranks, but sbatch or salloc has started this process: "
                    "start the ranks with srun, or with torchrun"
                )
            if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
                raise ValueError(f"{rank_name} is set, but not where ranks meet: set MASTER_ADDR and MASTER_PORT")
            dist.init_process_group("tutti", timeout=timeout, **place)
            return
    else:
        if "PMIX_RANK" in os.environ:
            raise ValueError(
                "PMIX_RANK is set, but not how many ranks there are: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
            )
    dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)


def _find_places(job: Job) -> None:
    """Ranks of one host are those of one agent of torchrun, or of one host name."""
    hosts: list[str] = [""] * job.group.size()
    dist.all_gather_object(hosts, os.environ.get("GROUP_RANK", socket.gethostname()), group=job.group)
    seen: dict[str, int] = {}
    local_ranks = []
    for host in hosts:
        local_ranks.append(seen.get(host, 0))
        seen[host] = local_ranks[-1] + 1
    me = job.group.rank()
    alike = [other for other, local in enumerate(local_ranks) if local == local_ranks[me]]
    job.local_rank, job.local_size = local_ranks[me], seen[hosts[me]]
    job.cross_rank, job.cross_size = alike.index(me), len(alike)
    job.homogeneous = len(set(seen.values())) == 1


def gather_numbers(mine: int) -> list[int]:
    """The numbers of all ranks, by rank."""
    everyones = torch.empty(size(), dtype=torch.int64)
    dist.all_gather(list(everyones.split(1)), torch.tensor([mine]), group=current().group)
    return everyones.tolist()


def shutdown() -> None:
    """Leaves the job."""
    global _job
    if _job is None:
        return
    left, _job = _job, None
    if left.owned:
        dist.destroy_process_group()
    else:
        dist.destroy_process_group(left.group)


def is_initialized() -> bool:
    return _job is not None


def rank() -> int:
    return current().group.rank()


def size() -> int:
    return current().group.size()


def local_rank() -> int:
    """This process's number among those of its host."""
    return current().local_rank


def local_size() -> int:
    return current().local_size


def cross_rank() -> int:
    """The host's number among those that have a process with this local rank."""
    return current().cross_rank


def cross_size() -> int:
    return current().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of processes."""
    return current().homogeneous
