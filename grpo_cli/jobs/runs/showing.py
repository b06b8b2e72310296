"""What `grpo runs show` and `compare` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_cli.display.watch.run import card_of
from grpo_cli.jobs.runs.comparing import RunComparison
from grpo_cli.jobs.runs.listing import HEADER, SCHEMA, held_out, rows_of, size_text, table
from grpo_cli.jobs.runs.summary import UNREADABLE, RunSummary, summarise
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import recipe_file
from grpo_cli.text import DASH, duration, number, plus_minus, score, visible


def as_object(folder: RunFolder) -> dict[str, Any]:
    """The object of `show --json`."""
    one = summarise(folder)
    evaluations: list[dict[str, Any]] = []
    if one.status != UNREADABLE:
        evaluations = [dict(metrics) for metrics in card_of(folder).evaluations]
    return {"schema": SCHEMA, "run": one.as_json(), "evaluations": evaluations}


def lines_of(folder: RunFolder) -> list[str]:
    """One run for a person to read."""
    one = summarise(folder)
    if one.status == UNREADABLE:
        return [f"{visible(one.name)}   {UNREADABLE}: {visible(one.reason)}"]
    card, manifest = card_of(folder), folder.manifest()
    checkpoints = sorted(p.name for p in (folder.path / "checkpoints").glob("step-*") if p.suffix == "")
    facts = [
        ("status", one.status + (f": {visible(one.reason)}" if one.reason else "")),
        ("recipe", _recipe_text(one.recipe, recipe_file(folder))),
        ("model", visible(one.model) or DASH),
        ("steps", f"{one.step} of {one.steps}" if one.steps else str(one.step)),
        ("started", one.started or DASH),
        ("time", duration(one.seconds)),
        ("device", visible(str(manifest.get("device") or "")) or DASH),
        ("seed", DASH if one.seed is None else str(one.seed)),
        ("reward", number(one.reward)),
        ("held-out", held_out(one)),
        ("best", f"{score(one.best)} at step {one.best_step}" if one.best is not None else DASH),
        ("checkpoints", ", ".join(checkpoints) or DASH),
        ("size", size_text(one.bytes)),
        ("folder", one.path),
        ("next", card.next or f"grpo watch {one.path}"),
    ]
    lines = [f"{name:<12} {visible(text)}" for name, text in facts]
    measured = [e for e in card.evaluations if e.get("eval/pass@1") is not None]
    if measured:
        rows = [
            [str(e["step"]), f"{score(e['eval/pass@1'])} {plus_minus(e.get('eval/pass@1/half'))}", score(e.get("eval/greedy"))]
            for e in measured
        ]  # fmt: skip
        lines += ["", *table(("step", "pass@1", "greedy"), rows)]
    return lines


def _recipe_text(name: str, file: str) -> str:
    """`mine (/here/mine/recipe.yaml)`."""
    return f"{visible(name)} ({visible(file)})" if name and file not in ("", name) else visible(name) or DASH


def compared_lines(first: RunSummary, others: Sequence[RunComparison]) -> list[str]:
    """Runs beside the first, for a person to read."""
    lines = table(HEADER, rows_of([first, *(other.summary for other in others)]))
    for other in others:
        lines += ["", f"{visible(other.summary.name)} against {visible(first.name)}"]
        lines.append(f"  held-out   {_paired_text(other)}")
        if not other.differs:
            lines.append("  recipe     the same")
        for key, (a, b) in other.differs.items():
            lines.append(f"  {visible(key)}   {_value(a)} → {_value(b)}")
    return lines


def _paired_text(other: RunComparison) -> str:
    if other.paired is None:
        return other.why
    gap = other.paired.difference
    sure = "nothing bounds it" if gap.n < 2 else f"[{gap.low:+.3f}, {gap.high:+.3f}], p {other.paired.p_value:.2g}"
    return f"{gap.mean:+.3f} {sure}   n {gap.n} rows, steps {other.first_step} and {other.step}"


def _value(value: Any) -> str:
    return DASH if value is None else visible(str(value), 60)
