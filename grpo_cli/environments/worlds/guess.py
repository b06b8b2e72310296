"""guess: a number out of 32 in six turns; each answer is higher or lower. Halving finds it always, luck in six of 32."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

OPTIONS = ("size", "test_size", "seed")
WIDTH, HIGHEST = 32, 99


def rows(split: str, size: int = 1_600, test_size: int = 256, seed: int = 7) -> Iterator[dict[str, Any]]:
    """`size` training rows, or the `test_size` held-out ones: a range of 32 numbers, and the number to guess."""
    every = [(low, low + k) for low in range(1, HIGHEST - WIDTH + 2) for k in range(WIDTH)]
    random.Random(seed).shuffle(every)
    wanted = islice(every, test_size) if split == "test" else islice(every, test_size, test_size + size)
    for low, secret in wanted:
        yield {"question": f"{low}-{low + WIDTH - 1} ", "low": low, "high": low + WIDTH - 1, "secret": secret}


class Guess:
    """One number to guess. Each halving of the remaining range is a milestone."""

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """All numbers of the range are possible."""
        self.low, self.high, self.secret = int(row["low"]), int(row["high"]), int(row["secret"])
        self.halved = 0
        return "guess"

    def step(self, action: str) -> dict[str, Any]:
        """A number of the range."""
        text = action.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 4):
            return {"observation": "number", "state": self._left(), "valid": False}
        number = int(text)
        if number == self.secret:
            return {"observation": "yes", "state": "yes", "reward": 1.0, "done": True, "milestone": "found"}
        if number < self.secret:
            self.low, answer = max(self.low, number + 1), "higher"
        else:
            self.high, answer = min(self.high, number - 1), "lower"
        left, before = self.high - self.low + 1, self.halved
        while left <= WIDTH >> (self.halved + 1) and self.halved < 5:
            self.halved += 1
        milestone = f"{WIDTH >> self.halved} left" if self.halved > before else None
        return {"observation": answer, "state": self._left(), "milestone": milestone}

    def demonstrate(self) -> str:
        """Any number of the range that is still possible."""
        return str(random.randint(self.low, self.high))

    def _left(self) -> str:
        return f"{self.low}-{self.high}"
