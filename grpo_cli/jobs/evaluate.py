"""`grpo eval`: a model measured on the held-out rows of a recipe.

`measure_model` opens the job, samples and judges; `compare` pairs two such measurements by row. `by_kind` groups pass@1 by a
column: the one that is named, else `kind` and `difficulty` where the rows have few values of them. The last part makes the
object of `--json` and the table.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError, UsageError
from grpo_cli.jobs.open_job import JudgedRows, open_job
from grpo_cli.measure.evaluation import Evaluation, Evaluator, MeasuredSamples, pass_1_of
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.rollout.engine import SamplingSettings
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import turns_by_outcome
from grpo_cli.statistics.estimate import (
    Comparison,
    Interval,
    detectable_exactly,
    mcnemar_exact,
    min_detectable,
    paired_clustered,
)
from grpo_cli.text import DASH, number, visible

USUAL = ("kind", "difficulty")
MOST_UNASKED = 12
"""A column that was not asked for is shown if it has at most this many kinds."""
MOST_SHOWN = 20
"""Kinds that the text shows of one column; the object has all."""
NONE = DASH
"""The name for rows without the column."""


@dataclass(frozen=True)
class RowKind:
    """The rows with one value of a column; `pass_1` is over samples with a primary verdict, `rows` counts all, `without_verdict` the samples
    on which some verifier failed."""

    pass_1: Interval
    rows: int
    without_verdict: int
    turns: dict[str, float | int | None]

    def as_json(self) -> dict[str, Any]:
        """Its entry in `--json`."""
        out = self.pass_1.as_json() | {"rows": self.rows, "without_verdict": self.without_verdict}
        return {**out, **self.turns}


Kinds = Mapping[str, Mapping[str, RowKind]]
"""By column, then by value as text."""


def columns_of(rows: Sequence[Mapping[str, Any]], asked: Sequence[str]) -> list[str]:
    """The columns to group rows by, from the rows' fields.

    Raises:
        UsageError: no row has one that was asked for.
    """
    there = sorted({name for row in rows for name in row})
    for name in asked:
        if name not in there:
            raise UsageError(f"no held-out row has a column `{name}`", hint=f"they have {', '.join(there) or 'none'}")
    if asked:
        return list(dict.fromkeys(asked))
    return [name for name in USUAL if 1 < len({_value(row.get(name)) for row in rows}) <= MOST_UNASKED]


def by_kind(measured: MeasuredSamples, asked: Sequence[str]) -> Kinds:
    """The kinds of each column to group by, in the order of their values."""
    out: dict[str, dict[str, RowKind]] = {}
    for column in columns_of([record.fields for record in measured.records], asked):
        of: dict[str, list[SampleRecord]] = {}
        for record in measured.records:
            of.setdefault(_value(record.fields.get(column)), []).append(record)
        out[column] = {
            value: RowKind(
                pass_1_of(of[value]),
                len({record.row for record in of[value]}),
                sum(record.is_failed for record in of[value]),
                turns_by_outcome(of[value]),
            )
            for value in sorted(of, key=_in_order)
        }
    return out


def lines_of(kinds: Kinds) -> list[str]:
    """The text: one line for each kind, under the name of its column."""
    lines: list[str] = []
    for column, found in kinds.items():
        shown = list(found.items())[:MOST_SHOWN]
        width = max(len(visible(value)[:24]) for value, _ in shown)
        lines += ["", f"by `{column}`"]
        for value, kind in shown:
            parts = [_pm(kind.pass_1) if math.isfinite(kind.pass_1.mean) else DASH, f"n {kind.pass_1.n}"]
            if kind.turns:
                turns = kind.turns
                parts.append(f"turns right {number(turns['turns/right'])} wrong {number(turns['turns/wrong'])}")
            if kind.without_verdict:
                parts.append(f"without verdict {kind.without_verdict}")
            lines.append(f"  {visible(value)[:24]:<{width}}  {'   '.join(parts)}")
        if len(found) > len(shown):
            lines.append(f"  … {len(found) - len(shown)} more, in `--json`")
    return lines


def _value(value: object) -> str:
    """A column's value as text; numbers that are equal are one kind."""
    if value is None:
        return NONE
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)


