"""What the messages of the test program mean here: its functions, classes, exceptions, objects, and the solution's own by number."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from .. import wire
from ..wire import Parts
from .ends import PeerEnd
from .lent import (
    FromTest,
    LentCallable,
    lent_class,
    lent_coroutine,
    lent_error,
    lent_function,
    lent_object,
    lent_stream,
)


def named(module: str, name: str) -> Any:
    """Something of the standard library."""
    found: Any = __import__(module, fromlist=["x"]) if module != "builtins" else builtins
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _text_file(peer: PeerEnd, body: Parts) -> Any:
    import io

    kind, content, at = body
    made: Any = io.StringIO(content, "") if kind == "text" else io.BytesIO(bytes.fromhex(content))
    made.seek(at)
    return made


def _chance(peer: PeerEnd, body: Parts) -> Any:
    import random

    made = random.Random()
    made.setstate((body[0], tuple(body[1]), body[2]))
    return made


def _shared(peer: PeerEnd, body: Parts) -> Any:
    name, attributes = body
    cls: Any = peer.module.__dict__[name]
    # without its `__init__`, which would run the prompt's code a second time
    made = cls.__new__(cls)
    for key, value in attributes:
        object.__setattr__(made, key, peer.decode(value))
    return made


def _callable(peer: PeerEnd, body: Parts) -> Any:
    made = LentCallable(peer, "cb", body[0])
    for name, value in zip(("__name__", "__qualname__", "__doc__"), body[1:], strict=True):
        object.__setattr__(made, name, value)
    return made


MEANINGS: dict[str, Callable[[PeerEnd, Any], Any]] = {
    "k": lambda peer, body: peer.objects[body],
    "L": lambda peer, body: peer.objects[body],
    "io": _text_file,
    "rs": _chance,
    "mod": lambda peer, body: __import__(body, fromlist=["x"]),
    "g": lambda peer, body: named(*body),
    "en": lambda peer, body: peer.objects[body[0]][body[1]],
    "fl": lambda peer, body: peer.objects[body[0]](body[1]),
    "nt": lambda peer, body: peer.objects[body[0]]._make([peer.decode(v) for v in body[1]]),
    "sc": lambda peer, body: peer.module.__dict__[body],
    "o": _shared,
}
# what is lent is made once for each number
LENT: dict[str, Callable[[PeerEnd, Any], Any]] = {
    "cb": _callable,
    "fn": lent_function,
    "it": lambda peer, body: FromTest(peer, "it", body[0]),
    "ag": lent_stream,
    "co": lent_coroutine,
    "ob": lent_object,
    "tc": lent_class,
    "tx": lent_error,
}


def received(peer: PeerEnd, tag: str, body: Parts) -> Any:
    """The thing behind a message that is no plain value; the same one for a number that is known.

    Raises:
        BadWire: no such tag.
    """
    if tag in MEANINGS:
        return MEANINGS[tag](peer, body)
    if tag not in LENT:
        raise wire.BadWire(tag)
    number = body[0]
    found = peer.lent.get(number)
    if found is None:
        # one object for a number, so that `is` means here what it means there
        found = peer.lent[number] = LENT[tag](peer, body)
        peer.back[id(found)] = {tag: number}
    return found
