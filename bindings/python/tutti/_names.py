"""Members of enumerations, which callers may give by name: tutti.Op.SUM or "sum"."""

import enum
from typing import TypeVar

from tutti.errors import InvalidArgument

Member = TypeVar("Member", bound=enum.Enum)


def member(kind: type[Member], given: object, what: str, otherwise: str = "") -> Member:
    """The member of `kind` that a caller has given for `what`, or has named in lower case."""
    if isinstance(given, kind):
        return given
    names = [one.name.lower() for one in kind]
    if isinstance(given, str) and given in names:
        return kind[given.upper()]
    listed = ", ".join(map(repr, names))
    raise InvalidArgument(f"{what} is {given!r}: give one of tutti.{kind.__name__} or its name ({listed}){otherwise}")
