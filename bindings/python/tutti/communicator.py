"""Communicators: how they are made, asked and ended."""

import enum
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tutti import operators
from tutti._arrays import Array, Buffer, as_array, pointer, writable
from tutti._dtypes import DTypeLike
from tutti._library import check, ffi, lib
from tutti._names import meant, member
from tutti._vectors import VectorCollectives
from tutti.config import Config, c_config
from tutti.errors import Error, InvalidArgument, InvalidUsage, error_of
from tutti.streams import Stream

UNIQUE_ID_BYTES = 128
# The names in mpi4py and torch.distributed, if they differ in more than spelling.
_OTHER_NAMES = {
    "bcast": "broadcast",
    "Bcast": "broadcast",
    "Get_rank": "rank",
    "get_rank": "rank",
    "Get_size": "size",
    "get_size": "size",
    "get_world_size": "size",
    "world_size": "size",
    "Split": "split",
    "Free": "destroy",
    "Abort": "abort",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


class Collective(enum.IntEnum):
    """The collectives, for Communicator.explain."""

    ALL_REDUCE = 0
    REDUCE_SCATTER = 1
    ALL_GATHER = 2
    BROADCAST = 3
    REDUCE = 4
    BARRIER = 5
    GATHER = 6
    SCATTER = 7
    ALL_TO_ALL = 8
    SCAN = 9
    EXSCAN = 10
    ALL_GATHER_V = 11
    REDUCE_SCATTER_V = 12
    ALL_TO_ALL_V = 13
    GATHER_V = 14
    SCATTER_V = 15


def unique_id() -> bytes:
    """The id of a new communicator, whose ranks this process waits for: pass it to them by any means.

    It holds the job's secret: any process that has it can join.
    """
    made = ffi.new("tuttiUniqueId *")
    check(lib.tuttiGetUniqueId(made))
    return bytes(ffi.buffer(made))


def _c_unique_id(unique_id: bytes) -> Any:
    if len(unique_id) != UNIQUE_ID_BYTES:
        raise InvalidArgument(f"a unique id has {UNIQUE_ID_BYTES} bytes, and this one {len(unique_id)}")
    copied = ffi.new("tuttiUniqueId *")
    ffi.buffer(copied)[:] = unique_id
    return copied


class Communicator(VectorCollectives):
    """A rank of a job. One thread at a time calls its collectives.

    As a context manager it is destroyed at the end, or aborted if the block raises: the other ranks then raise
    tutti.Aborted.
    """

    def __init__(self, handle: Any) -> None:
        """Takes a tuttiComm_t: use from_environment, from_unique_id, in_process or split."""
        super().__init__()
        self.handle = handle
        self._close = weakref.finalize(self, lib.tuttiCommDestroy, handle)
        number = ffi.new("int *")
        check(lib.tuttiCommUserRank(handle, number))
        self.rank: int = number[0]
        check(lib.tuttiCommCount(handle, number))
        self.size: int = number[0]
        # Why there is no handle any more.
        self._ended = ""

    # Type checkers know the names that there are.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Python calls it for an unknown name: raises an error that names the most similar known one."""
            known = [one for one in dir(type(self)) if not one.startswith("_")] + ["rank", "size"]
            hint = "" if name.startswith("_") else meant(name, known, _OTHER_NAMES)
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}{self._ended and ', ' + self._ended}>"

    @classmethod
    def from_environment(cls, config: Config | None = None) -> "Communicator":
        """Joins the job that the launcher describes: torchrun, mpirun, mpiexec, srun, or TUTTI_RANK and the like."""
        handle, settings = ffi.new("tuttiComm_t *"), c_config(config)
        check(lib.tuttiCommInitEnv(handle, settings[0]))
        return cls(handle[0])

    @classmethod
    def from_unique_id(cls, unique_id: bytes, rank: int, size: int, config: Config | None = None) -> "Communicator":
        """Joins the communicator of a unique id as `rank` of `size`; returns when all ranks have joined."""
        handle, settings, copied = ffi.new("tuttiComm_t *"), c_config(config), _c_unique_id(unique_id)
        check(lib.tuttiCommInitRankConfig(handle, size, copied[0], rank, settings[0]))
        return cls(handle[0])

    @classmethod
    def in_process(cls, size: int, config: Config | None = None) -> list["Communicator"]:
        """All communicators of a job whose ranks are threads of this process: each is used by one thread."""
        handles, settings = ffi.new("tuttiComm_t[]", max(size, 1)), c_config(config)
        check(lib.tuttiCommInitAllConfig(handles, size, ffi.NULL, settings[0]))
        return [cls(handle) for handle in handles]

    def split(self, color: int | None, key: int = 0, config: Config | None = None) -> "Communicator | None":
        """A communicator of the ranks with the same `color` >= 0, ordered by `key`; None where that is None or -1."""
        handle, settings = ffi.new("tuttiComm_t *"), c_config(config)
        self._check(lib.tuttiCommSplit(self.handle, -1 if color is None else color, key, handle, settings[0]))
        return None if handle[0] == ffi.NULL else type(self)(handle[0])

    def shrink(self, exclude: Iterable[int] = (), config: Config | None = None, abort: bool = False) -> "Communicator":
        """A communicator of the ranks that live and are not in `exclude`, in the order of their ranks.

        These ranks call it with the same `exclude`; it works also after a failure. abort=True: it first ends the
        operations of this communicator, as revoke().
        """
        ranks = list(exclude)
        handle, settings, excluded = ffi.new("tuttiComm_t *"), c_config(config), ffi.new("int[]", ranks)
        check(lib.tuttiCommShrink(self.handle, excluded, len(ranks), handle, settings[0], int(abort)))
        return type(self)(handle[0])

    def grow(self, size: int, unique_id: bytes | None = None, config: Config | None = None) -> "Communicator":
        """A communicator of `size` ranks: those of this one that live, which keep their ranks, and new ranks.

        One rank of this communicator calls unique_id(), sends the id to the new ranks, and passes it here; the others
        may pass None. The new ranks call from_unique_id() with any free rank, such as that of a rank that has died.
        """
        handle, settings = ffi.new("tuttiComm_t *"), c_config(config)
        copied = ffi.NULL if unique_id is None else _c_unique_id(unique_id)
        check(lib.tuttiCommGrow(self.handle, size, copied, -1, handle, settings[0]))
        return type(self)(handle[0])

    def agree(self, flag: int) -> int:
        """The bitwise AND of the flags, of 64 bits, of all ranks that live: the same on all of them.

        The ranks that live call it; it works also after a failure.
        """
        agreed = ffi.new("uint64_t *", flag)
        check(lib.tuttiCommAgree(self.handle, agreed))
        return int(agreed[0])

    def failed(self) -> list[int]:
        """The ranks that have died, as found by agree(), shrink() and grow() so far. Waits for no rank."""
        return self._list(lib.tuttiCommGetFailed)

    def contributors(self) -> list[int]:
        """The ranks whose data the last collective contains: all, except in survivor mode. Waits for no rank."""
        return self._list(lib.tuttiCommGetContributors)

    def _list(self, call: Callable[..., int]) -> list[int]:
        """The ranks that a function of the library writes."""
        ranks, count = ffi.new("int[]", self.size), ffi.new("int *")
        check(call(self.handle, ranks, self.size, count))
        return list(ranks[0 : count[0]])

    def unique_id(self) -> bytes:
        """As tutti.unique_id(), with the settings of this communicator, for ranks that come later."""
        made = ffi.new("tuttiUniqueId *")
        check(lib.tuttiCommGetUniqueId(self.handle, made))
        return bytes(ffi.buffer(made))

    def explain(self, collective: Collective | str, nbytes: int) -> str:
        """Which algorithm and transports serve a collective on `nbytes` bytes, as "ring over shm+tcp".

        The collective is one of tutti.Collective, or its name ("all_reduce"). Where it has a block for each rank,
        the bytes are those of all blocks together.
        """
        text, number = ffi.new("char[]", 256), member(Collective, collective, "collective")
        check(lib.tuttiCommExplain(self.handle, number, nbytes, text, len(text)))
        found: bytes = ffi.string(text)
        return found.decode()

    def error(self) -> Error | None:
        """What has failed the communicator, if anything has. Does not block."""
        result = ffi.new("tuttiResult_t *")
        check(lib.tuttiCommGetAsyncError(self.handle, result))
        if result[0] == 0:
            return None
        return error_of(result[0], ffi.string(lib.tuttiGetLastError(self.handle)).decode(errors="replace"))

    def finalize(self) -> None:
        """Waits for queued operations and tells the peers that this rank leaves."""
        self._check(lib.tuttiCommFinalize(self.handle))

    def destroy(self) -> None:
        """Finalizes and frees the communicator; raises Mismatch if ranks have called different collectives."""
        if self._close.alive:
            result = lib.tuttiCommDestroy(self.handle)
            if result != InvalidUsage.code:  # which has changed nothing
                self._close.detach()
                self._ended = "destroyed"
            check(result)

    def abort(self) -> None:
        """Ends all operations at once, here and on the peers, which raise Aborted, and frees the communicator."""
        if self._close.detach():
            self._ended = "aborted"
            check(lib.tuttiCommAbort(self.handle))

    def revoke(self) -> None:
        """Ends all operations here and on the peers, as abort(), but frees nothing."""
        check(lib.tuttiCommRevoke(self.handle, 0))

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.destroy()
        else:
            self.abort()

    def operator(self, function: operators.OperatorFunction, *, commutative: bool = True) -> operators.Operator:
        """A reduction operator of a function of two arrays of equal length, of which the first is the lower ranks'.

        The function must be associative, and returns the combined elements; the arrays are valid until it returns.
        commutative=False: the values of the ranks are combined in their order. If it raises, the communicator is
        revoked, and the call raises Aborted from that.
        """
        return operators.of_function(self, function, commutative)

    def pre_mul_sum(self, scalar: Any, dtype: DTypeLike) -> operators.Operator:
        """The sum of each rank's elements, of `dtype`, times the rank's own `scalar`."""
        return operators.of_scalar(self, scalar, dtype)

    def send(self, buffer: Buffer, peer: int, *, dtype: DTypeLike | None = None, stream: Stream | None = None) -> None:
        """Sends `buffer` to rank `peer`. Ranks that send to each other do it in a group: with tutti.group(): ..."""
        array = as_array(buffer, "buffer")
        memory = pointer(array)
        self._call(lib.tuttiSend, stream, (memory,), memory, array.size, self._datatype(array, dtype), peer)

    def recv(self, out: Buffer, peer: int, *, dtype: DTypeLike | None = None, stream: Stream | None = None) -> Array:
        """Fills `out` with what rank `peer` sends, which has as many elements; returns it."""
        array = writable(out, "out")
        memory = pointer(array)
        self._call(lib.tuttiRecv, stream, (memory,), memory, array.size, self._datatype(array, dtype), peer)
        return array
