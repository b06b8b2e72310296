"""The section `environment`: a world in which the model acts turn by turn, instead of answering once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from grpo_cli.recipe.sections.fields import Above0, CodeName, Least0, Section, Whole


class Environment(Section):
    """A world in which the model acts turn by turn: one of `python`, `tools`, `trl` and `verifiers`. A plain word means
    `python`."""

    python: CodeName | None = None
    """A class of yours, `FILE.py:CLASS` or `MODULE:CLASS`, with `reset(row, seed)` and `step(action)`; or one that is
    shipped, `environments:NAME`."""
    tools: Annotated[list[CodeName], Field(min_length=1)] | None = None
    """Functions with typed arguments that the model may call, `FILE.py:FUNCTION` or `MODULE:FUNCTION`; `python` runs code of
    the model in the sandbox. A turn without a call is the answer, which `verify` judges."""
    trl: CodeName | None = None
    """A class for TRL's `environment_factory`, `FILE.py:CLASS` or `MODULE:CLASS`: `reset(**columns)`, public methods as tools,
    and `get_reward()`."""
    verifiers: CodeName | None = None
    """The id of an environment of the package `verifiers` (its `SingleTurnEnv` and `MultiTurnEnv`, 0.1), or
    `MODULE:FUNCTION` that loads one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the class, or the environment, is made with."""
    env: list[str] = Field(default_factory=list)
    """Environment variables with a secret, such as an API key, that it may read; others it does not see."""
    max_turns: Whole = 16
    """Turns after which an episode ends. Raising it lets longer ways be found and costs time in proportion."""
    turn_tokens: Whole | None = None
    """Longest turn of the model; left out, what is left of `sample.max_tokens`, which bounds the whole episode."""
    role: Literal["user", "tool"] = "user"
    """The role in which the chat template shows what the environment says; results of tools are always `tool`."""
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

    @property
    def kind(self) -> Literal["python", "tools", "trl", "verifiers"]:
        """Which of the four it is."""
        if self.tools is not None:
            return "tools"
        if self.trl is not None:
            return "trl"
        return "python" if self.verifiers is None else "verifiers"

    @property
    def named(self) -> tuple[str, ...]:
        """What is said under that key."""
        if self.tools is not None:
            return tuple(self.tools)
        return (self.trl or self.verifiers or self.python or "",)

    @property
    def has_calls(self) -> bool:
        """Whether a turn acts by calling tools."""
        return self.kind in ("tools", "trl")

    @property
    def speaks_as(self) -> Literal["user", "tool"]:
        """The role of what it says."""
        return "tool" if self.has_calls else self.role
