"""The solution's event loop: it goes on a little each time the test program awaits something of it.

What the solution awaits of the test is not waited for here: the test's own loop runs it meanwhile and says how it ended.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from ..wire import Parts

STEP_S = 0.005


class SolutionLoop:
    """The loop, its tasks by the coroutines they run, and what they await of the test by number."""

    def __init__(self) -> None:
        self.loop: Any = None
        self.tasks: dict[int, Any] = {}
        self.cancelled: set[int] = set()
        """The coroutines whose tasks the test has cancelled."""
        self.wanted: list[int] = []
        self.waiting: dict[int, list[Any]] = {}

    def step(self, coroutine: Coroutine[Any, Any, Any], settled: Parts) -> list[Any]:
        """[True, value] once a coroutine has ended, [None, None] if the test's cancellation ended it, before [False, what
        it began to await of the test]; raises what it raised.

        `settled`: of what has been awaited, number, whether it returned, and the value or exception.
        """
        import asyncio

        if self.loop is None:
            # made when first needed: most solutions await nothing
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        task = self.tasks.get(id(coroutine))
        if task is None:
            task = self.tasks[id(coroutine)] = asyncio.ensure_future(coroutine, loop=self.loop)
        for number, is_good, value in settled:
            for future in self.waiting.pop(number, ()):
                if not future.done():
                    future.set_result(value) if is_good else future.set_exception(value)
        # a little at a time, since the test's own loop waits meanwhile
        self.loop.run_until_complete(asyncio.wait({task}, timeout=STEP_S))
        if not task.done():
            # what tasks in the background want is said with the next step that does not end
            wanted, self.wanted = self.wanted, []
            return [False, wanted]
        if task.cancelled() and id(coroutine) in self.cancelled:
            return [None, None]
        return [True, task.result()]

    def cancel(self, coroutine: object) -> None:
        """Cancel its task; the next step lets it see that."""
        task = self.tasks.get(id(coroutine))
        if task is not None and task.cancel():
            self.cancelled.add(id(coroutine))

    def is_running(self) -> bool:
        """Whether it is this loop that runs the caller."""
        if self.loop is None:
            return False
        import asyncio

        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def wait(self, number: int) -> Generator[Any, None, Any]:
        """Wait within a task for something of the test to be awaited there."""
        future = self.loop.create_future()
        # two tasks may wait for the same thing, which the test awaits once
        if number not in self.waiting:
            self.wanted.append(number)
        self.waiting.setdefault(number, []).append(future)
        found = yield from future.__await__()
        return found


LOOP = SolutionLoop()
