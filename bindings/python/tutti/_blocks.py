"""The blocks of the ranks in an array: how many items each has along the first axis, and where it lies."""

import operator
from collections.abc import Iterable
from typing import Any

from tutti._arrays import Array, row_elements, rows
from tutti._library import ffi
from tutti.errors import InvalidArgument


class Blocks:
    """Both have an entry for each of `size` ranks; without displacements blocks lie one behind the other."""

    def __init__(
        self, counts: Iterable[int] | None, displacements: Iterable[int] | None, size: int, name: str = "counts"
    ) -> None:
        self.counts = _numbers(counts, size, name)
        self.displacements = None if displacements is None else _numbers(displacements, size, "displacements")

    @property
    def end(self) -> int:
        """How many items an array needs to hold all blocks."""
        if self.displacements is None:
            return sum(self.counts)
        return max(at + count for at, count in zip(self.displacements, self.counts, strict=True))

    def check_own(self, send: Array, rank: int) -> None:
        if rows(send) != self.counts[rank]:
            raise InvalidArgument(
                f"buffer, of shape {send.shape}, has {rows(send)} items along its first axis, and counts[{rank}], this "
                f"rank's, is {self.counts[rank]}"
            )

    def check_within(self, array: Array, name: str) -> None:
        """The library cannot know how long an array is. Without displacements the blocks are all of it."""
        if rows(array) < self.end or (self.displacements is None and rows(array) != self.end):
            raise InvalidArgument(
                f"{name}, of shape {array.shape}, has {rows(array)} items along its first axis; the blocks of the "
                f"ranks {'have' if self.displacements is None else 'reach to'} {self.end}"
            )

    def sizes(self, array: Array) -> Any:
        """The counts as the library takes them, in elements of an array with such items."""
        return _elements(self.counts, array)

    def offsets(self, array: Array) -> Any:
        return ffi.NULL if self.displacements is None else _elements(self.displacements, array)


def _numbers(values: Iterable[int] | None, size: int, name: str) -> list[int]:
    try:
        numbers = [operator.index(value) for value in (() if values is None else values)]
    except TypeError:
        numbers = []
    if len(numbers) != size or min(numbers) < 0:
        raise InvalidArgument(f"{name} is {values}: give a number of items, 0 or more, for each of {size} ranks")
    return numbers


def _elements(numbers: list[int], array: Array) -> Any:
    row = row_elements(array)
    return ffi.new("size_t[]", [number * row for number in numbers])
