"""Environments of Gymnasium as text: one action a turn, by its name or number. `environments:gymnasium`, with `options: {id: NAME}`.

The package is imported where it is used, in the Python that `environment.interpreter` names. The state is what the environment renders as
text (`ansi`), else the text of its object (MiniGrid), else its observation. The outcome is the sum of its rewards.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


class Gymnasium:
    """One episode of `gymnasium.make(id, **make)`."""

    def __init__(
        self, id: str, make: Mapping[str, Any] | None = None, actions: Sequence[str] = (), imports: str = ""
    ) -> None:
        """`actions` are names of the actions, in order; `imports` a package that registers its environments (`minigrid`).

        Raises:
            ValueError: its actions are not a number each, or other names than it has.
        """
        gym = import_module("gymnasium")
        if imports:
            import_module(imports)
        modes = gym.spec(id).make(**(make or {})).metadata.get("render_modes", ())
        given = {"render_mode": "ansi"} if "ansi" in modes else {}
        self.env = gym.make(id, **given, **(make or {}))
        self.shows = "ansi" if given else ""
        space, inner = self.env.action_space, self.env.unwrapped
        if not hasattr(space, "n"):
            raise ValueError(f"`{id}` has actions of the kind {type(space).__name__}: only numbered ones are played")
        names = actions or [one.name for one in getattr(inner, "actions", ())] or [str(i) for i in range(int(space.n))]
        if len(names) != space.n:
            raise ValueError(f"`actions` has {len(names)} names, and `{id}` has {space.n} actions")
        self.names = [str(name) for name in names]
        if not self.shows and type(inner).__str__ is not gym.Env.__str__:
            self.shows = "text"

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
        return self.chance.choice(self.names)

    def _shown(self, seen: Any) -> str:
        if self.shows == "ansi":
            return str(self.env.render())
        return str(self.env.unwrapped) if self.shows else str(getattr(seen, "tolist", lambda: seen)())
