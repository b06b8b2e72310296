"""Runs beside each other: the keys of their recipes that differ, and what the held-out rows they share say, paired by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import DataError
from grpo_cli.jobs.runs.summary import RunSummary, summarise
from grpo_cli.recipe.reading.dump import filled_up
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import recipe_of
from grpo_cli.statistics.estimate import Comparison, paired_clustered

QUIET = ("run",)
"""Sections of a recipe that say where a run lies, not what it is."""


@dataclass(frozen=True)
class RunComparison:
    """A run against the first one: `paired` over the rows that both measured last (`step`, `first_step`); None where there are none,
    and `why` then says so."""

    summary: RunSummary
    differs: Mapping[str, tuple[Any, Any]]
    paired: Comparison | None
    first_step: int | None
    step: int | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        found = None
        if self.paired is not None:
            found = {
                "difference": self.paired.difference.as_json(),
                "p": self.paired.p_value,
                "detectable": self.paired.detectable,
            }
        return {
            "run": self.summary.as_json(),
            "recipe": {key: {"first": a, "this": b} for key, (a, b) in self.differs.items()},
            "pass@1": found,
            "steps": [self.first_step, self.step],
            "why": self.why,
        }


def compare_runs(folders: Sequence[RunFolder]) -> tuple[RunSummary, list[RunComparison]]:
    """The first run, and every other against it."""
    first, *others = folders
    recipe, shares, step = filled_up(recipe_of(first)), *_last_shares(first)
    found = []
    for other in others:
        theirs, at = _last_shares(other)
        pairs = [(shares[row], theirs[row]) for row in shares if row in theirs]
        why = "" if pairs else ("no held-out row in common" if shares and theirs else "not measured")
        paired = paired_clustered([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
        differs = differences(recipe, filled_up(recipe_of(other)))
        found.append(RunComparison(summarise(other), differs, paired, step, at, why))
    return summarise(first), found


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys at which two recipes differ, with both values; None where one lacks it."""
    one, two = flat_recipe_keys(a), flat_recipe_keys(b)
    keys = [*one, *(key for key in two if key not in one)]
    return {
        key: (one.get(key), two.get(key))
        for key in keys
        if one.get(key) != two.get(key) and key.split(".")[0] not in QUIET
    }


def flat_recipe_keys(recipe: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Sections as dotted keys; lists are values."""
    out: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            out |= flat_recipe_keys(value, f"{above}{key}.")
        else:
            out[f"{above}{key}"] = value
    return out


def _last_shares(folder: RunFolder) -> tuple[dict[str, list[float]], int | None]:
    """Right or not of every judged held-out sample of the last evaluation that was kept, by row, and its step."""
    steps = folder.steps("eval")
    if not steps:
        return {}, None
    groups: dict[str, list[float]] = {}
    try:
        for record in folder.samples(steps[-1], "eval"):
            if record.is_judged:
                groups.setdefault(record.row, []).append(float(record.is_right))
    except (ValueError, DataError):
        return {}, None
    return groups, steps[-1]
