"""`grpo eval`: the model of one place measured on held-out rows with the verifiers that train it."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.jobs.evaluate.kinds import columns_of
from grpo_cli.jobs.workplace import JudgedRows, open_workplace
from grpo_cli.measure.evaluation import Evaluation, Evaluator
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.rollout.engine import SamplingSettings


def measure_model(
    source: ModelSource,
    display: Display,
    seed: int,
    noun: str = "evaluate",
    by: Sequence[str] = (),
    first: JudgedRows | None = None,
) -> Evaluation:
    """Load, sample and judge; the model is given back before this returns. `noun` names the progress, `by` columns that the
    rows must have, `first` the held-out rows where they are open already.

    Raises:
        UsageError: no row has one of them.
        RecipeError, DataError, SetupError: as `grpo train` would on these rows and this model.
    """
    found = _measure(source, display, seed, noun, by, first)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


def _measure(
    source: ModelSource,
    display: Display,
    seed: int,
    noun: str,
    by: Sequence[str],
    first: JudgedRows | None,
) -> Evaluation:
    recipe = source.recipe
    with open_workplace(
        recipe,
        source.base,
        display,
        splits=["eval"],
        load=lambda device, accept: open_model(source, device, accept),
        first=first,
    ) as opened:
        assert opened.held_out is not None
        columns_of([row.fields for row in opened.held_out.rows], by)
        sampling = SamplingSettings.measuring(recipe.sample, seed)
        evaluator = Evaluator(
            recipe.eval,
            opened.held_out,
            opened.judge,
            opened.engine,
            opened.policy,
            sampling,
            environment=recipe.environment,
        )
        return evaluator.run(0, lambda done, total: display.progress(noun, done, total))
