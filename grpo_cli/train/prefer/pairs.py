"""The pairs of one step of preference learning, as token ids: made from a step's groups, or read from a file.

How this works. `PairMethod` is the method of a `prefer` recipe; it decides which samples of a group make pairs, and
whether there are any. `PairSet` holds the pairs of a step as `PairExample` or, for KTO, `LabelledExample`. `in_order`
is the order in which they are learned. Samples keep the sampled ids, so the model learns exactly what it drew; only the
texts of a file are tokenised.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from grpo_cli.algorithm.credit import Credit
from grpo_cli.data.rows import Row
from grpo_cli.data.sources import SourceLike
from grpo_cli.preference.file import FilePair, count_unspelt, no_pair_fits, pairs_of_rows, read_pair_lines, unspelt_text
from grpo_cli.preference.pairs import (
    AnswerPair,
    JudgedAnswer,
    NoPair,
    PairLimits,
    PairSummary,
    RowPairs,
    pair_up,
    pairs_of_row,
    shuffle_labels,
)
from grpo_cli.recipe.sections.recipe import Prefer, Recipe
from grpo_cli.reward.group import Group
from grpo_cli.run.records import SampleRecord

if TYPE_CHECKING:
    from grpo_cli.policy.policy import Policy


@dataclass(frozen=True)
class PairSet:
    """Pairs as token ids, the answers usable without a pair, and their credit."""

    summary: PairSummary
    pairs: Sequence[PairExample]
    answers: Sequence[LabelledExample]

    @classmethod
    def of_groups(cls, groups: Sequence[Group], found: Sequence[RowPairs]) -> PairSet:
        """The pairs that `found` has for these groups, with the sampled ids."""
        pairs, answers = list[PairExample](), list[LabelledExample]()
        for group, row in zip(groups, found, strict=True):
            ids = [c.token_ids for c in group.completions]
            pairs += [
                PairExample(group.row, group.prompt_ids, ids[p.chosen.place], ids[p.rejected.place]) for p in row.pairs
            ]
            answers += [LabelledExample(group.row, group.prompt_ids, ids[a.place], a.is_right) for a in row.answers]
        return cls(PairSummary.of(found), pairs, answers)

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
        """The pairs of a file, whose texts are tokenised.

        Args:
            source: the file; its name is relative to `base`.
            policy: its tokenizer is used; pairs that do not fit its context are left out, and `note` gets their number.
            rows: training rows; every pair must belong to one.
            held_out: rows that no pair may belong to.
            stop: texts that end an answer without an end token.
            placebo: the seed with which right and wrong are shuffled among the answers of each row.

        Raises:
            DataError: as `read_pair_lines` and `pairs_of_rows`, and where no pair fits the model.
        """
        pairs = pairs_of_rows(read_pair_lines(source, base), rows, held_out)
        # row by row: a prompt is tokenised once, and a text in several pairs is one answer
        by_row: dict[int, list[FilePair]] = {}
        for pair in pairs:
            by_row.setdefault(pair.row, []).append(pair)
        made = [_RowSet.of(of, policy, rows[row], stop) for row, of in by_row.items()]
        kept = [one for one in made if one.pairs]
        left_out = len(pairs) - sum(len(one.pairs) for one in kept)
        if not kept:
            raise no_pair_fits(source, policy.context)
        broken = count_unspelt([(pair.chosen, pair.rejected) for pair in pairs])
        if broken:
            note(unspelt_text(broken, len(pairs)))
        if left_out:
            note(f"left out {left_out:,} of {len(pairs):,} pairs longer than the model's {policy.context} tokens")
        if placebo is not None:
            kept = _shuffled_anew(kept, placebo)
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
        """The pairs of one row that fit the policy's context; a text that occurs in several pairs is one answer."""
        index, prompt, ids = pairs[0].row, policy.encode(row), dict[str, list[int]]()
        for text in dict.fromkeys(text for pair in pairs for text in (pair.chosen, pair.rejected)):
            ids[text] = policy.encode_answer(text, stop)
        # a pair that does not fit is left out, not cut: the model would learn that the answer ends there
        room = None if policy.context is None else policy.context - len(prompt)
        fits = [p for p in pairs if room is None or max(len(ids[p.chosen]), len(ids[p.rejected])) <= room]
        labels = {p.chosen: True for p in fits} | {p.rejected: False for p in fits}
        answers = {
            text: JudgedAnswer(place, text, label, len(ids[text])) for place, (text, label) in enumerate(labels.items())
        }
        found = [AnswerPair(answers[p.chosen], answers[p.rejected]) for p in fits]
        return cls(index, prompt, ids, RowPairs(row.id, (), list(answers.values()), found))

    @property
    def pairs(self) -> list[PairExample]:
        """As token ids."""
        ids = self.ids
        return [
            PairExample(self.index, self.prompt, ids[p.chosen.text], ids[p.rejected.text]) for p in self.found.pairs
        ]

    @property
    def answers(self) -> list[LabelledExample]:
        """Each of its texts, as token ids."""
        return [
            LabelledExample(self.index, self.prompt, self.ids[one.text], one.is_right) for one in self.found.answers
        ]


