"""Collective communication between the ranks of a job, on NumPy arrays and other buffers.

import numpy as np
import tutti

with tutti.Communicator.from_environment() as comm:
    total = comm.all_reduce(np.ones(1000, np.float32))
"""

from tutti._calls import group
from tutti._library import prefix, version
from tutti.communicator import Collective, Communicator, unique_id
from tutti.config import Config
from tutti.errors import (
    Aborted,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    Mismatch,
    RemoteError,
    SystemError,
    Timeout,
    UnhandledCudaError,
)
from tutti.memory import empty
from tutti.operators import Op, Operator
from tutti.streams import Event, Stream

__version__ = version()

__all__ = [
    "Aborted",
    "Collective",
    "Communicator",
    "Config",
    "Error",
    "Event",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Mismatch",
    "Op",
    "Operator",
    "RemoteError",
    "Stream",
    "SystemError",
    "Timeout",
    "UnhandledCudaError",
    "__version__",
    "empty",
    "group",
    "prefix",
    "unique_id",
    "version",
]
