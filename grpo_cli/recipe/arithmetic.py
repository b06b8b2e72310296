"""The arithmetic of a batch, shown before anything runs. Rows that do not fill a step are dropped each epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_cli.errors import DataError
from grpo_cli.recipe.checking.ads import check_rows
from grpo_cli.recipe.sections.recipe import Recipe


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a run will do: per step, and in all."""

    rows: int
    prompts_step: int
    group: int
    completions_step: int
    tokens_step: int
    """Most completion tokens a step can take."""
    steps: int
    updates: int
    """Optimizer steps: each step's completions serve `inner_epochs` x `mini_batches` of them."""
    steps_epoch: int
    rows_dropped: int
    """Rows of an epoch that fill no step."""
    epochs: float
    draws: bool = True
    """Whether a step draws samples of these rows; where pairs or demonstrations are there already, none does."""

    def text(self) -> str:
        """The sum in two lines."""
        if not self.draws:
            return f"{self.steps:,} steps, nothing is drawn\n{self.rows:,} rows"
        step = (
            f"{self.prompts_step} prompts x {self.group} = {self.completions_step:,} completions a step"
            f" (at most {self.tokens_step:,} tokens)"
        )
        epoch = f"{self.rows:,} rows = {self.steps_epoch:,} steps an epoch"
        if self.rows_dropped:
            epoch += f", {self.rows_dropped:,} left over"
        updates = f" with {self.updates:,} optimizer steps" if self.updates != self.steps else ""
        return f"{step}\n{epoch}; {self.steps:,} steps{updates} = {self.epochs:.3g} epochs"


def plan(recipe: Recipe, n_rows: int) -> BatchPlan:
    """The arithmetic of a recipe over `n_rows` training rows.

    Raises:
        DataError: the rows do not fill one step that draws of them, so nothing would be trained; or too few for `select: ads`.
    """
    sample, train = recipe.sample, recipe.train
    steps_epoch, dropped = divmod(n_rows, sample.prompts)
    draws = draws_samples(recipe)
    if not draws:
        steps_epoch = max(1, steps_epoch)
    if steps_epoch == 0 or not n_rows:
        raise DataError(
            f"{n_rows:,} training rows do not fill one step of {sample.prompts} prompts: 0 steps would run",
            hint=f"lower `sample.prompts` to {n_rows} or fewer, or give more rows"
            if n_rows
            else "give some rows",
        )
    check_rows(recipe, n_rows)
    completions = sample.prompts * sample.group
    steps = train.steps if train.epochs is None else math.ceil(train.epochs * steps_epoch)
    return BatchPlan(
        rows=n_rows,
        prompts_step=sample.prompts,
        group=sample.group,
        completions_step=completions,
        tokens_step=completions * sample.max_tokens,
        steps=steps,
        updates=steps * train.updates,
        steps_epoch=steps_epoch,
        rows_dropped=dropped,
        epochs=steps / steps_epoch,
        draws=draws,
    )


def draws_samples(recipe: Recipe) -> bool:
    """Whether steps draw samples of the training rows, in place of learning from answers that are there already."""
    from_file = recipe.prefer is not None and recipe.prefer.data is not None
    return recipe.train.method != "sft" and not from_file


def with_steps(recipe: Recipe, n_rows: int) -> Recipe:
    """The recipe with as many `train.steps` as its `train.epochs` take over `n_rows` training rows.

    Raises:
        DataError: as `plan`.
    """
    train = recipe.train.model_copy(update={"steps": plan(recipe, n_rows).steps})
    return recipe.model_copy(update={"train": train})


IDLE_HINT = "it starts with a row's second visit: give fewer rows or more steps, or leave `sample.reuse` out"


def idle_reuse(recipe: Recipe, batches: BatchPlan) -> str | None:
    """What to say where `sample.reuse` is asked for and no row is drawn twice; None where all is well.

    Selectors by history, and draws that are repeated within a step, may come back to a row sooner than an epoch.
    """
    may_return = recipe.train.select != "uniform" or recipe.train.dead_groups == "resample"
    if recipe.sample.reuse is None or may_return or batches.steps > batches.steps_epoch:
        return None
    return f"`sample.reuse` never acts: none of {batches.rows:,} rows is drawn twice"
