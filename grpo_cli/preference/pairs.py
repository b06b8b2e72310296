"""Pairs of a right and a wrong answer to one prompt, made of judged samples.

A winner has the verdict right, a loser wrong; a sample without a verdict, or a truncated one, is neither. Pairs are of
like length: a model that is shown long winners and short losers learns length.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import Interval, paired_clustered
from grpo_cli.text import number


@dataclass(frozen=True, slots=True)
class PairLimits:
    """How many pairs a row gives, in how many of them one sample may stand, and how far lengths may differ.

    `gap` is the difference of both lengths divided by the longer one.
    """

    a_row: int = 4
    a_sample: int = 2
    gap: float = 0.2


class NoPair(StrEnum):
    """The reason why a row gives no pair: the first that applies."""

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
    """The result for one row: its usable answers, and its pairs or the reason why there are none; `samples` is the
    number of all its samples."""

    row: str
    samples: Sequence[SampleRecord]
    answers: Sequence[JudgedAnswer]
    pairs: Sequence[AnswerPair] = field(default_factory=tuple)
    cause: NoPair | None = None


def answers_of(samples: Sequence[SampleRecord]) -> list[JudgedAnswer]:
    """The samples that may be preferred or not: whole, judged right or wrong, each text once.

    A text that was called right once and wrong once is neither. Lengths are tokens, or characters where a sample of the row
    does not record its tokens.
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
    near = [pair for w in winners for pair in (AnswerPair(w, one) for one in losers) if pair.gap <= limits.gap]
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
    """The placebo: the same answers, with right and wrong redistributed among them."""
    labels = [one.is_right for one in answers]
    random.Random(seed).shuffle(labels)
    return [JudgedAnswer(one.place, one.text, label, one.length) for one, label in zip(answers, labels, strict=True)]


def pairs_of_row(row: str, samples: Sequence[SampleRecord], limits: PairLimits, placebo: str | None = None) -> RowPairs:
    """The pairs of one row's samples; `placebo` is the seed with which its labels are shuffled."""
    answers = answers_of(samples)
    if placebo is not None:
        answers = shuffle_labels(answers, f"{placebo}/{row}")
    pairs, cause = pair_up(answers, limits), None
    if not pairs and not answers:
        judged = [s for s in samples if s.is_judged]
        cause = NoPair.BOTH if any(map(is_usable, judged)) else NoPair.CUT if judged else NoPair.NO_VERDICT
    elif not pairs:
        labels = {one.is_right for one in answers}
        # there are right and wrong answers, but none of similar length
        cause = NoPair.LENGTHS if len(labels) == 2 else NoPair.NO_WRONG if True in labels else NoPair.NO_RIGHT
    return RowPairs(row, samples, answers, pairs, cause)


def by_row(samples: Iterable[SampleRecord]) -> Mapping[str, list[SampleRecord]]:
    """Samples of the same row, whenever they were drawn; a line without a row id is grouped by its prompt."""
    found: dict[str, list[SampleRecord]] = {}
    for sample in samples:
        found.setdefault(sample.row or sample.prompt, []).append(sample)
    return found


def make_pairs(samples: Iterable[SampleRecord], limits: PairLimits, placebo: str | None = None) -> list[RowPairs]:
    """What every row gives, in the order in which rows come."""
    return [pairs_of_row(row, of, limits, placebo) for row, of in by_row(samples).items()]


# What a set of pairs is worth: rows with none by cause, and whether winners and losers differ in length.


@dataclass(frozen=True)
class PairSummary:
    """Counts of samples, rows and pairs; `length_gap` is tokens of the winner minus tokens of the loser, clustered by row.

    `chosen_shorter` is the share of pairs whose winner is the shorter one, among those of unequal length; None without any.
    """

    samples: int
    rows: int
    pairs: int
    right: int
    wrong: int
    without: dict[str, int]
    length_gap: Interval | None
    chosen_shorter: float | None

    @classmethod
    def of(cls, rows: Sequence[RowPairs]) -> PairSummary:
        """The summary of what every row gave."""
        paired = [row for row in rows if row.pairs]
        causes = Counter(row.cause for row in rows if row.cause is not None)
        unequal = [
            pair.chosen.length < pair.rejected.length
            for row in paired
            for pair in row.pairs
            if pair.chosen.length != pair.rejected.length
        ]
        gap = paired_clustered(
            [[pair.rejected.length for pair in row.pairs] for row in paired],
            [[pair.chosen.length for pair in row.pairs] for row in paired],
        )
        return cls(
            samples=sum(len(row.samples) for row in rows),
            rows=len(rows),
            pairs=sum(len(row.pairs) for row in rows),
            right=sum(one.is_right for row in rows for one in row.answers),
            wrong=sum(not one.is_right for row in rows for one in row.answers),
            without={cause.value: causes[cause] for cause in NoPair if causes[cause]},
            length_gap=gap.difference if paired else None,
            chosen_shorter=sum(unequal) / len(unequal) if unequal else None,
        )

    @property
    def rows_with_pairs(self) -> int:
        """Rows that gave at least one pair."""
        return self.rows - sum(self.without.values())

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`, without the file it was written to."""
        return {
            "samples": self.samples,
            "rows": self.rows,
            "rows_with_pairs": self.rows_with_pairs,
            "rows_without": self.without,
            "pairs": self.pairs,
            "right": self.right,
            "wrong": self.wrong,
            "length_gap": self.length_gap.as_json() if self.length_gap else None,
            "chosen_shorter": self.chosen_shorter,
        }

    def lines(self) -> list[str]:
        """The same for people."""
        said = [
            f"{self.pairs:,} pairs from {self.rows_with_pairs:,} of {self.rows:,} rows, {self.samples:,} samples"
            f" ({self.right:,} right and {self.wrong:,} wrong that are whole and distinct)"
        ]
        said += [f"{count:,} rows without a pair: {cause}" for cause, count in self.without.items()]
        if self.length_gap is not None:
            gap = self.length_gap
            said.append(
                f"winner longer than loser by {number(gap.mean)} tokens, 95 % [{number(gap.low)}, {number(gap.high)}]"
                f" over {gap.n:,} rows"
            )
        if self.chosen_shorter is not None:
            said.append(f"the winner is the shorter one in {self.chosen_shorter:.0%} of the pairs of unequal length")
        return said


def why_no_pairs(summary: PairSummary) -> str:
    """One sentence about samples that give no pair at all."""
    if not summary.rows:
        return "there are no samples"
    if len(summary.without) == 1:
        (only,) = summary.without
        return f"no pair: {summary.samples:,} samples of {summary.rows:,} rows, every row with {_WITH[only]}"
    causes = ", ".join(f"{count:,} with {_WITH[cause]}" for cause, count in summary.without.items())
    return f"no pair: of {summary.rows:,} rows {causes}"


_WITH: dict[str, str] = {
    NoPair.NO_VERDICT: "samples without a verdict only",
    NoPair.CUT: "samples that were cut off only",
    NoPair.BOTH: "texts that were called both right and wrong only",
    NoPair.NO_RIGHT: "no right sample",
    NoPair.NO_WRONG: "no wrong sample",
    NoPair.LENGTHS: "right and wrong samples of too different lengths",
}
