"""Arguments that a call has changed and returned: until the commit another object, and yet the same one to `is`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ends import Connection


class ReturnedArguments:
    """What such calls returned, each with the argument it stands for."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.originals: dict[int, tuple[Any, Any]] = {}

    def value(self, reply: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a call returned; of a changed argument, what that one will be at the commit, so that it cannot be another."""
        message = reply[1]
        if type(message) is not dict or "tw" not in message:
            return self.link.decode(message)
        place = message["tw"]
        value = self.link.decode(next(now for changed, now in reply[2] if changed == place))
        self.originals[id(value)] = value, kwargs[place] if type(place) is str else args[place]
        return value

    def is_same(self, one: object, other: object) -> bool:
        """`is`, as it would be in one process."""
        first, second = (self.originals.get(id(v), (v, v))[1] for v in (one, other))
        return first is second
