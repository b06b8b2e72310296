"""What the messages of the solution mean here."""

from __future__ import annotations

from typing import Any

from .. import wire
from ..wire import Parts
from ..writing import hides
from .ends import Connection
from .lendable import chance, stream
from .mirrored import hints

MEANINGS = {
    "hc": "cls",
    "en": "member",
    "fl": "flags",
    "nt": "named",
    "np": "plain",
    "g": "standard",
    "co": "coroutine",
    "ge": "generator",
}


def resolved(link: Connection, tag: str, body: Any) -> Any:
    """What a message of the solution stands for, where it is no plain value.

    Raises:
        BadWire: no such tag, or what stands under it is not as its kind must be.
    """
    if tag == "h":
        return link.mirrors.handle(body)
    if tag == "a":
        return _alias(link, body)
    if tag == "co" and type(body) is int:
        return link.lender.lent[body]
    if tag == "L":
        return link.live.found(*body)
    if tag in MEANINGS:
        return getattr(link.mirrors, MEANINGS[tag])(body)
    if tag in ("ga", "tv"):
        return (hints.alias if tag == "ga" else hints.variable)(link, body)
    if tag == "x":
        return link.raiser.exception(body, "value")
    if tag in ("ag", "cb", "fn", "it", "ob", "tc", "tx"):
        return link.lender.lent[body]
    if tag in ("io", "rs"):
        return stream(body) if tag == "io" else chance(body)
    if tag == "o":
        return shared_object(link, *body)
    raise wire.BadWire(tag)


def _alias(link: Connection, path: Parts) -> Any:
    """A container of an argument of the running call, or inside one."""
    args, kwargs = link.statements.arguments[-1]
    # of the call that runs now; what it names was sent there by the test itself
    found = kwargs[path[0]] if type(path[0]) is str else args[path[0]]
    for step in path[1:]:
        # only into plain containers: indexing anything else would run code by the solution's choice of key
        if type(found) not in (list, dict):
            raise wire.BadWire("bad place")
        found = found[step]
    return found


def shared_object(link: Connection, name: str, attributes: Parts) -> Any:
    """An object of a class that the prompt defines: rebuilt from its attributes with the trusted class.

    Raises:
        BadWire: the prompt has no such class, or an attribute is one that its class hides.
    """
    if name not in link.shared:
        raise wire.BadWire("not a class of the prompt")
    cls = link.namespace[name]
    # attributes alone come from the solution, the class and its methods are the prompt's
    made = cls.__new__(cls)
    for key, value in attributes:
        if type(key) is not str or not key.isidentifier() or key.startswith("__") or hides(cls, key):
            raise wire.BadWire("bad attribute")
        made.__dict__[key] = link.decode(value)
    return made
