"""Collectives with blocks of different sizes.

Counts and displacements are in items along the first axis (of a one-dimensional array: in elements), with an entry for
each rank. Without displacements the blocks lie one behind the other. Results with displacements need ``out``, since
there may be gaps, which are left as they are.
"""

from collections.abc import Iterable

from tutti._arrays import Array, Buffer, as_array, pointer, target, with_rows, writable
from tutti._blocks import Blocks
from tutti._collectives import Collectives
from tutti._dtypes import DTypeLike
from tutti._library import ffi, lib
from tutti.errors import InvalidArgument
from tutti.operators import Op, OpLike
from tutti.streams import Stream


class VectorCollectives(Collectives):
    """The collectives with counts of a communicator."""

    def all_gather_v(
        self,
        buffer: Buffer,
        counts: Iterable[int],
        out: Buffer | None = None,
        *,
        displacements: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The buffers of all ranks; rank r's has counts[r] items. `counts` is the same on all ranks."""
        send, blocks = as_array(buffer, "buffer"), Blocks(counts, displacements, self.size)
        blocks.check_own(send, self.rank)
        result = _gathered(send, blocks, out)
        source, sink = pointer(send), pointer(result)
        self._call(
            lib.tuttiAllGatherV,
            stream,
            (source, sink),
            source,
            send.size,
            sink,
            blocks.sizes(send),
            blocks.offsets(send),
            self._datatype(send, dtype),
        )
        return result

    def gather_v(
        self,
        buffer: Buffer,
        counts: Iterable[int] | None = None,
        root: int = 0,
        out: Buffer | None = None,
        *,
        displacements: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array | None:
        """On `root` the buffers of all ranks; rank r's has counts[r] items. The others get None and need no counts."""
        send = as_array(buffer, "buffer")
        source, result = pointer(send), None
        sink = sizes = offsets = ffi.NULL
        if self.rank == root:
            blocks = Blocks(counts, displacements, self.size)
            blocks.check_own(send, root)
            result = _gathered(send, blocks, out)
            sink, sizes, offsets = pointer(result), blocks.sizes(send), blocks.offsets(send)
        self._call(
            lib.tuttiGatherV,
            stream,
            (source, sink),
            source,
            send.size,
            sink,
            sizes,
            offsets,
            self._datatype(send, dtype),
            root,
        )
        return result

    def scatter_v(
        self,
        buffer: Buffer | None,
        counts: Iterable[int] | None = None,
        root: int = 0,
        out: Buffer | None = None,
        *,
        displacements: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part of root's `buffer`, counts[rank] items. The others give None for `buffer`, and `out`."""
        source = sizes = offsets = ffi.NULL
        if self.rank == root:
            send, blocks = as_array(buffer, "buffer"), Blocks(counts, displacements, self.size)
            blocks.check_within(send, "buffer")
            result = target(out, with_rows(send, blocks.counts[root]), send.dtype)
            source, sizes, offsets = pointer(send), blocks.sizes(send), blocks.offsets(send)
        else:
            result = writable(self._needed(out, root), "out")
        sink = pointer(result)
        self._call(
            lib.tuttiScatterV,
            stream,
            (source, sink),
            source,
            sizes,
            offsets,
            sink,
            result.size,
            self._datatype(result, dtype),
            root,
        )
        return result

    def reduce_scatter_v(
        self,
        buffer: Buffer,
        counts: Iterable[int],
        out: Buffer | None = None,
        op: OpLike = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part, counts[rank] items, of the elements of all ranks combined by `op`."""
        send, blocks = as_array(buffer, "buffer"), Blocks(counts, None, self.size)
        blocks.check_within(send, "buffer")
        result = target(out, with_rows(send, blocks.counts[self.rank]), send.dtype)
        datatype = self._datatype(send, dtype)
        source, sink = pointer(send), pointer(result)
        number = self._operator(op, send, datatype)
        self._call(
            lib.tuttiReduceScatterV, stream, (source, sink, op), source, sink, blocks.sizes(send), datatype, number
        )
        return result

    def all_to_all_v(
        self,
        buffer: Buffer,
        send_counts: Iterable[int],
        receive_counts: Iterable[int],
        out: Buffer | None = None,
        *,
        send_displacements: Iterable[int] | None = None,
        receive_displacements: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """send_counts[r] items of `buffer` go to rank r; receive_counts[r] items of the result come from rank r."""
        send = as_array(buffer, "buffer")
        sent = Blocks(send_counts, send_displacements, self.size, "send_counts")
        received = Blocks(receive_counts, receive_displacements, self.size, "receive_counts")
        sent.check_within(send, "buffer")
        result = _gathered(send, received, out)
        source, sink = pointer(send), pointer(result)
        self._call(
            lib.tuttiAlltoAllV,
            stream,
            (source, sink),
            source,
            sent.sizes(send),
            sent.offsets(send),
            sink,
            received.sizes(send),
            received.offsets(send),
            self._datatype(send, dtype),
        )
        return result


def _gathered(send: Array, blocks: Blocks, out: Buffer | None) -> Array:
    """Where blocks of items as those of `send` are received."""
    if blocks.displacements is None:
        return target(out, with_rows(send, blocks.end), send.dtype)
    if out is None:
        raise InvalidArgument("displacements need out=, as there may be gaps between the blocks")
    result = writable(out, "out")
    if result.dtype != send.dtype or result.shape[1:] != send.shape[1:]:
        raise InvalidArgument(
            f"out has items of {result.dtype} and shape {result.shape[1:]}, and buffer of {send.dtype} and shape "
            f"{send.shape[1:]}"
        )
    blocks.check_within(result, "out")
    return result
