"""Which checks of a test program were reached, and which failed with nobody but the solution knowing."""

from __future__ import annotations

import sys
import threading
import types

from .plans import ANY, CHECK
from .statements import TESTS

END_NAMES = frozenset({"SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException", ANY})
"""Names by which a test catches what is no Exception."""


class Checks:
    """Counts the checks; the last one by its place in the program, from 1 (0: it looks at nothing, as `assert False`)."""

    def __init__(self) -> None:
        self.tests: tuple[types.CodeType, ...] = ()
        self.reached, self.at = 0, 0
        self.taken: list[tuple[object, BaseException]] = []

    def note(self, place: int) -> None:
        """A check begins."""
        self.reached += 1
        self.at = place

    def take(self, err: BaseException, request: object = None) -> None:
        """The solution has an exception of the test in its hands, the answer to this request, and may keep it to itself."""
        if isinstance(err, AssertionError) and self.at:
            self.taken.append((request, err))

    def leave(self, err: BaseException) -> None:
        """The solution ends a statement by what is no Exception. It goes past handlers that would tell of it, and a pool or
        a task may keep it: the trial is not passed unless the test expects such an end.
        """
        codes = list[types.CodeType]()
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename == TESTS:
                codes.append(frame.f_code)
            frame = frame.f_back
        # a thread whose target is the solution's own leaves nothing of the test undone
        if codes and threading.current_thread() is threading.main_thread():
            codes += self.tests
        if codes and not any(END_NAMES.intersection(c.co_names) for c in codes):
            self.taken.append((None, err))

    def end_thread(self, err: BaseException, is_known: bool) -> None:
        """A thread of the test has ended by an exception; `is_known`: the solution raised it, or what it came from."""
        trace, has_check = err.__traceback__, False
        while trace is not None:
            code = trace.tb_frame.f_code
            has_check |= code.co_filename == TESTS and CHECK in code.co_names
            trace = trace.tb_next
        if has_check and (is_known or isinstance(err, AssertionError)):
            self.taken.append((None, err))

    def answer(self, request: object) -> None:
        """The same was asked once more, and went well: a function of the test that may be tried again."""
        if self.taken:
            # by what was asked: any other good answer does not make up for this failure
            self.taken = [t for t in self.taken if t[0] != request]

    def give_back(self, err: object) -> None:
        """It has raised it again."""
        self.taken = [t for t in self.taken if t[1] is not err]
