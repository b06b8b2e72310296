"""Games of TextArena for one player. `environments:textarena`, with `options: {id: TowerOfHanoi-v0}`.

The package is imported where it is used, in the Python that `environment.interpreter` names. The outcome is the game's own reward, which
for some games is the share that was solved; a game that does not come to its end within the turns is worth 0.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


class Textarena:
    """One game of `textarena.make(id, **make)`."""

    def __init__(self, id: str, make: Mapping[str, Any] | None = None, actions: Sequence[str] = ()) -> None:
        """`actions` are moves that a warm-up may show, each at random; the game itself lists none."""
        # `-raw` gives the messages since the last turn; the other forms repeat the whole game
        self.env = import_module("textarena").make(f"{id.removesuffix('-raw')}-raw", **(make or {}))
        self.actions = list(actions)

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """What the game says first."""
        self.env.reset(num_players=1, seed=seed % 2**31)
        self.chance = random.Random(seed)
        return self._said()

    def step(self, action: str) -> dict[str, Any]:
        """What the game says to a move; it may allow one that it calls invalid to be made again."""
        done, _ = self.env.step(action)
        said = self._said()
        # an invalid move that ends the game is in its reward
        return {"observation": said, "done": bool(done), "valid": bool(done) or not self.env.state.error_count}

    def score(self) -> float:
        """The game's reward."""
        rewards, _ = self.env.close()
        return float(rewards[0]) if rewards else 0.0

    def demonstrate(self) -> str:
        """One of `actions`.

        Raises:
            ValueError: there are none.
        """
        if not self.actions:
            raise ValueError("name moves of the game under `environment.options.actions`")
        return self.chance.choice(self.actions)

    def _said(self) -> str:
        _, messages = self.env.get_observation()
        return "\n".join(str(text) for sender, text, kind in messages if sender == -1 and kind.name != "PLAYER_ACTION")
