"""Two evaluations of the same rows, compared prompt by prompt."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_cli.errors import DataError
from grpo_cli.measure.evaluation import Evaluation, MeasuredSamples
from grpo_cli.statistics.estimate import (
    Comparison,
    detectable_exactly,
    mcnemar_exact,
    min_detectable,
    paired_clustered,
)


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
