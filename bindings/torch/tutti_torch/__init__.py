"""tutti as a backend of torch.distributed.

The backend ``tutti`` is for tensors on the CPU and on CUDA devices. ``import torch`` registers its name, and the first
group that uses it loads this module. Importing this module registers it, too::

    torch.distributed.init_process_group("tutti")          # or "cpu:tutti,cuda:nccl"

Settings are tutti's environment variables (``TUTTI_TRANSPORTS``, ``TUTTI_INTERFACE``, ...); the timeout is that of the
process group. Ranks meet in the group's store.
"""

import atexit
import datetime
import os
import pickle
from typing import Any

import torch
import torch.distributed as dist

try:
    from tutti_torch import _C
except ImportError as error:
    if "libtutti.so" not in str(error):
        raise
    raise ImportError(
        f"{error}. tutti_torch uses the library of the wheel tutti or of an installation: install the wheel tutti of the "
        "same release into this environment, or set LD_LIBRARY_PATH to the folder of libtutti.so.0"
    ) from error
from tutti_torch import flight, shrinking

try:
    from torch._C._distributed_c10d import _ProcessGroupWrapper
except ImportError:  # torch was built without gloo
    _ProcessGroupWrapper = ()

__all__ = [
    "ProcessGroupTutti",
    "agree",
    "contributors",
    "dump_flight_record",
    "failed",
    "flight_record",
    "monitored_barrier",
    "version",
]

# The backend of one process group, as ``ProcessGroupTutti(store, rank, size, timeout)``: for programs that make process
# groups themselves, without ``init_process_group``. The timeout is a ``datetime.timedelta``, by default torch's. The
# store is for this group alone: a ``PrefixStore`` for each group makes one of a store that several groups use.
ProcessGroupTutti = _C.ProcessGroupTutti


def version() -> str:
    """The version of the tutti library that is loaded, as "0.1.0"."""
    code = _C.version()
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _backend(group: dist.ProcessGroup | None) -> Any:
    group = group or dist.group.WORLD
    if isinstance(group, ProcessGroupTutti):
        return group
    found = [_unwrapped(group._get_backend(device)) for device in group._device_types]
    for backend in found:
        if isinstance(backend, ProcessGroupTutti):
            return backend
    names = sorted({backend.name() for backend in found})
    raise ValueError(f"the group's backend is {', '.join(names)}: give a group whose backend is tutti")


def _unwrapped(backend: Any) -> Any:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper over each backend, which compares what ranks call."""
    while isinstance(backend, _ProcessGroupWrapper):
        backend = backend.wrapped_pg
    return backend


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: datetime.timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """A barrier that names the ranks which have not come in time.

    As ``torch.distributed.monitored_barrier``, which refuses every backend but gloo. ``timeout`` is the group's if it is
    not given. Raises RuntimeError on all ranks that have come; it names the first rank that has not, or, with
    ``wait_all_ranks``, all of them.
    """
    _backend(group).monitored_barrier(timeout, wait_all_ranks)


def agree(flag: int, group: dist.ProcessGroup | None = None) -> int:
    """The bitwise AND of the flags of all ranks of the group that live, the same on all: 0 to 2**64 - 1.

    All ranks that live call it, also after an operation has failed; ``failed`` then lists the ranks that have died.
    """
    return _backend(group).agree(flag)


def failed(group: dist.ProcessGroup | None = None) -> list[int]:
    """The ranks of the group that have died, ascending, as found by the calls of ``agree`` and of
    ``torch.distributed.distributed_c10d.shrink_group`` so far: the same on all ranks."""
    return _backend(group).failed()


def contributors(group: dist.ProcessGroup | None = None) -> list[int]:
    """The ranks whose data is in the group's last successful collective, ascending: all, except in survivor mode
    (TUTTI_SURVIVORS=on)."""
    return _backend(group).contributors()


def flight_record() -> dict[str, Any]:
    """What this process's groups have called lately, in the layout of torch's flight recorder (version 2.10).

    ``entries`` has the last TORCH_FR_BUFFER_SIZE operations (2000 by default), the oldest first, with their ``state``:
    ``scheduled``, ``started``, ``completed`` or ``failed``. Names begin with ``tutti:``, and sizes are those of the
    tensors that were passed; ``dump_flight_record`` writes what torch's analyser expects.
    """
    groups = {}
    # pg_group_ranks also has a group that this process is not in, under a number.
    for group, name in dist.distributed_c10d._world.pg_names.items():
        ranks = sorted(dist.distributed_c10d._world.pg_group_ranks[group])
        groups[str(name)] = {"name": str(name), "desc": group.group_desc, "ranks": str(ranks)}
    entries = _C.flight_record()
    return {
        "version": "2.10",
        "comm_lib_version": f"tutti {version()}",
        "pg_config": groups,
        "pg_status": flight.status(entries),
        "entries": entries,
    }


def dump_flight_record(path: str) -> None:
    """Writes the flight record to a file for ``torchfrtrace``: one file per rank, whose name ends with the rank."""
    with open(path, "wb") as file:
        pickle.dump(flight.for_analyser(flight_record()), file)


def _dump_after_failure(prefix: str) -> None:
    path = f"{prefix}{dist.get_rank() if dist.is_initialized() else os.environ.get('RANK', 0)}"
    dump_flight_record(f"{path}.part")
    os.replace(f"{path}.part", path)


def _create(options: Any, own: Any) -> Any:
    return _C.create(options, own)


# Threads of the backend do not touch what is Python's any more when the interpreter ends.
atexit.register(_C.exit_begins)
dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
shrinking.install(ProcessGroupTutti, _unwrapped)
