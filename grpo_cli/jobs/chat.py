"""`grpo chat`: turns typed by a person, answered by the policy as a recipe samples it, and one row of the recipe judged.

`open_talk` opens a model and returns a `Talk`, which keeps the conversation and truncates it to the context.
`sample_row` samples the group of one row and judges it as training does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.data.images import MARK, RowImage, placed
from grpo_cli.data.messages import Message
from grpo_cli.data.rows import Row
from grpo_cli.data.sources import Which
from grpo_cli.data.template import FillError
from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError
from grpo_cli.jobs.open_job import JudgedRows, open_job
from grpo_cli.measure.evaluation import Evaluator
from grpo_cli.policy.model import load_model, pick_device
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.threads import set_threads
from grpo_cli.recipe.sections.course import Eval
from grpo_cli.recipe.sections.inputs import Model
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.recipe.sections.recipe import chat_options
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.rollout.engine import Engine, Request, SamplingSettings
from grpo_cli.rollout.make import policy_engine
from grpo_cli.run.records import SampleRecord

# A group of samples of one row, judged as training and evaluation judge it.


def sample_row(
    source: ModelSource,
    which: Which,
    named: str,
    samples: int,
    seed: int,
    display: Display,
    first: JudgedRows | None = None,
) -> list[SampleRecord]:
    """`samples` completions of the row with this number (from 1) or id; `first`: the rows, if they are open already.

    Raises:
        RecipeError, DataError, SetupError: as `grpo eval`; no such row.
    """
    recipe = source.recipe
    with open_job(
        recipe,
        source.base,
        display,
        splits=[which],
        load=lambda device, accept: open_model(source, device, accept),
        first=first,
    ) as opened:
        split = opened.splits[which]
        at = place_of(split.rows, named, which)
        only = replace(split, rows=[split.rows[at]], golds={name: [own[at]] for name, own in split.golds.items()})
        evaluator = Evaluator(
            Eval(samples=samples, k=[1], greedy=False),
            only,
            opened.judge,
            opened.engine,
            opened.policy,
            SamplingSettings.measuring(recipe.sample, seed),
            environment=recipe.environment,
        )
        return evaluator.run(0, lambda done, total: display.progress("sample", done, total)).sampled.records


def place_of(rows: list[Row], named: str, which: Which) -> int:
    """The index of a row by its number from 1, or by the beginning of its id where only one has that.

    Raises:
        DataError: none, or several.
    """
    if named.isdigit() and 1 <= int(named) <= len(rows):
        return int(named) - 1
    found = [i for i, row in enumerate(rows) if row.id.startswith(named)]
    if len(found) == 1:
        return found[0]
    why = "several rows have ids that begin so" if found else f"`data.{which}` has rows 1 to {len(rows)}"
    raise DataError(f"no row `{named}`: {why}", place="--row")


CUT = "… (cut at {tokens} tokens)"


@dataclass
class Talk:
    """A conversation; without a chat template each text is a prompt of its own."""

    policy: Policy
    engine: Engine
    sampling: SamplingSettings
    system: str = ""
    plain: bool = False
    images: tuple[RowImage, ...] = ()
    """Shown with the first turn."""
    turns: list[Message] = field(default_factory=list)
    said: int = 0

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.turns = [{"role": "system", "content": self.system}] if self.system and not self.plain else []

    def answer(self, text: str) -> str:
        """The model's answer, special tokens left out; a cut answer is marked.

        Raises:
            SetupError: the chat template does not take these turns.
            DataError: they do not fit the model's context.
        """
        if self.images and not any(MARK in turn["content"] for turn in self.turns):
            try:
                text = placed(text, len(self.images))
            except FillError as err:
                raise DataError(str(err)) from err
        asked = [*self.turns, {"role": "user", "content": text}]
        row = Row("chat", text, None if self.plain else asked, {}, images=self.images)
        request = Request(self.policy.encode(row), images=self.images)
        settings = self.sampling
        if settings.seed is not None:  # repeating the same message gives another answer
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
    spec: Model,
    changes: Mapping[str, Any],
    say: Callable[[str], None],
    images: tuple[RowImage, ...] = (),
) -> Iterator[Talk]:
    """The model of a source, or without one this model, which has no recipe; `changes` are fields of `SamplingSettings` that
    hold instead of the recipe's, `images` are shown with the first turn.

    Raises:
        RecipeError, DataError, SetupError: as `grpo eval` of this model.
    """
    device = pick_device()
    if source is None:
        policy = load_model(spec, device=device, seed=0, training=False)
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
        yield Talk(policy, engine, replace(SamplingSettings.of(sample), **changes), system, plain, images)
    finally:
        engine.release()
