"""Environments that misbehave, each in one way, and one that does not."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class Counter:
    """Counts to `goal`; says how often it was stepped, and a random number when asked to `roll`."""

    def __init__(self, goal: int = 3) -> None:
        self.goal, self.n = goal, 0

    def reset(self, row: dict, seed: int) -> str:
        self.n = int(row.get("start", 0))
        return f"at {self.n}"

    def step(self, action: str) -> dict:
        if action == "roll":
            return {"observation": str(random.random())}
        if action == "hang":
            while True:
                pass
        if action == "sleep":
            time.sleep(1000)
        if action == "die":
            os._exit(3)
        if action.startswith("die once "):
            marker = Path(action.removeprefix("die once "))
            if not marker.exists():
                marker.touch()
                os._exit(3)
        if action == "exit":
            raise SystemExit
        if action == "print":
            print("hello from a world")
        if action == "raise":
            raise ZeroDivisionError("no\nway")
        self.n += 1
        return {"observation": f"at {self.n}", "reward": 0.25, "done": self.n >= self.goal, "state": self.n}

    def score(self) -> float | None:
        return None if self.n == 77 else float(self.n)

    def demonstrate(self) -> str:
        return "up" if self.n % 2 else "go"


class Plain:
    """No score of its own; answers with a text, or what the action says."""

    answers: ClassVar[dict[str, object]] = {
        "bytes": b"at 1",
        "long": "x" * 1_000_000,
        "number": 7,
        "typo": {"obsevation": "a"},
        "nan": {"observation": "a", "reward": float("nan")},
        "text reward": {"observation": "a", "reward": "1"},
        "done": {"observation": "a", "done": 1},
        "state": {"observation": "a", "state": []},
        "milestone": {"observation": "a", "milestone": 3},
        "bad text": "a\ud800b",
        "none": None,
        "paid": {"reward": 0.5},
        "bytes observation": {"observation": b"x"},
    }

    def reset(self, row: dict, seed: int) -> None:
        if row.get("bad"):
            raise KeyError("layout")

    def step(self, action: str) -> object:
        return self.answers[action]


@dataclass
class Mine:
    observation: str
    reward: float
    done: bool


class Shaped:
    """Returns an object of its own shape."""

    def reset(self, row: dict, seed: int) -> str:
        return str(seed)

    def step(self, action: str) -> Mine:
        return Mine("seen", 1.0, True)


class Forgetful:
    """Says something else each time it is made."""

    made = 0

    def __init__(self) -> None:
        self.token = os.urandom(4).hex()

    def reset(self, row: dict, seed: int) -> str:
        return self.token

    def step(self, action: str) -> str:
        if action == "die":
            os._exit(3)
        return self.token


class NoStep:
    def reset(self, row: dict, seed: int) -> None: ...


class Broken:
    def __init__(self, needed: int) -> None: ...
    def reset(self, row: dict, seed: int) -> None: ...
    def step(self, action: str) -> str:
        return ""


class Eats:
    """Uses up the list of its row, and the one of its options."""

    def __init__(self, lives: list[int]) -> None:
        self.lives = lives

    def reset(self, row: dict, seed: int) -> None:
        self.left = row["numbers"]

    def step(self, action: str) -> dict:
        self.lives.pop()
        self.left.pop()
        return {"observation": f"{len(self.left)} {len(self.lives)}"}


class Async:
    async def reset(self, row: dict, seed: int) -> str:
        return "at 0"

    async def step(self, action: str) -> dict:
        return {"observation": "at 1", "done": True}

    async def score(self) -> float:
        return 0.5

    async def demonstrate(self) -> str:
        return "up"


class SetsScore(Plain):
    def reset(self, row: dict, seed: int) -> None:
        self.score = 0.0


def make_counter(goal: int = 3) -> Counter:
    return Counter(goal)
