"""The completions behind the numbers: a few groups of the last step, cut to what a screen can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import in_one_line
from grpo_verifiers.verdict import Outcome

MOST_GROUPS = 16
MOST_CHARS = 4000
"""The end of a completion is kept, because it has the answer. The end of a prompt is kept, because it begins with the
template."""


@dataclass(frozen=True, slots=True)
class SampleLine:
    """One completion of a group."""

    outcome: Outcome | None
    advantage: float | None
    reward: float | None
    completion: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group: the place of its row (`train.jsonl:17`, else its id), its question, what was expected, and its completions,
    best reward first."""

    row: str
    question: str
    expected: str
    right: int
    judged: int
    lines: tuple[SampleLine, ...]


@dataclass(frozen=True, slots=True)
class SampleView:
    """Groups of one step, mixed ones first."""

    step: int
    groups: tuple[GroupView, ...]


def view_samples(
    samples: Sequence[SampleRecord], most: int = MOST_GROUPS, places: Mapping[str, str] | None = None
) -> SampleView | None:
    """The groups of a step worth reading, mixed ones first; None without samples. `places` maps row ids to
    their file and line."""
    groups: dict[str, list[SampleRecord]] = {}
    for sample in samples:
        groups.setdefault(str(sample.group), []).append(sample)
    if not groups:
        return None
    counted = []
    for group in groups.values():
        judged = [s.outcome is Outcome.RIGHT for s in group if s.outcome not in (None, Outcome.ERROR)]
        counted.append((group, sum(judged), len(judged)))
    counted.sort(key=lambda each: not 0 < each[1] < each[2])
    views = []
    for group, right, of in counted[:most]:
        first = group[0]
        question = first.fields.get("question") or first.fields.get("problem") or first.prompt
        expected = first.fields.get("answer")
        ranked = sorted(group, key=lambda s: (s.reward is None, -(s.reward or 0.0)))
        lines = (SampleLine(s.outcome, s.advantage, s.reward, in_one_line(s)[-MOST_CHARS:], s.tokens) for s in ranked)
        views.append(
            GroupView(
                row=(places or {}).get(first.row, "").rsplit("/", 1)[-1] or first.row,  # a place without its folders
                question=str(question)[-MOST_CHARS:],
                expected="" if expected is None else str(expected)[-80:],
                right=right,
                judged=of,
                lines=tuple(lines),
            )
        )
    return SampleView(samples[-1].step, tuple(views))
