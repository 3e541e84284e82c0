"""The settings of a communicator."""

import dataclasses
from typing import Any

from tutti._library import ffi

_UNSET = -(2**31)
_MAGIC = 0x74757474
# Of the interface that _declarations.py describes.
_VERSION = 100
_NUMBERS = {"timeout_ms", "init_timeout_ms", "wait_notice_ms", "tcp_streams", "progress_threads"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of one communicator, as tuttiConfig_t; None leaves one to its environment variable, and its default.

    ``timeout_ms`` is the longest wait without progress in an operation, ``init_timeout_ms`` that of the whole
    initialisation. Texts are those of the environment variables.
    """

    timeout_ms: int | None = None
    init_timeout_ms: int | None = None
    wait_notice_ms: int | None = None
    tcp_streams: int | None = None
    progress_threads: int | None = None
    transports: str | None = None
    interface: str | None = None
    port_range: str | None = None
    algorithm: str | None = None
    affinity: str | None = None
    check: str | None = None
    verbs: str | None = None
    cross_memory: str | None = None


def c_config(config: Config | None) -> list[Any]:
    """A pointer to a tuttiConfig_t, and behind it the texts that it points to; NULL for None."""
    if config is None:
        return [ffi.NULL]
    made = ffi.new("tuttiConfig_t *", {"size": ffi.sizeof("tuttiConfig_t"), "magic": _MAGIC, "version": _VERSION})
    made.CTAPolicy = _UNSET
    kept = [made]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in _NUMBERS:
            setattr(made, field.name, _UNSET if value is None else value)
        elif value is not None:
            kept.append(ffi.new("char[]", value.encode()))
            setattr(made, field.name, kept[-1])
    return kept
