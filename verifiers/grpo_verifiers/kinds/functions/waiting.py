"""Calls of reward functions that wait for a server or a judge: concurrent, with retries, and once for equal content."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

FIRST_PAUSE_S = 0.5
WAITS_S = 20.0
"""What a call may take where the option `timeout_s` is left out."""
MOST_KEPT = 20_000
_AWAY = ("timeout", "connect", "ratelimit", "rate_limit", "unavailable", "overloaded", "internalserver", "apistatus", "http")  # fmt: skip
_FILES = {"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError"}


def is_away(bases: Sequence[str], message: str) -> bool:
    """Whether an exception, by the names of its classes, means that a service was slow, busy or away."""
    if "OSError" in bases:
        return _FILES.isdisjoint(bases)
    if "TimeoutExpired" in bases:
        return False  # an error of a program that the function started may be the completion's own
    if bases[0] == "RuntimeError" and "new thread" in message:
        return True
    return any(word in name.lower() for name in bases for word in _AWAY)


class Waiting:
    """Calls one function for many items; an exception of an item is its result."""

    def __init__(self, *, concurrency: int, retries: int, timeout_s: float, keeps: bool) -> None:
        self._concurrency, self._retries, self._timeout_s = concurrency, retries, timeout_s
        self._kept: dict[Hashable, Any] | None = {} if keeps else None

    def run(self, call: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
        """Values or exceptions, in order."""

        async def run_all() -> list[Any]:
            gate = asyncio.Semaphore(self._concurrency)
            pending: dict[Hashable, asyncio.Task[Any]] = {}
            tasks = []
            for i, item in enumerate(items):
                key: Hashable = i if self._kept is None else hashlib.sha256(pickle.dumps(item)).digest()
                if key not in pending:
                    pending[key] = asyncio.create_task(self._one(call, item, key, gate))
                tasks.append(pending[key])
            return list(await asyncio.gather(*tasks, return_exceptions=True))

        return asyncio.run(run_all())

    async def _one(
        self, call: Callable[[Any], Awaitable[Any]], item: Any, key: Hashable, gate: asyncio.Semaphore
    ) -> Any:
        kept = self._kept
        if kept is not None and key in kept:
            return kept[key]
        async with gate:
            for attempt in range(self._retries + 1):
                try:
                    async with asyncio.timeout(self._timeout_s) as limit:
                        value = await call(item)
                    break
                except Exception as err:
                    if attempt < self._retries and is_away([c.__name__ for c in type(err).__mro__], ""):
                        await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
                    elif isinstance(err, TimeoutError) and limit.expired():
                        raise TimeoutError(f"no reply within `timeout_s` ({self._timeout_s:g} s)") from err
                    else:
                        raise
        if kept is not None and len(kept) < MOST_KEPT:
            kept[key] = value
        return value
