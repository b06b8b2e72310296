"""Coroutines and generators of the test program's own, each of which drives one of the solution."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..ends import Connection


def generate(link: Connection, number: int) -> Generator[Any, Any, Any]:
    """A generator whose steps are those of the solution's."""
    request, sent = "next", list[Any]()
    while True:
        try:
            value = link.ask(request, {"k": number}, *sent)
        except StopIteration as end:
            return end.value
        try:
            got = yield value
        except GeneratorExit:
            link.ask("close", {"k": number})
            raise
        except BaseException as err:  # noqa: BLE001 - whatever the test throws is for the solution to see
            request, sent = "throw", [link.encode(err)]
        else:
            request, sent = ("next", []) if got is None else ("send", [link.encode(got)])


async def drive(link: Connection, number: int) -> Any:
    """A coroutine whose steps are those of the solution's; what that one awaits of the test runs in the loop here meanwhile."""
    import asyncio  # large, and whoever drives a coroutine has it

    cancelled: asyncio.CancelledError | None = None
    while True:
        found = link.ask("costep", {"k": number}, link.encode(settled(link)))
        if found[0]:
            return found[1]
        # as in one process, it is the coroutine that says what becomes of a cancellation; it cannot make one up
        if found[0] is None and cancelled is not None:
            raise cancelled
        for wanted in found[1] or ():
            link.awaited[wanted] = asyncio.ensure_future(link.lender.lent[wanted])
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as err:
            cancelled = err
            link.ask("cocancel", {"k": number})


def settled(link: Connection) -> list[list[Any]]:
    """What the solution awaits and has ended since: its number, whether it returned, the value or exception."""
    out = list[list[Any]]()
    for number, task in list(link.awaited.items()):
        if task.done():
            del link.awaited[number]
            err = None if task.cancelled() else task.exception()
            good = err is None and not task.cancelled()
            out.append([number, good, task.result() if good else err or TimeoutError("cancelled")])
    return out