def _shuffled_anew(rows: Sequence[_RowSet], seed: int) -> list[_RowSet]:
    """The placebo of a file: labels are shuffled inside each row, keeping their number, and texts are paired within the
    widest limits that the file itself observes."""
    pairs = [pair for row in rows for pair in row.found.pairs]
    uses = Counter(
        (row.index, one.text) for row in rows for pair in row.found.pairs for one in (pair.chosen, pair.rejected)
    )
    gap, a_sample = max(pair.gap for pair in pairs), max(uses.values())
    redistributed = []
    for row in rows:
        answers = shuffle_labels(row.found.answers, f"{seed}/{row.found.row}")
        limits = PairLimits(len(row.found.pairs), a_sample, gap)
        made = pair_up(answers, limits)
        cause = None if made else NoPair.LENGTHS
        redistributed.append(replace(row, found=replace(row.found, answers=answers, pairs=made, cause=cause)))
    return redistributed


# Pairs of a step as token ids, in the order in which they are learned. No torch.


@dataclass(frozen=True, slots=True)
class PairExample:
    """Token ids of a prompt, of the winner and of the loser."""

    row: int
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]

    @property
    def width(self) -> int:
        """Tokens of the prompt and the longer answer."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """Token ids of a prompt and of an answer to it, and whether it is right."""

    row: int
    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool

    @property
    def width(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.prompt_ids) + len(self.completion_ids)


Example = PairExample | LabelledExample
E_co = TypeVar("E_co", PairExample, LabelledExample)


def in_order(examples: Sequence[E_co], epochs: int, batch: int, seed: int) -> list[E_co]:
    """The examples of all epochs, each shuffled anew; an incomplete last batch is left out.

    Fewer examples than a batch form one batch.
    """
    # Python's random generator, not torch's: the order depends on the seed alone
    draw, found = random.Random(seed), list[E_co]()
    for _ in range(epochs):
        epoch = list(examples)
        draw.shuffle(epoch)
        found += epoch
    # an update with fewer pairs would have a noisier gradient at the same learning rate
    return found[: max(len(found) // batch * batch, min(len(found), batch))]


def keep_rows_apart(examples: Sequence[E_co], batch: int) -> list[E_co]:
    """These examples, reordered so that neighbours belong to different rows where possible.

    TRL's KTO estimates its KL from each prompt with the answer of the previous example in the micro-batch (the first
    with the last one's). If both were of one row, the answer would belong to that prompt.
    """
    rest, found = list(examples), list[E_co]()
    while rest:
        place = len(found) % batch
        near = {found[-1].row} if place else set[int]()
        if place and (place == batch - 1 or len(rest) == 1):
            near.add(found[len(found) - place].row)
        # no example of another row is left: take the first
        at = next((i for i, one in enumerate(rest) if one.row not in near), 0)
        found.append(rest.pop(at))
    return found


# Groups of samples as pairs: the credit of each sample, and whether a group has signal.


@dataclass(frozen=True)
class PairMethod:
    """`train.method: prefer`, which gives credit to groups as `Method` does.

    An advantage is the number of pairs that a sample wins minus the number it loses (`kto`: 1 or -1 for every usable
    sample). As elsewhere, 0 means that nothing is learned from the sample. `placebo` shuffles labels inside a row by
    this seed.
    """

    prefer: Prefer
    placebo: int | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> PairMethod:
        """The method of a recipe with `train.method: prefer`."""
        assert recipe.prefer is not None, "the recipe fills it in"
        return cls(recipe.prefer, recipe.train.seed if recipe.train.control == "shuffled" else None)

    def pairs(self, group: Group) -> RowPairs:
        """What one group gives."""
        samples = [
            SampleRecord(
                0,
                str(group.row),
                "",
                "",
                text,
                outcome=judgement.outcome,
                tokens=len(completion.token_ids),
                truncated=completion.finish == "length",
            )
            for completion, text, judgement in zip(group.completions, group.texts, group.judgements, strict=True)
        ]
        limits = PairLimits(a_row=self.prefer.pairs_a_row, gap=self.prefer.length_gap)
        placebo = None
        if self.placebo is not None:  # seed the shuffle by the samples: it then does not depend on batch or process
            placebo = f"{self.placebo}/{zlib.crc32(repr(group.texts).encode('utf-8', 'surrogatepass'))}"
        return pairs_of_row(str(group.row), samples, limits, placebo)

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """The credit of each sample of these groups, all of one size; there is no penalty here."""
        assert penalty_PG is None, "a KL is in these losses, or there is none"
        A_PG = torch.tensor([self._worth(group) for group in groups], dtype=torch.float64)
        return Credit(A_PG, torch.ones_like(A_PG, dtype=torch.bool), A_PG.ne(0).any(dim=1))

    def has_signal(self, group: Group) -> bool:
        """Whether it gives a pair (`kto`: any usable sample)."""
        return any(self._worth(group))

    def _worth(self, group: Group) -> list[float]:
        found, worth = self.pairs(group), [0.0] * len(group.texts)
        if self.prefer.loss == "kto":
            for answer in found.answers:
                worth[answer.place] = 1.0 if answer.is_right else -1.0
            return worth
        for pair in found.pairs:
            worth[pair.chosen.place] += 1.0
            worth[pair.rejected.place] -= 1.0
        return worth
