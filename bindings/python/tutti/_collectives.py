"""Collectives with blocks of equal sizes.

Blocks of ranks lie one behind the other along the first axis. Results are returned, in ``out`` where that is given
(which may be the buffer itself: in place), else in a new array. Without ``stream`` a call returns when the operation is
complete on this rank; with one it queues the operation, and the arrays are filled, and free to be changed, when the
stream has been synchronized.
"""

from tutti._arrays import Array, Buffer, as_array, pointer, row_elements, rows, target, with_rows, writable
from tutti._calls import Calls
from tutti._dtypes import DTypeLike
from tutti._library import ffi, lib
from tutti.errors import InvalidArgument
from tutti.operators import Op, OpLike
from tutti.streams import Stream


class Collectives(Calls):
    """The collectives of a communicator: all ranks call the same ones in the same order."""

    def _reduction(
        self,
        function: object,
        buffer: Buffer,
        out: Buffer | None,
        op: OpLike,
        dtype: DTypeLike | None,
        stream: Stream | None,
    ) -> Array:
        send = as_array(buffer, "buffer")
        result = target(out, send.shape, send.dtype)
        datatype = self._datatype(send, dtype)
        source, sink = pointer(send), pointer(result)
        number = self._operator(op, send, datatype)
        self._call(function, stream, (source, sink, op), source, sink, send.size, datatype, number)
        return result

    def all_reduce(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The elements of all ranks combined by `op`, with the same bits on every rank."""
        return self._reduction(lib.tuttiAllReduce, buffer, out, op, dtype, stream)

    def scan(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The elements of ranks 0 to this one combined by `op`."""
        return self._reduction(lib.tuttiScan, buffer, out, op, dtype, stream)

    def exscan(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The elements of the ranks before this one combined by `op`. What rank 0 gets has no meaning."""
        return self._reduction(lib.tuttiExscan, buffer, out, op, dtype, stream)

    def reduce(
        self,
        buffer: Buffer,
        root: int = 0,
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array | None:
        """On `root` the elements of all ranks combined by `op`; None on the other ranks, where `out` is ignored."""
        send = as_array(buffer, "buffer")
        result = target(out, send.shape, send.dtype) if self.rank == root else None
        datatype = self._datatype(send, dtype)
        source, sink = pointer(send), ffi.NULL if result is None else pointer(result)
        number = self._operator(op, send, datatype)
        self._call(lib.tuttiReduce, stream, (source, sink, op), source, sink, send.size, datatype, number, root)
        return result

    def broadcast(
        self, buffer: Buffer, root: int = 0, *, dtype: DTypeLike | None = None, stream: Stream | None = None
    ) -> Array:
        """Fills `buffer` with root's; returns it. On root it may be read-only."""
        array = as_array(buffer, "buffer") if self.rank == root else writable(buffer, "buffer")
        memory = pointer(array)
        datatype = self._datatype(array, dtype)
        self._call(lib.tuttiBcast, stream, (memory,), memory, array.size, datatype, root)
        return array

    def all_gather(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The buffers of all ranks, one behind the other. In place `buffer` is this rank's part of `out`."""
        send = as_array(buffer, "buffer")
        result = target(out, with_rows(send, rows(send) * self.size), send.dtype)
        source, sink = pointer(send), pointer(result)
        self._call(lib.tuttiAllGather, stream, (source, sink), source, sink, send.size, self._datatype(send, dtype))
        return result

    def gather(
        self,
        buffer: Buffer,
        root: int = 0,
        out: Buffer | None = None,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array | None:
        """On `root` the buffers of all ranks, one behind the other; None on the others, where `out` is ignored."""
        send = as_array(buffer, "buffer")
        result = target(out, with_rows(send, rows(send) * self.size), send.dtype) if self.rank == root else None
        source, sink = pointer(send), ffi.NULL if result is None else pointer(result)
        self._call(lib.tuttiGather, stream, (source, sink), source, sink, send.size, self._datatype(send, dtype), root)
        return result

    def scatter(
        self,
        buffer: Buffer | None,
        root: int = 0,
        out: Buffer | None = None,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part of root's `buffer`. The other ranks give None for `buffer`, and `out`."""
        if self.rank == root:
            send = as_array(buffer, "buffer")
            block = (self._block(send), *send.shape[1:])
            result, source = target(out, block, send.dtype), pointer(send)
        else:
            result, source = writable(self._needed(out, root), "out"), ffi.NULL
        sink = pointer(result)
        self._call(
            lib.tuttiScatter, stream, (source, sink), source, sink, result.size, self._datatype(result, dtype), root
        )
        return result

    def reduce_scatter(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part of the elements of all ranks combined by `op`."""
        send = as_array(buffer, "buffer")
        result = target(out, (self._block(send), *send.shape[1:]), send.dtype)
        datatype = self._datatype(send, dtype)
        source, sink = pointer(send), pointer(result)
        number = self._operator(op, send, datatype)
        self._call(lib.tuttiReduceScatter, stream, (source, sink, op), source, sink, result.size, datatype, number)
        return result

    def all_to_all(
        self,
        buffer: Buffer,
        out: Buffer | None = None,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """Part r of `buffer` goes to rank r; part r of the result comes from rank r."""
        send = as_array(buffer, "buffer")
        result = target(out, send.shape, send.dtype)
        count = self._block(send) * row_elements(send)
        source, sink = pointer(send), pointer(result)
        self._call(lib.tuttiAlltoAll, stream, (source, sink), source, sink, count, self._datatype(send, dtype))
        return result

    def barrier(self, *, stream: Stream | None = None) -> None:
        """Is complete on a rank after every rank has called it."""
        self._call(lib.tuttiBarrier, stream, ())

    def _block(self, send: Array) -> int:
        """How many items along the first axis each rank's part has."""
        if send.ndim == 0 or send.shape[0] % self.size:
            raise InvalidArgument(
                f"buffer, of shape {send.shape}, cannot be divided into {self.size} equal parts along its first axis: "
                "see the calls with counts (scatter_v, reduce_scatter_v, all_to_all_v)"
            )
        return rows(send) // self.size

    def _needed(self, out: Buffer | None, root: int) -> Buffer:
        if out is None:
            raise InvalidArgument(f"rank {self.rank} needs out=, as only rank {root}, the root, knows the shape")
        return out
