"""What one step of preference learning learns from: made of a step's groups, or read from a file of pairs. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.data.rows import Row
from grpo_cli.data.sources import SourceLike
from grpo_cli.errors import DataError
from grpo_cli.preference.file import KEY, FilePair, pairs_of_rows, read_pair_lines
from grpo_cli.preference.pairs import (
    AnswerPair,
    JudgedAnswer,
    NoPair,
    PairLimits,
    RowPairs,
    pair_up,
    shuffle_labels,
)
from grpo_cli.preference.summary import PairSummary
from grpo_cli.preference.unspelt import count_unspelt, unspelt_text
from grpo_cli.reward.group import Group
from grpo_cli.train.prefer.examples import LabelledExample, PairExample, labelled_examples, pair_examples

if TYPE_CHECKING:
    from grpo_cli.policy.policy import Policy


@dataclass(frozen=True)
class PairSet:
    """Pairs as token ids, every answer in them that is usable alone, and what they are worth."""

    summary: PairSummary
    pairs: Sequence[PairExample]
    answers: Sequence[LabelledExample]

    @classmethod
    def of_groups(cls, groups: Sequence[Group], found: Sequence[RowPairs]) -> PairSet:
        """What `found` has of these groups, with the ids that were sampled."""
        return cls(PairSummary.of(found), pair_examples(groups, found), labelled_examples(groups, found))

    @classmethod
    def of_file(
        cls,
        source: SourceLike,
        base: Path | None,
        policy: Policy,
        rows: Sequence[Row],
        held_out: Sequence[Row],
        stop: Sequence[str],
        note: Callable[[str], None],
        placebo: int | None = None,
    ) -> PairSet:
        """The pairs of a file, whose texts are tokenised anew.

        Args:
            source: the file, whose name counts from `base`.
            policy: whose tokens they become; pairs that do not fit its context are left out, and `note` hears how many.
            rows: training rows, which the pairs must be of.
            held_out: rows that they must not be of.
            stop: texts that end an answer without an end token.
            placebo: the seed with which right and wrong are dealt out anew among the answers of each row.

        Raises:
            DataError: as `read_pair_lines` and `pairs_of_rows`, and where no pair fits the model.
        """
        pairs = pairs_of_rows(read_pair_lines(source, base), rows, held_out)
        by_row: dict[int, list[FilePair]] = {}
        for pair in pairs:
            by_row.setdefault(pair.row, []).append(pair)
        made = [_RowSet.of(of, policy, rows[row], stop) for row, of in by_row.items()]
        kept = [one for one in made if one.pairs]
        left_out = len(pairs) - sum(len(one.pairs) for one in kept)
        if not kept:
            raise DataError(
                f"no pair of `{source.source}` fits the model's {policy.context} tokens", place=KEY
            )
        broken = count_unspelt([(pair.chosen, pair.rejected) for pair in pairs])
        if broken:
            note(unspelt_text(broken, len(pairs)))
        if left_out:
            note(
                f"left out {left_out:,} of {len(pairs):,} pairs longer than the model's {policy.context} tokens"
            )
        if placebo is not None:
            kept = _dealt_anew(kept, placebo)
        return cls(
            PairSummary.of([one.found for one in kept]),
            [pair for one in kept for pair in one.pairs],
            [answer for one in kept for answer in one.answers],
        )


@dataclass(frozen=True)
class _RowSet:
    """The pairs of one row, and its prompt and texts as token ids."""

    index: int
    prompt: list[int]
    ids: dict[str, list[int]]
    found: RowPairs

    @classmethod
    def of(cls, pairs: Sequence[FilePair], policy: Policy, row: Row, stop: Sequence[str]) -> _RowSet:
        """The pairs of one row that fit the policy's context; each text is one answer, in however many pairs it stands."""
        index, prompt, ids = pairs[0].row, policy.encode(row), dict[str, list[int]]()
        for text in dict.fromkeys(text for pair in pairs for text in (pair.chosen, pair.rejected)):
            ids[text] = policy.encode_answer(text, stop)
        room = None if policy.context is None else policy.context - len(prompt)
        fits = [p for p in pairs if room is None or max(len(ids[p.chosen]), len(ids[p.rejected])) <= room]
        labels = {p.chosen: True for p in fits} | {p.rejected: False for p in fits}
        answers = {
            text: JudgedAnswer(place, text, label, len(ids[text]))
            for place, (text, label) in enumerate(labels.items())
        }
        found = [AnswerPair(answers[p.chosen], answers[p.rejected]) for p in fits]
        return cls(index, prompt, ids, RowPairs(row.id, (), list(answers.values()), found))

    @property
    def pairs(self) -> list[PairExample]:
        """As token ids."""
        ids = self.ids
        return [
            PairExample(self.index, self.prompt, ids[p.chosen.text], ids[p.rejected.text])
            for p in self.found.pairs
        ]

    @property
    def answers(self) -> list[LabelledExample]:
        """Each of its texts, as token ids."""
        return [
            LabelledExample(self.index, self.prompt, self.ids[one.text], one.is_right)
            for one in self.found.answers
        ]


def _dealt_anew(rows: Sequence[_RowSet], seed: int) -> list[_RowSet]:
    """The placebo of a file: its texts, of each row as many called right, paired by the widest limits that the file kept to."""
    pairs = [pair for row in rows for pair in row.found.pairs]
    uses = Counter(
        (row.index, one.text)
        for row in rows
        for pair in row.found.pairs
        for one in (pair.chosen, pair.rejected)
    )
    gap, a_sample = max(pair.gap for pair in pairs), max(uses.values())
    dealt = []
    for row in rows:
        answers = shuffle_labels(row.found.answers, f"{seed}/{row.found.row}")
        limits = PairLimits(len(row.found.pairs), a_sample, gap)
        made = pair_up(answers, limits)
        cause = None if made else NoPair.LENGTHS
        dealt.append(replace(row, found=replace(row.found, answers=answers, pairs=made, cause=cause)))
    return dealt
