"""Sums of two three-digit numbers, with the demonstrations that the quickstart's cold start needs.

`worked` adds column by column (`digit digit carry:sum`, units first) inside <think>; `blurt` answers at once.
The first `test_size` different problems of the stream are held out, the rest are for training: no overlap.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

OPTIONS = ("size", "test_size", "seed")


def rows(split: str, size: int = 12_000, test_size: int = 1_024, seed: int = 1234) -> Iterator[dict[str, Any]]:
    """`size` training rows, or the `test_size` held-out ones; columns question, answer, worked, blurt."""
    draw, seen = random.Random(seed), set[tuple[int, int]]()
    first, last = (0, test_size) if split == "test" else (test_size, test_size + size)
    while len(seen) < min(last, 900 * 900):
        a, b = draw.randint(100, 999), draw.randint(100, 999)
        if (a, b) not in seen:
            seen.add((a, b))
            if len(seen) > first:
                yield problem(a, b)


def problem(a: int, b: int) -> dict[str, Any]:
    """One sum with both demonstrations."""
    boxed, carry, columns = f"\\boxed{{{a + b}}}", 0, list[str]()
    for place in range(3):
        x, y = a // 10**place % 10, b // 10**place % 10
        columns.append(f"{x}{y}{carry}:{x + y + carry}")
        carry = (x + y + carry) // 10
    return {
        "question": f"{a}+{b}=?",
        "answer": str(a + b),
        "worked": f"<think>{','.join(columns)}</think>{boxed}",
        "blurt": boxed,
    }
