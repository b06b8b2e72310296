"""Pairs of a right and a wrong answer to one prompt, made of judged samples.

A winner is right, a loser wrong by a verdict; a sample without a verdict, or one that was cut off, is neither. Pairs are of
like length: a model that is shown long winners and short losers learns length.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from grpo_cli.run.records import SampleRecord


@dataclass(frozen=True, slots=True)
class PairLimits:
    """How many pairs a row gives, in how many of them one sample may stand, and how far lengths may differ.

    `gap` is the difference of both lengths divided by the longer one.
    """

    a_row: int = 4
    a_sample: int = 2
    gap: float = 0.2


class NoPair(StrEnum):
    """Why a row gives no pair; the first that holds."""

    NO_VERDICT = "no verdict"
    CUT = "cut off"
    BOTH = "every text called both right and wrong"
    NO_RIGHT = "no right answer"
    NO_WRONG = "no wrong answer"
    LENGTHS = "lengths too far apart"


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """A whole, judged sample; `place` is where it stands among the samples of its row, `length` in tokens."""

    place: int
    text: str
    is_right: bool
    length: int


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """A right and a wrong answer to one prompt."""

    chosen: JudgedAnswer
    rejected: JudgedAnswer

    @property
    def gap(self) -> float:
        """How far the lengths differ, as a share of the longer one; 0 where both are empty."""
        longer = max(self.chosen.length, self.rejected.length)
        return abs(self.chosen.length - self.rejected.length) / longer if longer else 0.0


@dataclass(frozen=True)
class RowPairs:
    """What one row gives: its usable answers, its pairs, or why there is none; `samples` are all that it had."""

    row: str
    samples: Sequence[SampleRecord]
    answers: Sequence[JudgedAnswer]
    pairs: Sequence[AnswerPair] = field(default_factory=tuple)
    cause: NoPair | None = None


def answers_of(samples: Sequence[SampleRecord]) -> list[JudgedAnswer]:
    """The samples that may be preferred or not: whole, judged right or wrong, each text once.

    A text that was called right once and wrong once is neither. Lengths are tokens, or characters where a sample of the row
    does not say its tokens.
    """
    usable = [(place, s) for place, s in enumerate(samples) if is_usable(s)]
    said: dict[str, set[bool]] = {}
    for _, sample in usable:
        said.setdefault(sample.completion, set()).add(sample.is_right)
    counts = all(sample.tokens > 0 for _, sample in usable)
    found: dict[str, JudgedAnswer] = {}
    for place, sample in usable:
        text = sample.completion
        if len(said[text]) == 1 and text not in found:
            found[text] = JudgedAnswer(place, text, sample.is_right, sample.tokens if counts else len(text))
    return list(found.values())


def is_usable(sample: SampleRecord) -> bool:
    """Whether a sample is whole and has a verdict."""
    return sample.is_judged and not sample.truncated


def pair_up(answers: Sequence[JudgedAnswer], limits: PairLimits) -> list[AnswerPair]:
    """The pairs of one row, those of likest length first; among equals the earlier samples."""
    winners = [one for one in answers if one.is_right]
    losers = [one for one in answers if not one.is_right]
    near = [
        pair for w in winners for pair in (AnswerPair(w, one) for one in losers) if pair.gap <= limits.gap
    ]
    near.sort(key=lambda pair: (pair.gap, pair.chosen.place, pair.rejected.place))
    used: Counter[int] = Counter()
    found: list[AnswerPair] = []
    for pair in near:
        both = (pair.chosen.place, pair.rejected.place)
        if len(found) < limits.a_row and all(used[place] < limits.a_sample for place in both):
            found.append(pair)
            used.update(both)
    return found


def shuffle_labels(answers: Sequence[JudgedAnswer], seed: str) -> list[JudgedAnswer]:
    """The placebo: the same answers, with right and wrong dealt out anew among them."""
    labels = [one.is_right for one in answers]
    random.Random(seed).shuffle(labels)
    return [
        JudgedAnswer(one.place, one.text, label, one.length)
        for one, label in zip(answers, labels, strict=True)
    ]


def pairs_of_row(
    row: str, samples: Sequence[SampleRecord], limits: PairLimits, placebo: str | None = None
) -> RowPairs:
    """The pairs of one row's samples; `placebo` is the seed with which its labels are shuffled."""
    answers = answers_of(samples)
    if placebo is not None:
        answers = shuffle_labels(answers, f"{placebo}/{row}")
    pairs = pair_up(answers, limits)
    return RowPairs(row, samples, answers, pairs, None if pairs else _cause(samples, answers))


def _cause(samples: Sequence[SampleRecord], answers: Sequence[JudgedAnswer]) -> NoPair:
    if not answers:
        judged = [s for s in samples if s.is_judged]
        return NoPair.BOTH if any(map(is_usable, judged)) else NoPair.CUT if judged else NoPair.NO_VERDICT
    if not any(one.is_right for one in answers):
        return NoPair.NO_RIGHT
    return NoPair.LENGTHS if any(not one.is_right for one in answers) else NoPair.NO_WRONG


def by_row(samples: Iterable[SampleRecord]) -> Mapping[str, list[SampleRecord]]:
    """Samples of the same row, whenever they were drawn; a line without a row id goes by its prompt."""
    found: dict[str, list[SampleRecord]] = {}
    for sample in samples:
        found.setdefault(sample.row or sample.prompt, []).append(sample)
    return found


def make_pairs(
    samples: Iterable[SampleRecord], limits: PairLimits, placebo: str | None = None
) -> list[RowPairs]:
    """What every row gives, in the order in which rows come."""
    return [pairs_of_row(row, of, limits, placebo) for row, of in by_row(samples).items()]
