"""Rewards that wait for somebody else (a server, a judge): many at a time, again after a failure, once for equal content."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import traceback
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

FIRST_PAUSE_S = 0.5
MOST_KEPT = 20_000
_TRANSIENT = (
    "timeout",
    "connect",
    "ratelimit",
    "rate_limit",
    "unavailable",
    "overloaded",
    "internalserver",
    "apistatus",
    "http",
)


class RetriesExhausted(Exception):
    """A call failed for a reason that lies with whom it asked; `cause` is the last of the failures."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


def is_transient(err: BaseException) -> bool:
    """Whether a failure says nothing about the completion: the other side was slow, busy or away."""
    if isinstance(err, OSError | TimeoutError | asyncio.TimeoutError):
        return not isinstance(
            err, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError
        )
    if type(err) is RuntimeError and "new thread" in str(err):
        return True
    return any(word in cls.__name__.lower() for cls in type(err).__mro__ for word in _TRANSIENT)


class Waiting:
    """Calls one function for many items; an exception of an item is its result."""

    def __init__(self, *, concurrency: int, retries: int, timeout_s: float, keeps: bool) -> None:
        self._concurrency, self._retries, self._timeout_s = concurrency, retries, timeout_s
        self._kept: dict[Hashable, Any] | None = {} if keeps else None

    def run(self, call: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
        """Values or exceptions, in order."""
        return asyncio.run(self._all(call, items))

    async def _all(self, call: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
        gate = asyncio.Semaphore(self._concurrency)
        pending: dict[Hashable, asyncio.Task[Any]] = {}
        tasks = []
        for i, item in enumerate(items):
            key: Hashable = i if self._kept is None else _content(item)
            if key not in pending:
                pending[key] = asyncio.create_task(self._one(call, item, key, gate))
            tasks.append(pending[key])
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    async def _one(
        self, call: Callable[[Any], Awaitable[Any]], item: Any, key: Hashable, gate: asyncio.Semaphore
    ) -> Any:
        kept = self._kept
        if kept is not None and key in kept:
            return kept[key]
        async with gate:
            for attempt in range(self._retries + 1):
                try:
                    value = await asyncio.wait_for(call(item), self._timeout_s)
                    break
                except Exception as err:
                    if not is_transient(err):
                        raise
                    if attempt == self._retries:
                        raise RetriesExhausted(err) from err
                    await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        if kept is not None and len(kept) < MOST_KEPT:
            kept[key] = value
        return value


def described(err: BaseException) -> list[str]:
    """Kind, message and traceback of an exception, as a pool's `Raised` has them."""
    text = "".join(traceback.format_exception(err))
    return [type(err).__name__, str(err)[:2000], text[-8000:]]


def _content(item: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(item)).digest()
