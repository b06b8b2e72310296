"""`tasks:seeds`: rows for worlds that draw everything from their seed: a number each, which train and test do not share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

OPTIONS = ("size",)


def rows(split: Literal["train", "test"], size: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows `{number, question}`, 1,024 to train and 256 to test where no size is given: even numbers and odd ones."""
    for i in range((1024 if split == "train" else 256) if size is None else size):
        number = 2 * i + (split == "test")
        yield {"number": number, "question": f"Game {number}."}
