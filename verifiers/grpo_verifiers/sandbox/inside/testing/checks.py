"""Which checks of a test program were reached, and which failed with nobody but the solution knowing."""

from __future__ import annotations

import types

from .ends import SolutionExit, Stopped
from .plans import CHECK
from .statements import TESTS


class Checks:
    """Counts the checks; the last one by its place in the program, from 1 (0: it looks at nothing, as `assert False`)."""

    def __init__(self) -> None:
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

    def leave_undone(self, err: BaseException, is_known: bool) -> None:
        """A thread of the test has ended by an exception; `is_known`: the solution raised it, or what it came from."""
        codes = list[types.CodeType]()
        trace = err.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == TESTS:
                codes.append(trace.tb_frame.f_code)
            trace = trace.tb_next
        # what is no Exception goes past handlers that would have told the main thread
        if isinstance(err, (Stopped, SolutionExit)):
            is_undone = bool(codes)
        else:
            is_undone = (is_known or isinstance(err, AssertionError)) and any(
                CHECK in c.co_names for c in codes
            )
        if is_undone:
            self.taken.append((None, err))

    def answer(self, request: object) -> None:
        """The same was asked once more, and went well: a function of the test that may be tried again."""
        if self.taken:
            # by what was asked: any other good answer does not make up for this failure
            self.taken = [t for t in self.taken if t[0] != request]

    def give_back(self, err: object) -> None:
        """It has raised it again."""
        self.taken = [t for t in self.taken if t[1] is not err]
