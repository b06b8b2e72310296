"""Which checks of a test program were reached, and which failed with nobody but the solution knowing."""

from __future__ import annotations


class Checks:
    """The checks by their places in the program, counted from 1; 0 for one that looks at nothing (`assert False`)."""

    def __init__(self) -> None:
        self.reached, self.at = 0, 0
        self.taken: dict[int, BaseException] = {}

    def note(self, place: int) -> None:
        """A check begins; or, by minus its place, has passed."""
        if place < 0:
            self.taken.pop(-place, None)
        else:
            self.reached += 1
            self.at = place

    def take(self, err: object) -> None:
        """The solution has an exception of the test in its hands, and may keep it to itself."""
        if isinstance(err, AssertionError) and self.at:
            self.taken[self.at] = err

    def give_back(self, err: object) -> None:
        """It has raised it again."""
        self.taken = {place: kept for place, kept in self.taken.items() if kept is not err}
