"""Mends what ``torch.distributed.shrink_group`` (2.9 to 2.13) makes of a group of tutti.

torch registers the new backend as gloo, for one device. ``DistributedDataParallel`` then takes it for a
``ProcessGroupGloo`` and reads its members, which ends the process. And it counts the excluded ranks, which are ranks of the
group, as global ranks.
"""

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


def install(backend_class: type, unwrapped: Any) -> None:
    """``unwrapped``: of a backend that torch may have wrapped, its own."""
    torchs_own = getattr(distributed_c10d, "_finalize_shrunk_group", None)
    if torchs_own is None:
        return

    def finalize(group_info: dict, excluded: set[int], new_backend: Any) -> dist.ProcessGroup:
        if not isinstance(new_backend, backend_class):
            return torchs_own(group_info, excluded, new_backend)
        world = distributed_c10d._world
        old = group_info["process_group"]
        devices = [one for one in old._device_types if isinstance(unwrapped(old._get_backend(one)), backend_class)]
        by_rank = sorted(world.pg_group_ranks[old].items(), key=lambda one: one[1])
        global_ranks = [one for one, rank in by_rank if rank not in excluded]
        group = torchs_own(group_info, excluded, new_backend)
        for device in devices:
            group._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, new_backend)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        if group_info["is_default_group"]:
            global_ranks = list(range(len(global_ranks)))
        world.pg_group_ranks[group] = {one: rank for rank, one in enumerate(global_ranks)}
        return group

    distributed_c10d._finalize_shrunk_group = finalize
