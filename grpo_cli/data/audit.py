"""Golds compiled once per row, and each made to pass its own verifier before a single GPU-second is spent.

A gold that its own verifier calls wrong would punish every right answer to its row, so it is an error of the
data, not a zero. `drop` leaves such rows out and lists them; it never lets one through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpo_cli.data.rows import Row
from grpo_cli.data.template import did_you_mean
from grpo_cli.errors import DataError, Mistake, SetupError
from grpo_verifiers.verdict import Outcome, Verdict
from grpo_verifiers.verifier import BadGold, Sample, Unavailable, Verifier

BATCH = 256


@dataclass(frozen=True, slots=True)
class Audit:
    """The rows that hold, their golds per verifier in the same order, and what was left out and why."""

    rows: list[Row]
    golds: dict[str, list[Any]]
    dropped: list[Mistake]


@dataclass(frozen=True, slots=True)
class _Gold:
    """A compiled gold, or why there is none."""

    gold: Any = None
    problem: str = ""


def audit_golds(
    rows: Sequence[Row], verifiers: Mapping[str, Verifier], on_bad_gold: Literal["error", "drop"] = "error"
) -> Audit:
    """Compile the gold of every row for every verifier and run each gold through its own verifier.

    Raises:
        DataError: a gold is bad and `on_bad_gold` is `error`, or no row is left.
        SetupError: a verifier cannot run on this machine.
    """
    golds: dict[str, list[_Gold]] = {}
    for name, verifier in verifiers.items():
        try:
            golds[name] = _compile(rows, verifier)
        except Unavailable as err:
            raise SetupError(str(err), place=f"verify.{name}", hint=err.hint) from err
    mistakes: dict[int, Mistake] = {}
    for name, found in golds.items():
        for index, gold in enumerate(found):
            if gold.problem and index not in mistakes:
                mistakes[index] = Mistake(
                    rows[index].place, f"`verify.{name}` cannot use this row: {gold.problem}"
                )
    dropped = [mistakes[index] for index in sorted(mistakes)]
    if dropped and on_bad_gold == "error":
        raise DataError(dropped, hint="mend the rows, or set `data.on_bad_gold: drop` to leave them out")
    kept = [index for index in range(len(rows)) if index not in mistakes]
    if rows and not kept:
        raise DataError(dropped, hint="every row has a bad gold: look at `data.answer` first")
    return Audit(
        [rows[i] for i in kept],
        {name: [found[i].gold for i in kept] for name, found in golds.items()},
        dropped,
    )


def _compile(rows: Sequence[Row], verifier: Verifier) -> list[_Gold]:
    keys = [_inputs(row, verifier.columns) for row in rows]
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    known: dict[str, _Gold] = {}
    for key, index in first.items():
        known[key] = _compile_one(rows[index], verifier)
    for key, problem in _judge_golds(rows, verifier, first, known):
        known[key] = _Gold(problem=problem)
    return [known[key] for key in keys]


def _inputs(row: Row, columns: Sequence[str]) -> str:
    """What two rows must share to share a gold. A verifier that names no columns may read them all."""
    chosen = {name: row.fields.get(name) for name in columns} if columns else row.fields
    return json.dumps(chosen, sort_keys=True, ensure_ascii=False)


def _compile_one(row: Row, verifier: Verifier) -> _Gold:
    for column in verifier.columns:
        if column not in row.fields:
            return _Gold(problem=f"no column `{column}`{did_you_mean(column, list(row.fields))}")
    try:
        return _Gold(verifier.compile(row.fields))
    except BadGold as err:
        return _Gold(problem=str(err))


def _judge_golds(
    rows: Sequence[Row], verifier: Verifier, first: Mapping[str, int], known: Mapping[str, _Gold]
) -> Iterable[tuple[str, str]]:
    pending: list[tuple[str, Sample]] = []
    for key, index in first.items():
        row = rows[index]
        text = None if known[key].problem else verifier.gold_text(row.fields)
        if text is not None:
            pending.append((key, Sample(text, known[key].gold, row.prompt)))
    for start in range(0, len(pending), BATCH):
        batch = pending[start : start + BATCH]
        verdicts = verifier.judge([sample for _, sample in batch])
        for (key, sample), verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is not Outcome.RIGHT:
                yield key, _refusal(sample, verdict)


def _refusal(sample: Sample, verdict: Verdict) -> str:
    shown = sample.completion if len(sample.completion) <= 60 else "…" + sample.completion[-59:]
    why = verdict.detail or verdict.reason or verdict.outcome.value
    if verdict.outcome is Outcome.ERROR:
        return f"the verifier fails on the gold {shown!r}: {why}"
    return f"the gold does not pass its own verifier: {shown!r} is {verdict.outcome.value} ({why})"
