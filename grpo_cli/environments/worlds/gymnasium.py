"""Environments of Gymnasium as text: one action a turn, by its name or number. `environments:gymnasium`, with `options: {id: NAME}`.

The package is imported where it is used, in the Python that `environment.interpreter` names. What is seen is what the environment
renders as text (`ansi`), else the whole grid and the mission (MiniGrid), else its observation as JSON. The outcome is the sum of its rewards.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

COLOUR = re.compile(r"\x1b\[(\d{1,3})m")


class Gymnasium:
    """One episode of `gymnasium.make(id, **make)`."""

    def __init__(
        self,
        id: str,
        make: Mapping[str, Any] | None = None,
        actions: Sequence[str] = (),
        imports: str = "",
        shows: Sequence[str] = (),
    ) -> None:
        """`actions` are names of the actions, in order; `imports` is a package that registers its environments (`minigrid`); `shows` the
        actions that a warm-up shows at random, left out all.

        Raises:
            ValueError: its actions are not a number each, or other names than it has.
        """
        gym = import_module("gymnasium")
        if imports:
            import_module(imports)
        modes = gym.spec(id).make(**(make or {})).metadata.get("render_modes", ())
        given = {"render_mode": "ansi"} if "ansi" in modes else {}
        self.env = gym.make(id, **given, **(make or {}))
        self.form = "ansi" if given else ""
        space, inner = self.env.action_space, self.env.unwrapped
        if not hasattr(space, "n"):
            raise ValueError(f"`{id}` has actions of the kind {type(space).__name__}: only numbered ones are played")
        names = actions or [one.name for one in getattr(inner, "actions", ())] or [str(i) for i in range(int(space.n))]
        if len(names) != space.n:
            raise ValueError(f"`actions` has {len(names)} names, and `{id}` has {space.n} actions")
        self.names = [str(name) for name in names]
        if not self.form and hasattr(inner, "pprint_grid"):
            self.form = "grid"
        self.shown = list(shows) or self.names

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """The first state."""
        seen, _ = self.env.reset(seed=seed % 2**31)
        self.chance = random.Random(seed)
        return self._shown(seen)

    def step(self, action: str) -> dict[str, Any]:
        """The state after an action; one that there is not changes nothing."""
        said = action.strip()
        if said in self.names:
            number = self.names.index(said)
        elif said.isascii() and said.isdigit() and int(said) < len(self.names):
            number = int(said)
        else:
            return {"observation": f"actions: {' '.join(self.names)}", "valid": False}
        seen, reward, terminated, truncated, _ = self.env.step(number)
        return {"observation": self._shown(seen), "reward": float(reward), "done": bool(terminated or truncated)}

    def demonstrate(self) -> str:
        """Any action."""
        return self.chance.choice(self.shown)

    def _shown(self, seen: object) -> str:
        if self.form == "ansi":
            # a colour marks a place: the model sees it in brackets
            return COLOUR.sub(lambda found: "]" if found[1] == "0" else "[", str(self.env.render()))
        if self.form == "grid":
            return f"{self.env.unwrapped.mission}\n{self.env.unwrapped.pprint_grid()}"
        return json.dumps(seen, default=lambda one: one.tolist() if hasattr(one, "tolist") else str(one))
