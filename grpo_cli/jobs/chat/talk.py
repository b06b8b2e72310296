"""Turns typed by a person, answered by the policy as a recipe samples it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.data.messages import Message
from grpo_cli.data.rows import Row
from grpo_cli.policy.model import load_model, pick_device
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.threads import set_threads
from grpo_cli.recipe.chat import chat_options
from grpo_cli.recipe.sections.inputs import Model
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.rollout.engine import Engine, Request, SamplingSettings
from grpo_cli.rollout.make import policy_engine

CUT = "… (cut at {tokens} tokens)"


@dataclass
class Talk:
    """A conversation; without a chat template each text is a prompt of its own."""

    policy: Policy
    engine: Engine
    sampling: SamplingSettings
    system: str = ""
    plain: bool = False
    turns: list[Message] = field(default_factory=list)
    said: int = 0

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.turns = [{"role": "system", "content": self.system}] if self.system and not self.plain else []

    def answer(self, text: str) -> str:
        """What the model says to this, special tokens left out; a cut answer says so.

        Raises:
            SetupError: the chat template does not take these turns.
            DataError: they do not fit the model's context.
        """
        asked = [*self.turns, {"role": "user", "content": text}]
        row = Row("chat", text, None if self.plain else asked, {})
        request = Request(self.policy.encode(row))
        settings = self.sampling
        if settings.seed is not None:  # another answer to the same words said again
            settings = replace(settings, seed=settings.seed + self.said)
        self.said += 1
        ((completion,),) = self.engine.generate([request], settings)
        (said,) = self.policy.decode([completion.token_ids])
        if not self.plain:
            self.turns = [*asked, {"role": "assistant", "content": said}]
        return said if completion.finish == "stop" else said + CUT.format(tokens=len(completion.token_ids))


@contextmanager
def open_talk(
    source: ModelSource | None,
    named: str,
    changes: Mapping[str, Any],
    say: Callable[[str], None],
) -> Iterator[Talk]:
    """The model of a source, or without one that of this name, which has no recipe; `changes` are fields of
    `SamplingSettings` that hold instead of the recipe's.

    Raises:
        RecipeError, DataError, SetupError: as `grpo eval` of this model.
    """
    device = pick_device()
    if source is None:
        policy = load_model(Model(path=named), device=device, seed=0, training=False)
        data, sample = None, Sample()
    else:
        set_threads(source.recipe.run.threads)
        data, sample = source.recipe.data, source.recipe.sample
        policy = replace(open_model(source, device), chat=chat_options(source.recipe))
        policy = policy.without(sample.ban, can_stop=bool(sample.stop))
    plain = not policy.tokenizer.chat_template or (data is not None and data.plain)
    system = "" if data is None or data.system is None else data.system
    engine = policy_engine("auto", policy, say)
    try:
        yield Talk(policy, engine, replace(SamplingSettings.of(sample), **changes), system, plain)
    finally:
        engine.release()
