"""The completions behind the numbers: a few groups of the last step, cut to what a screen can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import in_one_line
from grpo_verifiers.verdict import Outcome

MOST_GROUPS = 16
MOST_CHARS = 4000
"""Of a completion the end is kept, since the answer stands there; of a prompt the end too, since templates stand first."""


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
    """One group: where its row is from (`train.jsonl:17`, else its id), its question, what was expected, and its completions,
    best reward first."""

    row: str
    question: str
    expected: str
    right: int
    judged: int
    lines: tuple[SampleLine, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether it holds right and wrong ones."""
        return 0 < self.right < self.judged


@dataclass(frozen=True, slots=True)
class SampleView:
    """Groups of one step, mixed ones first."""

    step: int
    groups: tuple[GroupView, ...]


def view_samples(
    samples: Sequence[SampleRecord], most: int = MOST_GROUPS, places: Mapping[str, str] | None = None
) -> SampleView | None:
    """The groups of a step worth reading, mixed ones first; None of nothing. `places` maps row ids to where they are from."""
    groups: dict[str, list[SampleRecord]] = {}
    for sample in samples:
        groups.setdefault(str(sample.group), []).append(sample)
    if not groups:
        return None
    ranked = sorted(groups.values(), key=lambda group: not _is_mixed(group))[:most]
    return SampleView(samples[-1].step, tuple(_view(group, places or {}) for group in ranked))


def _is_mixed(group: Sequence[SampleRecord]) -> bool:
    outcomes = {s.outcome is Outcome.RIGHT for s in group if s.outcome not in (None, Outcome.ERROR)}
    return len(outcomes) == 2


def _view(group: Sequence[SampleRecord], places: Mapping[str, str]) -> GroupView:
    first = group[0]
    judged = [s for s in group if s.outcome not in (None, Outcome.ERROR)]
    ranked = sorted(group, key=lambda s: (s.reward is None, -(s.reward or 0.0)))
    question = first.fields.get("question") or first.fields.get("problem") or first.prompt
    expected = first.fields.get("answer")
    return GroupView(
        row=_short(places.get(first.row, "")) or first.row,
        question=str(question)[-MOST_CHARS:],
        expected="" if expected is None else str(expected)[-80:],
        right=sum(s.outcome is Outcome.RIGHT for s in judged),
        judged=len(judged),
        lines=tuple(
            SampleLine(s.outcome, s.advantage, s.reward, in_one_line(s)[-MOST_CHARS:], s.tokens) for s in ranked
        ),
    )


def _short(place: str) -> str:
    """A place without its folders."""
    return place.rsplit("/", 1)[-1]
