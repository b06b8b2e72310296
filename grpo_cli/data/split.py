"""Rows with the compiled golds of every verifier, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.data.rows import Row


@dataclass(frozen=True)
class Split:
    """Rows, and the golds of every verifier in the same order."""

    rows: list[Row]
    golds: dict[str, list[Any]]

    def take(self, places: Sequence[int]) -> Split:
        """The rows at these places, in this order."""
        golds = {name: [of[i] for i in places] for name, of in self.golds.items()}
        return Split([self.rows[i] for i in places], golds)
