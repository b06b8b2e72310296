"""A world for `bench_episodes.py`, as TRL's `environment_factory` takes one: both sides of the bench play this very class.

It is keydoor with its picture, so that something is computed and said each turn, but ends at the last turn alone and pays by
a coin that what was said tosses: random weights would hardly ever find a door, and a batch without signal is no step.
"""

from __future__ import annotations

import hashlib
from typing import Any

from grpo_cli.environments.worlds.keydoor import Keydoor


class Walk:
    """One episode."""

    def reset(self, **row: Any) -> str:
        """The grid as it is at the start."""
        self._world = Keydoor(picture=True)
        self._said = hashlib.blake2b(digest_size=1)
        return f"\n{self._world.reset(row, 0)}"

    def move(self, letter: str) -> str:
        """Take a step on the grid.

        Args:
            letter: Where to go: n, s, e or w.

        Returns:
            The grid after the step.
        """
        self._said.update(letter.encode("utf-8", "replace"))
        return str(self._world.step(letter)["observation"])

    def get_reward(self) -> float:
        """Heads or tails."""
        return float(self._said.digest()[0] % 2)
