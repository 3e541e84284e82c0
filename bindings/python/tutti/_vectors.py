"""Collectives with blocks of different sizes.

Counts and displacements are in items along the first axis (of a one-dimensional array: in elements), with an entry for
each rank. Without displacements the blocks lie one behind the other. Results with displacements need ``out``, since
there may be gaps, which are left as they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tutti._arrays import Array, Buffer, as_array, pointer, row_elements, rows, target, with_rows, writable
from tutti._collectives import Collectives
from tutti._dtypes import DTypeLike
from tutti._library import ffi, lib
from tutti.errors import InvalidArgument
from tutti.operators import Op, Operator
from tutti.streams import Stream


class VectorCollectives(Collectives):
    """The collectives with counts of a communicator."""

    def all_gather_v(
        self,
        buffer: Buffer,
        counts: Sequence[int],
        out: Buffer | None = None,
        *,
        displacements: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """The buffers of all ranks; rank r's has counts[r] items. `counts` is the same on all ranks."""
        send = as_array(buffer, "buffer")
        self._check_own(send, self._counts(counts, "counts"))
        result = self._gathered(send, counts, out, displacements)
        row = row_elements(send)
        source, sink = pointer(send), pointer(result)
        self._call(
            lib.tuttiAllGatherV,
            stream,
            (source, sink),
            source,
            send.size,
            sink,
            _sizes(counts, row),
            _sizes(displacements, row),
            self._datatype(send, dtype),
        )
        return result

    def gather_v(
        self,
        buffer: Buffer,
        counts: Sequence[int] | None = None,
        root: int = 0,
        out: Buffer | None = None,
        *,
        displacements: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array | None:
        """On `root` the buffers of all ranks; rank r's has counts[r] items. The others get None and need no counts."""
        send = as_array(buffer, "buffer")
        source, sink, result = pointer(send), ffi.NULL, None
        sizes = offsets = ffi.NULL
        if self.rank == root:
            self._check_own(send, self._counts(counts, "counts"))
            result = self._gathered(send, self._counts(counts, "counts"), out, displacements)
            sink = pointer(result)
            sizes, offsets = _sizes(counts, row_elements(send)), _sizes(displacements, row_elements(send))
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
        counts: Sequence[int] | None = None,
        root: int = 0,
        out: Buffer | None = None,
        *,
        displacements: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part of root's `buffer`, counts[rank] items. The others give None for `buffer`, and `out`."""
        source = sizes = offsets = ffi.NULL
        if self.rank == root:
            send = as_array(buffer, "buffer")
            known = self._counts(counts, "counts")
            self._check_extent(send, known, displacements, "buffer", exact=displacements is None)
            result = target(out, with_rows(send, known[root]), send.dtype)
            source = pointer(send)
            sizes, offsets = _sizes(known, row_elements(send)), _sizes(displacements, row_elements(send))
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
        counts: Sequence[int],
        out: Buffer | None = None,
        op: Op | Operator = Op.SUM,
        *,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """This rank's part, counts[rank] items, of the elements of all ranks combined by `op`."""
        send = as_array(buffer, "buffer")
        known = self._counts(counts, "counts")
        self._check_extent(send, known, None, "buffer", exact=True)
        result = target(out, with_rows(send, known[self.rank]), send.dtype)
        datatype = self._datatype(send, dtype)
        source, sink = pointer(send), pointer(result)
        self._call(
            lib.tuttiReduceScatterV,
            stream,
            (source, sink, op),
            source,
            sink,
            _sizes(known, row_elements(send)),
            datatype,
            self._operator(op, send, datatype),
        )
        return result

    def all_to_all_v(
        self,
        buffer: Buffer,
        send_counts: Sequence[int],
        receive_counts: Sequence[int],
        out: Buffer | None = None,
        *,
        send_displacements: Sequence[int] | None = None,
        receive_displacements: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """send_counts[r] items of `buffer` go to rank r; receive_counts[r] items of the result come from rank r."""
        send = as_array(buffer, "buffer")
        self._check_extent(
            send,
            self._counts(send_counts, "send_counts"),
            send_displacements,
            "buffer",
            exact=send_displacements is None,
        )
        self._counts(receive_counts, "receive_counts")
        result = self._gathered(send, receive_counts, out, receive_displacements)
        row = row_elements(send)
        source, sink = pointer(send), pointer(result)
        self._call(
            lib.tuttiAlltoAllV,
            stream,
            (source, sink),
            source,
            _sizes(send_counts, row),
            _sizes(send_displacements, row),
            sink,
            _sizes(receive_counts, row),
            _sizes(receive_displacements, row),
            self._datatype(send, dtype),
        )
        return result

    def _gathered(
        self, send: Array, counts: Sequence[int], out: Buffer | None, displacements: Sequence[int] | None
    ) -> Array:
        """Where blocks of these counts, of items as those of `send`, are received."""
        if displacements is None:
            return target(out, with_rows(send, sum(counts)), send.dtype)
        if out is None:
            raise InvalidArgument("displacements need out=, as there may be gaps between the blocks")
        result = writable(out, "out")
        if result.dtype != send.dtype or result.shape[1:] != send.shape[1:]:
            raise InvalidArgument(
                f"out has items of {result.dtype} and shape {result.shape[1:]}, and buffer of {send.dtype} and shape "
                f"{send.shape[1:]}"
            )
        self._check_extent(result, counts, displacements, "out", exact=False)
        return result

    def _counts(self, counts: Sequence[int] | None, name: str) -> Sequence[int]:
        if counts is None or len(counts) != self.size or any(count < 0 for count in counts):
            raise InvalidArgument(f"{name} is {counts}: give the items, 0 or more, of each of {self.size} ranks")
        return counts

    def _check_own(self, send: Array, counts: Sequence[int]) -> None:
        if rows(send) != counts[self.rank]:
            raise InvalidArgument(
                f"buffer, of shape {send.shape}, has {rows(send)} items along its first axis, and counts[{self.rank}], "
                f"this rank's, is {counts[self.rank]}"
            )

    def _check_extent(
        self, array: Array, counts: Sequence[int], displacements: Sequence[int] | None, name: str, *, exact: bool
    ) -> None:
        """The library cannot know how long the arrays are."""
        if displacements is None:
            end = sum(counts)
        else:
            self._counts(displacements, "displacements")
            end = max(at + count for at, count in zip(displacements, counts, strict=True))
        if rows(array) < end or (exact and rows(array) != end):
            raise InvalidArgument(
                f"{name}, of shape {array.shape}, has {rows(array)} items along its first axis; the blocks of the "
                f"ranks {'are' if exact else 'reach to'} {end}"
            )


def _sizes(counts: Sequence[int] | None, row: int) -> Any:
    """As the library takes them: in elements."""
    if counts is None:
        return ffi.NULL
    return ffi.new("size_t[]", [int(count) * row for count in np.asarray(counts).tolist()])
