"""The arguments of a call as they came and as they are now: what it has changed, and where a container of theirs stands."""

from __future__ import annotations

from typing import Any

from .. import wire
from .ends import PeerEnd
from .kept import CONTAINERS, encode_kept

MUTABLE_TAGS = frozenset({"d", "s", "B", "Q", "D", "na", "o", "io", "rs", "nm", "ay", "cm"})
DEEPEST, MOST_PLACES = 20, 5000


class CallArguments:
    """`given` and `named` are the values; the messages that they were made of are kept beside them."""

    def __init__(self, peer: PeerEnd, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.peer, self._args, self._kwargs = peer, args, kwargs
        self.given = [peer.decode(a) for a in args]
        self.named = {k: peer.decode(v) for k, v in kwargs.items()}
        self._fields = [peer.describer.fields(v) for v in self.given]

    def changed(self) -> list[list[Any]]:
        """Place and content of each argument that is not as it came."""
        self.peer.known = {}
        changed: list[list[Any]] = [
            [i, now]
            for i, (was, value) in enumerate(zip(self._args, self.given, strict=True))
            if (now := self._now(was, value)) != was
        ]
        changed += [[k, now] for k, was in self._kwargs.items() if (now := self._now(was, self.named[k])) != was]
        for i, (value, had) in enumerate(zip(self.given, self._fields, strict=True)):
            if had is not None and (now := self.peer.describer.fields(value)) != had:
                changed.append([i, {"fv": now}])
        return changed

    def _now(self, was: object, value: object) -> Any:
        if type(was) is list or (type(was) is dict and not MUTABLE_TAGS.isdisjoint(was)):
            try:
                with self.peer.describer.told.part():
                    return encode_kept(value, self.peer)
            except (RecursionError, wire.NotPlain, ValueError):
                # it cannot be sent as it is now: the test must not go on with what it was
                return {"x": 0}
        if type(was) is dict and ("t" in was or "n" in was):
            return self.peer.encode(value)
        return was

    def places(self, touched: set[Any]) -> dict[int, list[Any]]:
        """Where the containers of unchanged arguments are, so that a result that holds one of them says so."""
        places: dict[int, list[Any]] = {}
        for place, value in (*enumerate(self.given), *self.named.items()):
            if place not in touched and type(value) in CONTAINERS:
                _find(value, [place], places, 0)
        return places


def _find(value: object, path: list[Any], places: dict[int, Any], depth: int) -> None:
    if type(value) not in CONTAINERS or id(value) in places or depth > DEEPEST or len(places) > MOST_PLACES:
        return
    places[id(value)] = {"a": path}
    if type(value) is list:
        for i, item in enumerate(value):
            if type(item) in CONTAINERS:
                _find(item, [*path, i], places, depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(item) in CONTAINERS and type(key) in (str, int):
                _find(item, [*path, key], places, depth + 1)
