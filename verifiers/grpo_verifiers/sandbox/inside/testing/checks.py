"""Which checks of a test program were reached, and which failed with nobody but the solution knowing."""

from __future__ import annotations


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

    def answer(self, request: object) -> None:
        """The same was asked once more, and went well: a function of the test that may be tried again."""
        if self.taken:
            # by what was asked: any other good answer does not make up for this failure
            self.taken = [t for t in self.taken if t[0] != request]

    def give_back(self, err: object) -> None:
        """It has raised it again."""
        self.taken = [t for t in self.taken if t[1] is not err]
