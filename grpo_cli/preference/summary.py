"""What a set of pairs is worth: rows with none by cause, and whether winners and losers differ in length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.preference.pairs import NoPair, RowPairs
from grpo_cli.statistics.estimate import Interval, paired_clustered
from grpo_cli.text import number


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
            said.append(
                f"the winner is the shorter one in {self.chosen_shorter:.0%} of the pairs of unequal length"
            )
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
