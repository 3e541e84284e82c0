"""Names that callers give: members of enumerations, as tutti.Op.SUM or "sum", and what a wrong name probably means."""

import difflib
import enum
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tutti.errors import InvalidArgument

Member = TypeVar("Member", bound=enum.Enum)


def bare(name: str) -> str:
    """The name without underscores and hyphens, in lower case: one for "all_reduce", "all-reduce" and "Allreduce"."""
    return name.replace("_", "").replace("-", "").lower()


def meant(name: str, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """"; is KNOWN meant?" with what was probably meant by `name`, or nothing. `aliases`: names of other libraries."""
    by_bare = {bare(one): one for one in known}
    found = (aliases or {}).get(name) or by_bare.get(bare(name))
    if found is None:
        close = difflib.get_close_matches(bare(name), by_bare, 1)
        found = by_bare[close[0]] if close else None
    return f"; is {found} meant?" if found else ""


def member(kind: type[Member], given: object, what: str, otherwise: str = "") -> Member:
    """The member of `kind` that a caller has given for `what`, or has named; case, "_" and "-" do not count."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str):
        for one in kind:
            if bare(given) == bare(one.name):
                return one
    listed = ", ".join(repr(one.name.lower()) for one in kind)
    raise InvalidArgument(f"{what} is {given!r}: give one of tutti.{kind.__name__} or its name ({listed}){otherwise}")
