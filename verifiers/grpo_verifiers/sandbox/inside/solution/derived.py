"""Classes that a test program derives from the solution's, made here as well, with methods that call the test's."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .ends import PeerEnd


def made_class(peer: PeerEnd, name: str, parents: list[Any], members: list[list[Any]], options: dict[str, Any]) -> type:
    """A class that the test program derives from the solution's, or one of its own that stands beside it."""
    body: dict[str, Any] = {"__module__": "solution"}
    for key, how, value in members:
        made = peer.decode(value)
        if how in ("function", "class", "property"):
            made = _method(made)
        body[key] = {"class": classmethod, "static": staticmethod, "property": property}.get(how, lambda m: m)(made)
    bases = tuple(_beside(peer, *p["tb"]) if "tb" in p else peer.decode(p) for p in parents)
    return types.new_class(name, bases, options, lambda space: space.update(body))


def _beside(peer: PeerEnd, number: int, name: str, parents: list[Any], members: list[list[Any]]) -> type:
    """A class of the test among the bases of one that derives from the solution's, made once."""
    found = peer.beside.get(number)
    if found is None:
        found = peer.beside[number] = made_class(peer, name, parents, members, {})
    return found


def _method(lent: Callable[..., Any]) -> Any:
    def method(*args: object, **kwargs: object) -> Any:
        return lent(*args, **kwargs)

    return method
