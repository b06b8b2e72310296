"""What a person reads of the checks of a recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grpo_cli.data.rows import Row
from grpo_cli.jobs.check.findings import CheckFinding

COLOURS = {"ok": "32", "note": "36", "unknown": "33", "warn": "33", "fail": "31"}


def text(finding: CheckFinding, colour: bool) -> list[str]:
    """What a person reads of one check; the level stands as a word, colour only repeats it."""
    word = f"{finding.level.value:<8}"
    if colour:
        word = f"\x1b[{COLOURS[finding.level.value]}m{word}\x1b[0m"
    lines = [f"{word}{finding.check:<12} {visible(finding.message)}"]
    lines += [f"{'':<21}{visible(line)}" for line in finding.lines]
    return lines + ([f"{'':<21}hint: {visible(finding.hint)}"] if finding.hint else [])


def example(row: Row | None) -> list[str]:
    """The first row as the model will get it."""
    if row is None:
        return []
    turns = (
        [("prompt", row.prompt)]
        if row.messages is None
        else [(m["role"], m["content"]) for m in row.messages]
    )
    if (gold := row.fields.get("answer")) is not None:
        turns.append(("answer", gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)))
    return [f"the first row, {row.place}:", *(f"  {name:<10} {short(value)}" for name, value in turns), ""]


def summary(recipe: str, findings: Sequence[CheckFinding], seconds: float) -> str:
    """The last lines: counts, and the next command."""
    count = {level: sum(f.level.value == level for f in findings) for level in COLOURS}
    said = [f"{count[level]} {level}" for level in ("fail", "warn", "unknown") if count[level]]
    head = f"{len(findings)} checks in {seconds:.1f} s" + (
        f": {', '.join(said)}" if said else ", nothing found"
    )
    return head if count["fail"] or recipe == "-" else f"{head}\nnext: grpo train {recipe}"


def short(value: str, most: int = 400) -> str:
    """A value on one line, cut at the end, control characters made visible."""
    line = visible(value.replace("\n", "⏎"))
    return line if len(line) <= most else line[: most - 1] + "…"


def visible(value: str) -> str:
    """Text that cannot steer a terminal: control and direction characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
