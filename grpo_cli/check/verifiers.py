"""Whether the verifiers run here, whether every gold passes its own, and whether anything else passes too.

A verifier that calls each gold right proves little: one that always says yes does so. So the empty completion
and the golds of other rows are judged as well, and both should be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from grpo_cli.check.findings import Finding, Level, failed
from grpo_cli.data.audit import Audit, audit_golds
from grpo_cli.data.rows import Row
from grpo_cli.errors import Exit, UserError
from grpo_cli.judge import Judge
from grpo_verifiers import Outcome, Sample, Verifier

CROSSED = 64
MANY = 0.1


def check_start(judge: Judge) -> list[Finding]:
    """Start workers and sandboxes."""
    began = time.perf_counter()
    try:
        judge.start()
    except UserError as err:
        return [failed("verify", err)]
    names = ", ".join(f"{name}{' (primary)' if name == judge.primary else ''}" for name in judge.verifiers)
    return [Finding("verify", Level.OK, f"{names} started in {time.perf_counter() - began:.2f} s")]


def check_golds(
    which: str, rows: Sequence[Row], verifiers: Mapping[str, Verifier], drops: bool, whole: str
) -> tuple[Audit | None, Finding]:
    """Every gold of one split through its own verifier; `whole` says how many rows these are of how many."""
    check = f"golds {which}"
    began = time.perf_counter()
    try:
        audit = audit_golds(rows, verifiers, "drop")
    except UserError as err:
        return None, failed(check, err)
    data: dict[str, Any] = {
        "rows": len(rows),
        "bad": len(audit.dropped),
        "seconds": time.perf_counter() - began,
    }
    if not audit.dropped:
        return audit, Finding(check, Level.OK, f"all of {whole} pass their own verifier", data=data)
    lines = tuple(f"{m.place}: {m.message}" for m in audit.dropped[:10])
    if len(audit.dropped) > 10:
        lines += (f"… and {len(audit.dropped) - 10:,} more",)
    message = f"{len(audit.dropped):,} of {whole} have a bad gold"
    if drops:
        return audit, Finding(
            check, Level.NOTE, f"{message}; `data.on_bad_gold: drop` leaves them out", lines, data
        )
    hint = "mend the rows, or set `data.on_bad_gold: drop` to leave them out"
    return audit, Finding(check, Level.FAIL, message, lines, data, hint)


def check_refusals(audit: Audit, verifiers: Mapping[str, Verifier]) -> Iterator[Finding]:
    """Completions that must not be right: nothing at all, and the golds of other rows."""
    for name, verifier in verifiers.items():
        yield _refusals(name, verifier, audit.rows, audit.golds[name])


def _refusals(name: str, verifier: Verifier, rows: Sequence[Row], golds: Sequence[Any]) -> Finding:
    check = f"verify.{name}"
    nothing = verifier.judge([Sample("", golds[0], rows[0].prompt)])[0]
    if nothing.outcome is Outcome.RIGHT:
        return Finding(
            check, Level.WARN, "calls an empty completion right", hint="look at its options", code=Exit.DATA
        )
    if nothing.outcome is Outcome.ERROR:
        why = nothing.detail or nothing.reason
        return Finding(check, Level.FAIL, f"fails on an empty completion: {why}", code=Exit.SETUP)
    crossed = _crossed(verifier, rows, golds)
    if not crossed:
        return Finding(
            check, Level.OK, "an empty completion is not right; it names no golds to try on other rows"
        )
    began = time.perf_counter()
    verdicts = verifier.judge([sample for sample, _ in crossed])
    each_ms = (time.perf_counter() - began) / len(crossed) * 1000
    passed = [
        pair for pair, verdict in zip(crossed, verdicts, strict=True) if verdict.outcome is Outcome.RIGHT
    ]
    data = {"foreign_golds": len(crossed), "right": len(passed), "ms_each": each_ms}
    message = f"{len(passed)} of {len(crossed)} golds of other rows are called right, {each_ms:.3g} ms each"
    lines = tuple(f"{sample.completion!r} for {row.place}" for sample, row in passed[:3])
    if len(passed) > MANY * len(crossed):
        return Finding(
            check,
            Level.WARN,
            message,
            lines,
            data,
            hint="a verifier that says yes to others' golds teaches nothing",
        )
    return Finding(check, Level.OK, message, lines, data)


def _crossed(verifier: Verifier, rows: Sequence[Row], golds: Sequence[Any]) -> list[tuple[Sample, Row]]:
    """The gold text of one row as the completion of the next that has another, spread over the rows."""
    stride = max(1, len(rows) // CROSSED)
    chosen = range(0, len(rows), stride)
    texts = [(index, verifier.gold_text(rows[index].fields)) for index in chosen]
    pairs = []
    for (_, text), (index, other) in pairwise(texts):
        if text is not None and text != other:
            pairs.append((Sample(text, golds[index], rows[index].prompt), rows[index]))
    return pairs[:CROSSED]
