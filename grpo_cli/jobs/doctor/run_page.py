"""What `grpo doctor RUN` prints: each finding with what stands behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_cli.errors import Exit
from grpo_cli.findings.evidence import Diagnosis, diagnose
from grpo_cli.findings.samples import split_of
from grpo_cli.run.find import find_run
from grpo_cli.run.records import SampleRecord, dump_line
from grpo_cli.text import visible

SCHEMA = 1


def examine_run(named: str, folder: str, as_json: bool) -> int:
    """Print the findings of a run with what stands behind them; the exit code.

    Raises:
        DataError: no such run, nothing was recorded yet, or a line is broken.
    """
    run = find_run(named, folder)
    found = diagnose(run)
    if as_json:
        told = {"schema": SCHEMA, "run": str(run.path), "findings": [one.as_json() for one in found]}
        print(dump_line(told), end="")
    else:
        print("\n".join(lines_of(found, run.path)))
    return int(Exit.BAR_MISSED if found else Exit.OK)


def lines_of(found: Sequence[Diagnosis], run: Path) -> list[str]:
    """What a person reads; model text cannot steer the terminal."""
    if not found:
        return ["no finding"]
    lines: list[str] = []
    for one in found:
        f = one.finding
        lines += [f"{f.code}  step {f.step}  {visible(f.text)}", f"     hint: {f.hint}"]
        lines += [f"     {e.key:<20} {_number(e.start):>8} → {_number(e.now)}" for e in one.evidence]
        if one.samples:
            held_out = "held-out " if split_of(f.code) == "eval" else ""
            lines.append(f"     {held_out}samples of step {one.samples_step}:")
        lines += [f"       {_sample(record)}" for record in one.samples]
        lines += [f"     next: {visible(one.next)}", ""]
    codes = ", ".join(dict.fromkeys(one.finding.code for one in found))
    return [*lines, f"{len(found)} finding{'s' if len(found) > 1 else ''} in {visible(str(run))}: {codes}"]


def _sample(record: SampleRecord, most: int = 90) -> str:
    text = visible(" ".join(record.completion[-4 * most :].split()))[-most:]
    outcome = record.outcome.value if record.outcome is not None else "no verdict"
    cut = ", cut off" if record.truncated else ""
    return f"{visible(record.row[:12])}  {outcome}  {record.tokens} tokens{cut}  …{text}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"
