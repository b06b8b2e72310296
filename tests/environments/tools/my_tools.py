"""Tools and a class for TRL's `environment_factory`, as users write them."""

from __future__ import annotations

import asyncio
from typing import Any, Literal


def add(a: int, b: int = 1) -> int:
    """Add two whole numbers.

    Args:
        a: The first.
        b: The second,
            of the two.

    Returns:
        Their sum.
    """
    return a + b


def weather(town: str, days: list[int] | None = None, unit: Literal["c", "f"] = "c") -> str:
    """What the weather is.

    Args:
        town: The town.
        days: Days from now.
        unit: A scale.
    """
    return f"{town}: {days} {unit}"


def divide(a: float, b: float) -> float:
    """Divide.

    Args:
        a: Above.
        b: Below.
    """
    return a / b


async def slow(word: str) -> str:
    """Say it late.

    Args:
        word: What is said.
    """
    await asyncio.sleep(0)
    return word.upper()


def untyped(a) -> int:  # type: ignore[no-untyped-def]
    """No types."""
    return int(a)


class Counter:
    """A counter to be brought to a goal."""

    def reset(self, goal: int, **columns: Any) -> str:
        self.goal, self.value = goal, 0
        return f" goal {goal}"

    def raise_by(self, n: int) -> str:
        """Raise the counter.

        Args:
            n: By how much.
        """
        self._seen = True
        self.value += n
        return f"at {self.value}"

    async def look(self) -> int:
        """Look at the counter."""
        return self.value

    def get_reward(self) -> float:
        return float(self.value == self.goal)

    def _hidden(self) -> None:
        raise AssertionError


class NoReward(Counter):
    get_reward = None  # type: ignore[assignment]


class NoTools:
    def reset(self, **columns: Any) -> None:
        return None


def spin(n: int) -> int:
    """Never come back."""
    while True:
        n += 1


class Resetless:
    def look(self) -> int:
        """Look."""
        return 1
