"""The stages of a chain as a table: held-out score before and after each, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.statistics.estimate import across_seeds
from grpo_cli.text import number, score

PASS_1 = "pass@1"


@dataclass(frozen=True)
class StageRow:
    """One stage in words: its steps on the axis of the chain, scores before and after."""

    name: str
    steps: str
    before: str
    after: str
    n: str


@dataclass(frozen=True)
class StageTable:
    """The stages of an arm; `how` says what the intervals are over."""

    label: str
    rows: list[StageRow]
    how: str


def stage_tables(arms: Sequence[Arm]) -> list[StageTable]:
    """A table of each arm whose runs are chains of the same stages."""
    found = []
    for arm in arms:
        chains = [run.manifest.get("stages") or [] for run in arm.runs]
        names = [[str(stage.get("name")) for stage in chain] for chain in chains]
        if names[0] and all(names[0] == other for other in names):
            over = f"over {len(chains)} seeds (t)" if len(chains) > 1 else "clustered by prompt"
            found.append(StageTable(_label(arm), _rows(chains), f"95 % intervals {over}"))
    return found


def _label(arm: Arm) -> str:
    run: RunData = arm.runs[0]
    return run.name if len(arm.runs) == 1 else arm.label


def _rows(chains: Sequence[Sequence[dict[str, Any]]]) -> list[StageRow]:
    rows, done = [], 0
    for stages in zip(*chains, strict=True):
        steps = int(stages[0].get("steps") or 0)
        before, after = (_score([stage.get(when) for stage in stages]) for when in ("before", "after"))
        n = next((stage["after"].get("n") for stage in stages if stage.get("after")), None)
        rows.append(
            StageRow(str(stages[0]["name"]), f"{done + 1} to {done + steps}", before, after, number(n))
        )
        done += steps
    return rows


def _score(measured: Sequence[dict[str, Any] | None]) -> str:
    """`0.412 [0.380, 0.440]`: of one run its own interval, of several that over them; a dash where one was not measured."""
    known = [one for one in measured if one is not None and one.get(PASS_1) is not None]
    if len(known) < len(measured):
        return number(None)
    if len(known) == 1:
        return f"{score(known[0][PASS_1])} [{score(known[0].get('low'))}, {score(known[0].get('high'))}]"
    said = across_seeds([one[PASS_1] for one in known])
    return f"{score(said.mean)} [{score(said.low)}, {score(said.high)}]"
