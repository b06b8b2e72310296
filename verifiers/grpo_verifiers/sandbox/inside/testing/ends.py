"""The connection to a solution as the parts of the testing side see it, and how it ends."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from ..exchange import Exchange


class Stopped(BaseException):
    """The solution is gone, or raised what is no Exception: no test can pass any more."""


class TimeIsUp(BaseException):
    """The test program used up its CPU time."""


class SolutionExit(SystemExit):
    """The solution called sys.exit inside a call; never taken for the end of the test program."""


class Connection(Protocol):
    """What handles, mirrors and lent things need of the link."""

    trusted: bool
    untrusted: bool
    native: bool
    namespace: dict[str, Any]
    shared: frozenset[str]
    handles: dict[int, Any]
    mirrors: Any
    lender: Any
    raiser: Any
    live: Any
    awaited: dict[int, Any]
    statements: Any
    checks: Any
    exchange: Exchange
    state: threading.RLock
    is_dead: bool

    def abilities(self, cls: type) -> frozenset[str]:
        """The special methods that a class of the solution has."""

    def set_field(self, handle: object, name: str, value: object) -> None:
        """The test has set a field of a dataclass object."""

    def derive(
        self, meta: type[Any], name: str, parents: tuple[type, ...], space: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """A class that the test derives from the solution's."""

    def ask(self, *request: object) -> Any:
        """One question to the solution."""

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an object of the solution."""

    def method(
        self, number: int, name: str, stub: object, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a method of an object of the solution."""

    def construct(self, cls: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make an object of a class of the solution."""

    def encode(self, value: object) -> Any:
        """A value as the solution gets it."""

    def decode(self, message: object) -> Any:
        """A value of the solution."""
