"""Type hints of the solution: `list[int]`, `Optional[str]`, type variables, made here as the test's own would be."""

from __future__ import annotations

import typing
from typing import Any

from ...wire import Parts
from ..ends import Connection
from .handles import text


def alias(link: Connection, body: Parts) -> Any:
    """`list[int]` and the like."""
    name, args = text(body[0]), tuple(link.decode(a) for a in body[1])
    try:
        return _subscripted(name, args)
    except Exception:  # noqa: BLE001 - made there of what is no hint here: a test that does not look must not find out
        return name


def _subscripted(name: str, args: tuple[Any, ...]) -> Any:
    if name == "|":
        return typing.Union[args]  # noqa: UP007 - of arguments known at run time
    if name in ("Any", "Union"):
        return typing.Any if name == "Any" else typing.Union[args]  # noqa: UP007
    if name.startswith("typing."):
        found = getattr(typing, name[7:])
        return found[args] if args else found
    return args[0][args[1:]]


def variable(link: Connection, body: Parts) -> Any:
    """A type variable, the same one for a number."""
    number, name, bound, constraints, (is_covariant, is_contravariant) = body
    found = link.mirrors.kept.get(number)
    if found is None:
        found = link.mirrors.kept[number] = typing.TypeVar(
            text(name),
            *[link.decode(c) for c in constraints],
            bound=link.decode(bound),
            covariant=bool(is_covariant),
            contravariant=bool(is_contravariant),
        )
        link.mirrors.driven[id(found)] = number
    return found
