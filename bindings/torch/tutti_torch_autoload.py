"""Registers the backend when torch is imported, so that its name is all that a program has to know.

torch finds register() by the entry point ``torch.backends``, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set. It is a
separate module so that a program that never asks for the backend does not load it.
"""

from typing import Any

import torch.distributed as dist


def register() -> None:
    if dist.is_available():
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, own: Any) -> Any:
    import tutti_torch  # registers itself in place of this

    return tutti_torch._create(options, own)
