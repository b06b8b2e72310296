"""Coroutines of users' code, all of a process on one loop: clients are bound to the loop that they were made on."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

_LOOPS: list[asyncio.AbstractEventLoop] = []


def own_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, which runs only while something is waited for."""
    if not _LOOPS:
        _LOOPS.append(asyncio.new_event_loop())
    return _LOOPS[0]


def awaited(value: object) -> Any:
    """The value, waited for where it is a coroutine."""
    return own_loop().run_until_complete(value) if inspect.iscoroutine(value) else value
