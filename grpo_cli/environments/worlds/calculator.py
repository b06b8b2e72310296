"""calculator: a sum of several numbers, with a tool that adds two of them. The action `12+34` calls the tool, `=46`
gives the answer."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

OPTIONS = ("size", "test_size", "seed", "terms")
ASKED, ANSWERED = re.compile(r"(\d{1,6})\+(\d{1,6})"), re.compile(r"=(\d{1,7})")


def rows(
    split: str, size: int = 4_000, test_size: int = 256, seed: int = 7, terms: int = 3
) -> Iterator[dict[str, Any]]:
    """`size` training rows, or the `test_size` held-out ones: sums of `terms` numbers of two digits, each once."""
    draw, seen = random.Random(f"{seed}/{terms}"), set[tuple[int, ...]]()
    first, last = (0, test_size) if split == "test" else (test_size, test_size + size)
    most = 90**terms
    while len(seen) < min(last, most):
        numbers = tuple(draw.randint(10, 99) for _ in range(terms))
        if numbers in seen:
            continue
        seen.add(numbers)
        if len(seen) > first:
            yield {"question": "+".join(map(str, numbers)) + " ", "numbers": list(numbers)}


class Calculator:
    """One sum. The first call of the tool whose result is a right partial sum is a milestone, and so is each further one."""

    def reset(self, row: Mapping[str, Any], seed: int) -> None:
        """Nothing is added yet."""
        self.numbers = [int(number) for number in row["numbers"]]
        self.total, self.last, self.added = sum(self.numbers), self.numbers[0], 1

    def step(self, action: str) -> dict[str, Any]:
        """`A+B` or `=N`."""
        text = action.strip()
        if answered := ANSWERED.fullmatch(text):
            is_right = int(answered[1]) == self.total
            return {"observation": "right" if is_right else "wrong", "reward": float(is_right), "done": True}
        asked = ASKED.fullmatch(text)
        if asked is None:
            return {"observation": "a+b or =n", "valid": False, "state": self._left()}
        self.last = int(asked[1]) + int(asked[2])
        is_next = self.added < len(self.numbers) and self.last == sum(self.numbers[: self.added + 1])
        self.added += is_next
        return {
            "observation": str(self.last),
            "state": self._left(),
            "milestone": f"sum of {self.added}" if is_next else None,
        }

    def demonstrate(self) -> str:
        """The next call of the tool, or sometimes a premature answer. It demonstrates the format of a call, not a
        perfect policy."""
        if self.added == len(self.numbers) or random.random() < 0.4:
            return f"={self.last}"
        return f"{self.last}+{self.numbers[self.added]}"

    def _left(self) -> str:
        return f"{self.added} {self.last}"
