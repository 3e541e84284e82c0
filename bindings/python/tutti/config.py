"""The settings of a communicator."""

import dataclasses
from typing import Any

from tutti._library import ffi
from tutti._names import meant

_UNSET = -(2**31)
_MAGIC = 0x74757474
# Of the interface that _declarations.py describes.
_VERSION = 100
# The names of these fields in other libraries. Times there are often in seconds.
_OTHER_NAMES = {
    "timeout": "timeout_ms (in milliseconds)",
    "timeout_s": "timeout_ms (in milliseconds)",
    "init_timeout": "init_timeout_ms (in milliseconds)",
    "socket_ifname": "interface",
    "ifname": "interface",
    "algo": "algorithm",
    "ports": "port_range",
}
_NUMBERS = {name for name, field in ffi.typeof("tuttiConfig_t").fields if field.type is ffi.typeof("int")}


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
    straggler_ms: int | None = None
    transports: str | None = None
    interface: str | None = None
    port_range: str | None = None
    algorithm: str | None = None
    affinity: str | None = None
    check: str | None = None
    verbs: str | None = None
    cross_memory: str | None = None
    survivors: str | None = None
    encrypt: str | None = None

    def __new__(cls, *_values: object, **given: object) -> "Config":
        """Refuses an unknown name, and suggests the field that was probably meant."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise TypeError(f"Config has no field {name!r}{meant(name, names, _OTHER_NAMES)}")
        return super().__new__(cls)


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
