"""Opens the parts of a job, in the same way for all jobs: judge, rows and golds that fit, policy, engine.

`open_rows` starts the judge and loads rows whose golds it passes (`JudgedRows`). `with_policy` adds a policy and keeps the rows
that fit its context (`OpenJob`). `open_job` does both; `open_start` also warms the policy up, as training would. `grpo train`
has more to refuse between rows and model, and an engine of its own kind, so it calls the two halves itself. torch is imported
where the model is, not with this module: `open_first` refuses what rows, judge and model files show before that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.data.rows import Row, Split
from grpo_cli.data.sources import Which, leave_hub
from grpo_cli.display.choose import SilentDisplay
from grpo_cli.display.protocol import Display
from grpo_cli.environments.pool import Worlds
from grpo_cli.jobs.rows import fit_split, load_split, prompt_warnings, takes_rows
from grpo_cli.policy.loading.inspection import refuse_flaws
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.threads import set_threads
from grpo_cli.recipe.sections.recipe import Model, Recipe, chat_options
from grpo_cli.reward.judge import Judge, proxy_warnings
from grpo_cli.rollout.engine import Engine
from grpo_cli.run.info import Level

if TYPE_CHECKING:
    import torch

    from grpo_cli.policy.coldstart import ColdStart
    from grpo_cli.policy.model import Accept
    from grpo_cli.policy.warmup import WarmupText
    from grpo_cli.train.prefer.pairs import PairSet


@dataclass(frozen=True)
class JudgedRows:
    """A started judge, and the rows whose golds it passes."""

    recipe: Recipe
    base: Path | None
    display: Display
    judge: Judge
    splits: Mapping[Which, Split]

    @property
    def train(self) -> Split:
        """The training rows."""
        return self.splits["train"]

    def shown_by(self, display: Display) -> JudgedRows:
        """The same rows with another display for notes; it first shows the notes kept so far."""
        for level, text, hint in self.display.notes if isinstance(self.display, Notes) else ():
            display.note(level, text, hint)
        self.judge.lines.note = lambda text, hint: display.note("warn", text, hint)
        return replace(self, display=display)


class Notes(SilentDisplay):
    """Keeps notes until there is a display."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.notes: list[tuple[Level, str, str]] = []

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Keep it."""
        self.notes.append((level, text, hint))


@dataclass(frozen=True)
class OpenJob:
    """Judge and rows with a policy: `splits` are the rows that fit it."""

    recipe: Recipe
    base: Path | None
    display: Display
    judge: Judge
    splits: Mapping[Which, Split]
    policy: Policy
    canary: Split | None = None
    """The rows of `monitor.canary`, if a run has some; prompts that are too long are not yet removed."""
    pairs: PairSet | None = None
    """The pairs of `prefer.data`, if a run learns from a file."""

    @property
    def train(self) -> Split:
        """The training rows."""
        return self.splits["train"]

    @property
    def held_out(self) -> Split | None:
        """The held-out rows; None where the recipe has none or they were not asked for."""
        return self.splits.get("eval")

    @cached_property
    def engine(self) -> Engine:
        """The engine, made at the first access; vLLM then holds the weights of that moment. If the recipe's engine
        cannot be used, a note names the one used instead.

        Raises:
            SetupError: the recipe's engine cannot drive this model.
        """
        from grpo_cli.rollout.make import measuring_engine

        return measuring_engine(self.recipe.sample, self.policy, lambda text: self.display.note("info", text))

    def warm_up(self) -> ColdStart | None:
        """The recipe's `warmup` on the policy, or a warning that there is none and the weights are random.

        Raises:
            RecipeError, DataError: its demonstrations cannot be read or filled.
        """
        from grpo_cli.policy.coldstart import warm_up

        progress = self.display.progress
        done = warm_up(
            self.recipe,
            self.policy,
            self.train.rows,
            self.base,
            lambda n, total: progress("warm-up", n, total),
            None if self.recipe.environment is None else self._shown,
            self.held_out.rows if self.held_out else (),
        )
        if done is not None:
            self.display.note("info", done.text())
        elif not self.policy.is_pretrained:
            self.display.note("warn", f"`{self.recipe.model.path}` has random weights and the recipe no `warmup`")
        return done

    def _shown(self, rows: Sequence[Row], seed: int) -> list[WarmupText]:
        """Episodes in which the environment shows how to act."""
        from grpo_cli.rollout.episodes.play import demonstrations

        world, worlds = self.recipe.environment, self.judge.worlds
        assert world is not None and isinstance(worlds, Worlds)
        return demonstrations(world, worlds, self.policy, rows, seed, self.recipe.sample.max_tokens)


@contextmanager
def open_rows(recipe: Recipe, base: Path | None, display: Display, splits: Sequence[Which]) -> Iterator[JudgedRows]:
    """Start the recipe's judge and load rows with it; the judge is stopped at the end of the context.

    Raises:
        RecipeError, DataError, SetupError: something cannot be built, started, read or judged.
    """
    judge = Judge.of(recipe, base)
    judge.lines.note = lambda text, hint: display.note("warn", text, hint)
    try:
        judge.start()
        loaded = {which: load_split(recipe, which, base, judge, display) for which in splits}
        yield JudgedRows(recipe, base, display, judge, loaded)
    finally:
        judge.close()


@contextmanager
def open_first(
    recipe: Recipe, base: Path | None, splits: Sequence[Which], model: Model | None = None
) -> Iterator[JudgedRows]:
    """Open judge and rows after a check of the model's files, before torch is imported, which takes seconds.

    `model`: the model to load, if it is not the recipe's model for training.

    Raises:
        RecipeError, DataError, SetupError: as `open_rows`, and as loading the model would.
    """
    refuse_flaws(model or recipe.model, trains=model is None)
    with open_rows(recipe, base, Notes(), splits) as rows:
        yield rows


def with_policy(rows: JudgedRows, policy: Policy, served: int | None = None) -> OpenJob:
    """The job with these rows and a policy; `served`: the context length of a vLLM server that generates for training.

    Raises:
        DataError, SetupError: no row, or no completion, fits the policy's context.
    """
    recipe, display = rows.recipe, rows.display
    policy = replace(policy, chat=chat_options(recipe))
    policy = policy.without(recipe.sample.ban, can_stop=bool(recipe.sample.stop))
    takes_rows(recipe, rows.splits)(policy.tokenizer)
    every = [row for split in rows.splits.values() for row in split.rows]
    for text in prompt_warnings(policy, every, recipe.sample.stop):
        display.note("warn", text)
    fitting = {
        which: fit_split(recipe, split, which, policy, display, served if which == "train" else None)
        for which, split in rows.splits.items()
    }
    return OpenJob(recipe, rows.base, display, rows.judge, fitting, policy)


@contextmanager
def open_job(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    *,
    splits: Sequence[Which] | None = None,
    load: Callable[[torch.device, Accept], Policy] | None = None,
    first: JudgedRows | None = None,
) -> Iterator[OpenJob]:
    """Open everything that `recipe` names, for one process; judge and engine are stopped at the end of the context.

    Args:
        base: folder that the recipe's paths are relative to.
        display: receives notes on dropped rows, warnings, and the progress of loading.
        splits: which rows are wanted, by default all that the recipe names.
        load: returns the policy; by default the recipe's model, loaded as for training.
        first: the result of `open_first`, if it was called before.

    Raises:
        RecipeError, DataError, SetupError: as `open_rows`, `load` and `with_policy`.
    """
    with (
        open_rows(recipe, base, display, splits or splits_of(recipe))
        if first is None
        else nullcontext(first.shown_by(display)) as rows
    ):
        from grpo_cli.policy.model import load_model, names_hub, pick_device  # imported after the rows were checked

        set_threads(recipe.run.threads)
        for text in judge_warnings(rows.judge):
            display.note("warn", text)
        for text in rows.judge.remarks():
            display.note("info", text)
        device = pick_device()
        display.progress("load model", 0, 1)
        accept = takes_rows(recipe, rows.splits)
        if names_hub(recipe.model) and (why := leave_hub()) is not None:
            display.note("info", f"{why}: `{recipe.model.path}` is looked for in its cache")
        if load is None:
            policy = load_model(
                recipe.model, device=device, seed=recipe.train.seed, accept=accept, pixels=recipe.data.image_pixels
            )
        else:
            policy = load(device, accept)
        display.progress("load model", 1, 1)
        job = with_policy(rows, policy)
        try:
            yield job
        finally:
            if "engine" in job.__dict__:
                job.engine.release()


@contextmanager
def open_start(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    *,
    splits: Sequence[Which] | None = None,
    trains: bool = False,
    first: JudgedRows | None = None,
) -> Iterator[OpenJob]:
    """The job with the policy that training would start from, including the recipe's warm-up.

    `trains`: always loaded as for training; `first` as in `open_job`.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """

    def load(device: torch.device, accept: Accept) -> Policy:
        from grpo_cli.policy.model import load_model

        # load a policy with a warm-up as for training, so that the cached weights fit and are the same
        loads = trains or bool(recipe.warmup)
        pixels = recipe.data.image_pixels
        return load_model(
            recipe.model, device=device, seed=recipe.train.seed, training=loads, accept=accept, pixels=pixels
        )

    with open_job(recipe, base, display, splits=splits, load=load, first=first) as job:
        job.warm_up()
        yield job


def splits_of(recipe: Recipe) -> list[Which]:
    """The rows that a recipe names."""
    return ["train", "eval"] if recipe.data.eval else ["train"]


def judge_warnings(judge: Judge) -> list[str]:
    """Warnings about the judge that a user should read before trusting its verdicts."""
    said = proxy_warnings(judge.specs)
    for name, sandbox in judge.sandboxes().items():
        if sandbox["warnings"]:
            missing = "; ".join(sandbox["warnings"])
            said.append(f"`{name}` runs model code in tier `{sandbox['tier']}`: {missing}")
    return said
