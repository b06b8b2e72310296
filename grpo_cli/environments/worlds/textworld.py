"""textworld: games of Microsoft's package TextWorld, made by its `tw-make`, with their own parser and texts.

A row names a game in its column `game`, `games/1.z8` beside `games/1.json`; relative to where the program was started. Observations
are the game's output without banner and status line. Only commands that the game currently accepts reach its
interpreter: others could write files (`save`) or crash it (random bytes did). The package is no dependency: `pip
install textworld`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

try:
    textworld = import_module("textworld")
except ModuleNotFoundError as err:
    raise ImportError("this world needs the package `textworld`: pip install textworld") from err

WANTED = (
    "admissible_commands",
    "description",
    "facts",
    "intermediate_reward",
    "max_score",
    "objective",
    "policy_commands",
)
"""What is read of a game in addition to its text."""
NO_COMMAND = "That cannot be done now."
THE_END = "*** The End ***"


class Textworld:
    """One game. The reward is the share of its points that a command scored; each step on the shortest way to the end is a
    milestone. `commands` shows what can be done now. `toward` is the share of demonstrated commands that are on that way; the
    others are any that can be done."""

    def __init__(self, commands: bool = False, toward: float = 1.0) -> None:
        if not 0 <= toward <= 1:
            raise ValueError(f"`toward` is {toward}: a share of the commands, from 0 to 1")
        self.commands, self.toward = commands, toward

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """The objective, and the first room."""
        path = Path(str(row["game"]))
        for needed in (path, path.with_suffix(".json")):
            if not needed.is_file():
                raise FileNotFoundError(f"`{needed}` is not there: `tw-make` writes a game and a `.json` beside it")
        self._game = textworld.start(str(path), textworld.EnvInfos(**dict.fromkeys(WANTED, True)))
        self._now = self._game.reset()
        return f"\n{self._now.objective}\n\n{self._seen(self._now.description)}"

    def step(self, action: str) -> dict[str, Any]:
        """One command in the game's wording."""
        command, before = " ".join(action.lower().split()), self._now
        if command not in before.admissible_commands:
            return {"observation": self._seen(NO_COMMAND), "state": self._state(), "valid": False}
        self._now, score, done = self._game.step(command)
        left = len(self._now.policy_commands or ())
        # without the game's prompt, its line of status and what follows its end
        head, end, _ = (self._now.feedback.rpartition("\n>")[0] or self._now.feedback).partition(THE_END)
        lines = [line.rstrip() for line in (head + end).strip().splitlines()]
        answer = "\n".join(line for i, line in enumerate(lines) if line or lines[i - 1])
        return {
            "observation": self._seen(answer),
            "state": self._state(),
            "reward": (score - (before.score or 0)) / self._now.max_score,
            "done": bool(done),
            "milestone": f"{left} left" if self._now.intermediate_reward > 0 else None,
        }

    def demonstrate(self) -> str:
        """A command that can be carried out now."""
        way = self._now.policy_commands
        if way and random.random() < self.toward:
            return str(way[0])
        return str(random.choice(self._now.admissible_commands))

    def _state(self) -> str:
        return "\n".join(sorted(map(str, self._now.facts)))

    def _seen(self, text: str) -> str:
        if not self.commands:
            return text
        return f"{text}\n\nYou can: {', '.join(self._now.admissible_commands)}"
