"""The section `environment`: a world in which the model acts turn by turn, instead of answering once."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from grpo_cli.recipe.sections.fields import Above0, Least0, Section, Whole, Words


class Environment(Section):
    """A world in which the model acts turn by turn. A plain word means `python`."""

    python: Words
    """A class of yours, `FILE.py:CLASS` or `MODULE:CLASS`, with `reset(row, seed)` and `step(action)`; or one that is
    shipped, `environments:NAME`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the class is made with."""
    max_turns: Whole = 16
    """Turns after which an episode ends. Raising it lets longer ways be found and costs time in proportion."""
    turn_tokens: Whole | None = None
    """Longest turn of the model; left out, what is left of `sample.max_tokens`, which bounds the whole episode."""
    role: Literal["user", "tool"] = "user"
    """The role in which the chat template shows what the environment says."""
    history: Literal["full", "last"] = "full"
    """What a turn sees of the ones before it: all."""
    invalid_penalty: Least0 = 0.1
    """Taken off the outcome for each action that the environment calls invalid."""
    timeout_s: Above0 = 5.0
    """CPU seconds of one step; three times as much wall time (and two seconds) when it waits."""
    memory_mb: Whole = 1024
    """Memory that the environments of one worker may add to it."""
    workers: Whole | None = None
    """Worker processes; left out, one a core."""
