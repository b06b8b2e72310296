"""keydoor: fetch a key on a grid, then walk to the door; one letter a turn, one signal at the end.

The prompt states the positions of key and door. An observation states whether the agent has the key, and its position
(`k0x3y4`, only 6 bytes: the built-in model's tokens are bytes). A random walk sometimes succeeds; a milestone rewards
reaching the key.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

OPTIONS = ("size", "test_size", "seed", "grid")
MOVES = {"n": (0, -1), "s": (0, 1), "e": (1, 0), "w": (-1, 0)}


def rows(split: str, size: int = 2_000, test_size: int = 256, seed: int = 7, grid: int = 6) -> Iterator[dict[str, Any]]:
    """`size` training layouts, or the `test_size` held-out ones, of a grid of `grid` x `grid`; none stands in both."""
    cells = [(x, y) for y in range(grid) for x in range(grid)]
    layouts = [(a, b, c) for a in cells for b in cells for c in cells if len({a, b, c}) == 3]
    random.Random(f"{seed}/{grid}").shuffle(layouts)
    wanted = islice(layouts, test_size) if split == "test" else islice(layouts, test_size, test_size + size)
    for start, key, door in wanted:
        yield {
            "question": f"key x{key[0]}y{key[1]} door x{door[0]}y{door[1]} ",
            "grid": grid,
            "start": list(start),
            "key": list(key),
            "door": list(door),
        }


class Keydoor:
    """One layout. `picture` shows the grid instead of the place: longer, and easier to read for a person. `toward` is the share
    of demonstrated moves that lead to the key, then to the door; the others are any moves."""

    def __init__(self, picture: bool = False, toward: float = 0.0) -> None:
        if not 0 <= toward <= 1:
            raise ValueError(f"`toward` is {toward}: a share of the moves, from 0 to 1")
        self.picture, self.toward = picture, toward

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """Back to the start, without the key."""
        self.grid = int(row["grid"])
        self.at, self.key, self.door = tuple(row["start"]), tuple(row["key"]), tuple(row["door"])
        self.has_key = False
        return self._seen()

    def step(self, action: str) -> dict[str, Any]:
        """A letter of n, s, e, w; a wall leaves one where one is."""
        move = MOVES.get(action.strip())
        if move is None:
            return {"observation": self._seen(), "state": self._place(), "valid": False}
        self.at = self._after(move)
        found = self.at == self.key and not self.has_key
        self.has_key = self.has_key or found
        is_there = self.has_key and self.at == self.door
        return {
            "observation": self._seen(),
            "state": self._place(),
            "reward": float(is_there),
            "done": is_there,
            "milestone": "key" if found else None,
        }

    def demonstrate(self) -> str:
        """A move that does not hit a wall. With `toward: 0` it demonstrates only the format of an action, not the
        way."""
        moves = [name for name, move in MOVES.items() if self._after(move) != self.at]
        if self.toward and random.random() < self.toward:
            here = self._far(self.at)
            moves = [name for name in moves if self._far(self._after(MOVES[name])) < here]
        return random.choice(moves)

    def _far(self, place: tuple[int, ...]) -> int:
        """Moves from a position to the current target."""
        goal = self.door if self.has_key else self.key
        return int(abs(goal[0] - place[0]) + abs(goal[1] - place[1]))

    def _after(self, move: tuple[int, int]) -> tuple[int, ...]:
        x, y = self.at[0] + move[0], self.at[1] + move[1]
        return (x, y) if 0 <= x < self.grid and 0 <= y < self.grid else self.at

    def _place(self) -> str:
        return f"k{int(self.has_key)}x{self.at[0]}y{self.at[1]}"

    def _seen(self) -> str:
        if not self.picture:
            return self._place()
        marks = {self.door: "D", **({} if self.has_key else {self.key: "K"}), self.at: "@"}
        lines = ["".join(marks.get((x, y), ".") for x in range(self.grid)) for y in range(self.grid)]
        return "\n".join(lines) + ("\nkey" if self.has_key else "")
