"""`grpo eval`: the model of one place measured on held-out rows with the verifiers that train it."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError
from grpo_cli.jobs.evaluate.kinds import columns_of
from grpo_cli.jobs.workplace import JudgedRows, open_workplace
from grpo_cli.measure.evaluation import Evaluation, Evaluator, MeasuredSamples
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.rollout.engine import SamplingSettings
from grpo_cli.statistics.estimate import Comparison, detectable_exactly, mcnemar_exact, min_detectable, paired_clustered

# Two evaluations of the same rows, compared prompt by prompt.


@dataclass(frozen=True)
class PairedComparison:
    """B against A on the same prompts: sampled by a clustered t test, greedy by McNemar's exact test."""

    sampled: Comparison
    greedy_only_a: int | None
    greedy_only_b: int | None
    greedy_p: float | None
    greedy_detectable: float | None


def compare(a: Evaluation, b: Evaluation) -> PairedComparison:
    """B minus A, prompt by prompt, over the rows that fit both models.

    Raises:
        DataError: no row was measured in both.
    """
    pairs_of_samples = _paired(a.sampled, b.sampled)
    if not pairs_of_samples:
        raise DataError("the two models were measured on no row in common", hint="give both one `--recipe`")
    sampled = paired_clustered([x for x, _ in pairs_of_samples], [y for _, y in pairs_of_samples])
    if a.greedy is None or b.greedy is None:
        return PairedComparison(sampled, None, None, None, None)
    pairs = [(x[0], y[0]) for x, y in _paired(a.greedy, b.greedy) if x and y]
    only_a, only_b = sum(x > y for x, y in pairs), sum(y > x for x, y in pairs)
    disagree = (only_a + only_b) / len(pairs) if pairs else 0.0
    n = len(pairs)
    detectable = min_detectable(n, disagree) if disagree else detectable_exactly(n)
    return PairedComparison(sampled, only_a, only_b, mcnemar_exact(only_a, only_b), detectable)


def _paired(a: MeasuredSamples, b: MeasuredSamples) -> list[tuple[list[float], list[float]]]:
    other = shares(b)
    return [(found, other[row]) for row, found in shares(a).items() if row in other]


def shares(measured: MeasuredSamples) -> dict[str, list[float]]:
    """Right (1.0) or not (0.0) of every judged sample, by row in their order."""
    groups: dict[str, list[float]] = {}
    for record in measured.records:
        group = groups.setdefault(record.row, [])
        if record.is_judged:
            group.append(float(record.is_right))
    return groups


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
    source: ModelSource, display: Display, seed: int, noun: str, by: Sequence[str], first: JudgedRows | None
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
