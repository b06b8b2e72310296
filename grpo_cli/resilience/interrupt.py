"""Handles Ctrl-C, SIGTERM and a closed terminal: the first signal finishes the step and saves, the second stops at
once.

Outside the training loop there is nothing to finish, so there the first signal stops at once too. A handler interrupts
the main thread, which may hold the display's locks at that moment; so another thread shows the message.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from grpo_cli.distributed.peers import StopRequests, stop_signals
from grpo_cli.errors import Exit


class Interrupted(SystemExit):
    """Raised where a signal stops the work at once; `code` is the exit code.

    Not a KeyboardInterrupt, which typer turns into 130 whichever signal it was.
    """

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code: Exit = code


class Interrupts:
    """The stop requests made by signals. `asked` is None until the first one."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.asked: Exit | None = None
        self.is_graceful = False
        self.stop_requests = StopRequests()
        self.say = say
        self._saying: list[threading.Thread] = []

    @contextmanager
    def handled(self) -> Iterator[Interrupts]:
        """Handle SIGINT, SIGTERM and the other stop signals while inside, then restore the former handlers."""
        before = {number: signal.signal(number, self._take) for number in stop_signals()}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            # its message comes before those of the end; a display that hangs delays the exit by a second
            for thread in self._saying:
                thread.join(timeout=1)

    @contextmanager
    def finish_step(self) -> Iterator[None]:
        """While inside, the first signal waits for the loop to ask `asked` at the end of a step."""
        self.is_graceful = True
        try:
            yield
        finally:
            self.is_graceful = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self.stop_requests.counts(number):
            return
        code = Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED
        if self.is_graceful and self.asked is None:
            self.asked = code
            words = "finishing this step, then saving; again to stop now"
            self._saying.append(threading.Thread(target=self.say, args=(words,), daemon=True))
            self._saying[-1].start()
            return
        raise Interrupted(code)
