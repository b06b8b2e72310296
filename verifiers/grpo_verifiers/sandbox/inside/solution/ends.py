"""The connection to a test program as the parts of the solution's side see it."""

from __future__ import annotations

import types
from typing import Any, Protocol

from ..exchange import Exchange


class PeerEnd(Protocol):
    """What the describer and lent things need of the peer."""

    exchange: Exchange
    module: types.ModuleType
    objects: list[Any]
    numbers: dict[int, int]
    lent: dict[int, Any]
    back: dict[int, Any]
    beside: dict[int, type]
    kept: Any
    describer: Any
    known: dict[int, Any]

    def number(self, value: object) -> int:
        """The number of an object."""

    def encode(self, value: object) -> Any:
        """A value as the test program gets it."""

    def decode(self, message: object) -> Any:
        """A value of the test program."""

    def ask(self, message: object) -> Any:
        """A question to the test program."""

    def say(self, message: object) -> None:
        """One message to the test program."""