def _in_order(value: str) -> tuple[bool, bool, float, str]:
    """Numbers by size, then words; rows that lack the column last."""
    try:
        size = float(value)
    except ValueError:
        size = math.nan
    is_number = math.isfinite(size)
    return value == NONE, not is_number, size if is_number else 0.0, value


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
    """1.0 for right and 0.0 for other judged samples, in order, by row."""
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
    """Load, sample and judge; the model is freed before this returns. `noun` labels the progress, `by` names columns
    that the rows must have, `first` are the held-out rows if they are already open.

    Raises:
        UsageError: no row has one of them.
        RecipeError, DataError, SetupError: as `grpo train` would on these rows and this model.
    """
    recipe = source.recipe
    with open_job(
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
        found = evaluator.run(0, lambda done, total: display.progress(noun, done, total))
    # free the memory for the next model
    del opened, evaluator
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


SCHEMA = 1


def as_object(
    checkpoint: str,
    found: Evaluation,
    against: str | None,
    reference: Evaluation | None,
    paired: PairedComparison | None,
    kinds: Kinds | None = None,
) -> dict[str, Any]:
    """The one object of `--json`."""
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "checkpoint": checkpoint,
        "n": found.sampled.pass_1.n,
        "pass@1": found.sampled.pass_1.mean,
        "ci": [found.sampled.pass_1.low, found.sampled.pass_1.high],
        "pass@k": {str(k): interval.as_json() for k, interval in found.sampled.pass_k.items()},
        "maj@k": {str(k): value for k, value in found.sampled.maj_k.items()},
        "greedy": found.greedy.pass_1.as_json() if found.greedy else None,
        **found.failures.as_json(),
        "truncated": found.sampled.truncated,
        "think": found.sampled.think,
        "seconds": round(found.sampled.seconds, 3),
        **({"episodes": found.sampled.episodes} if found.sampled.episodes else {}),
        **(
            {"by": {c: {v: kind.as_json() for v, kind in found.items()} for c, found in kinds.items()}} if kinds else {}
        ),
        "compare": None,
    }
    if paired is not None and reference is not None:
        out["compare"] = {
            "against": against,
            "pass@1": reference.sampled.pass_1.mean,
            "difference": paired.sampled.difference.as_json(),
            "p": paired.sampled.p_value,
            "detectable": paired.sampled.detectable,
            "greedy": {
                "only_this": paired.greedy_only_b,
                "only_other": paired.greedy_only_a,
                "p": paired.greedy_p,
                "detectable": paired.greedy_detectable,
            },
        }
    return out


def table(found: Evaluation, path: Path | None, kinds: Kinds | None = None) -> list[str]:
    """What a person reads."""
    s = found.sampled
    lines = [f"pass@1   {_pm(s.pass_1)}   n {s.pass_1.n} prompts, sampled"]
    for k, interval in s.pass_k.items():
        lines.append(f"{f'pass@{k}':<8} {_pm(interval)}   maj@{k} {s.maj_k[k]:.3f}")
    if found.greedy is not None:
        lines.append(f"greedy   {_pm(found.greedy.pass_1)}   n {found.greedy.pass_1.n} prompts")
    parts = [f"length   {s.mean_tokens:.1f} tokens" if s.mean_tokens is not None else "length   —"]
    if s.truncated is not None:
        parts.append(f"truncated {s.truncated:.1%}")
    lines.append("   ".join(parts))
    if found.failures.failed:
        lines.append(f"errors   {visible(found.failures.text())}")
    if s.episodes:
        turns, invalid = s.episodes["turns/mean"] or 0.0, s.episodes["env/invalid"] or 0.0
        most, cut = s.episodes["turns/max"], s.episodes["turns/cut"] or 0.0
        split = f"right {number(s.episodes['turns/right'])}   wrong {number(s.episodes['turns/wrong'])}"
        lines.append(
            f"turns    {turns:.1f}, at most {most}   {split}   invalid {invalid:.1%} of them"
            f"   cut {cut:.1%} of the episodes"
        )
    if path is not None:
        lines.append(f"samples  {path}")
    return lines + lines_of(kinds or {})


def comparison(against: str, reference: Evaluation | None, paired: PairedComparison) -> list[str]:
    """The paired comparison, with the smallest difference that it could have detected."""
    assert reference is not None
    d = paired.sampled
    is_bound = math.isfinite(d.difference.half_width)
    span = f"[{d.difference.low:+.3f}, {d.difference.high:+.3f}]" if is_bound else "[—, —]"
    lines = [
        "",
        f"against  {against}: pass@1 {reference.sampled.pass_1.mean:.3f}",
        f"differs  {d.difference.mean:+.3f} {span}   p {d.p_value:.2g}"
        f"   paired by prompt, n {d.difference.n}; {_found(d.detectable)}",
    ]
    if paired.greedy_p is not None:
        lines.append(
            f"greedy   right only here {paired.greedy_only_b}, only there {paired.greedy_only_a}"
            f"   p {paired.greedy_p:.2g} (exact McNemar); {_found(paired.greedy_detectable)}"
        )
    return lines


def _found(detectable: float | None) -> str:
    if detectable is None or not math.isfinite(detectable):
        return "no difference is sure to be found on so few"
    return f"differences of {detectable:.3f} or more are found at 80 % power"


def _pm(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
