"""Rows that are the same question: within a set, and between training and held-out rows.

Near means Jaccard >= `threshold` over the prompts' word triples, found exactly (no MinHash, so nothing is
missed by chance). Triples that stand in many rows are the template's, not the question's, and do not count:
without that, every row of a task with long instructions would be a near copy of every other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError

_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]")
COMMON_ROWS = 5
COMMON_SHARE = 0.05
THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows and how much of them is shared, 1.0 for equal prompts; `first` is the earlier, or the training row."""

    first: Row
    second: Row
    similarity: float


Words = tuple[str, ...]
Triples = set[Words]


def words(text: str) -> Words:
    """The words, numbers and signs of a text, without case and white space: equal for equal questions."""
    return tuple(_WORD.findall(text.casefold()))


class Corpus:
    """Rows indexed for finding others like them.

    A row whose rare triples mostly stand in no other row cannot be near one, which settles nearly all of them at
    once; the rest are looked up by the rarest n - ceil(threshold * n) + 1 of their n triples, since two sets that
    share so much must share one of those (the prefix filter of set-similarity joins), and compared exactly.
    """

    def __init__(self, rows: Sequence[Row], threshold: float = THRESHOLD) -> None:
        self.rows = rows
        self._threshold = threshold
        self._words = [words(row.prompt) for row in rows]
        self._first: dict[Words, int] = {}
        for index, text in enumerate(self._words):
            self._first.setdefault(text, index)
        triples = {index: _triples(text) for text, index in self._first.items()}
        self._rows_with = Counter(chain.from_iterable(triples.values()))
        limit = max(COMMON_ROWS, int(COMMON_SHARE * len(triples)))
        self._common = {triple for triple, count in self._rows_with.items() if count > limit}
        self._own = {index: found - self._common for index, found in triples.items()}

    def duplicates(self) -> list[Pair]:
        """Each row that repeats an earlier one, with the most similar such; exact ones first."""
        repeated = {triple for triple, count in self._rows_with.items() if count > 1}
        near_rows = [index for index, own in self._own.items() if self._may_match(own, repeated)]
        rows_of = self._rows_of(near_rows)
        near = []
        for index in near_rows:
            if found := self._nearest(self._own[index], rows_of, before=index):
                near.append(Pair(self.rows[found[0]], self.rows[index], found[1]))
        exact = [
            Pair(self.rows[self._first[text]], self.rows[index], 1.0)
            for index, text in enumerate(self._words)
            if self._first[text] != index
        ]
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def overlap(self, held_out: Sequence[Row]) -> list[Pair]:
        """Each held-out row that is also one of these, with the most similar such; exact ones first."""
        exact, asked = [], []
        for row in held_out:
            text = words(row.prompt)
            if text in self._first:
                exact.append(Pair(self.rows[self._first[text]], row, 1.0))
            else:
                asked.append((row, _triples(text) - self._common))
        theirs = set(chain.from_iterable(own for _, own in asked))
        rows_of = self._rows_of([index for index, own in self._own.items() if self._may_match(own, theirs)])
        near = []
        for row, own in asked:
            if found := self._nearest(own, rows_of, before=len(self.rows)):
                near.append(Pair(self.rows[found[0]], row, found[1]))
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def _may_match(self, own: Triples, others: Triples) -> bool:
        return bool(own) and len(own & others) >= self._threshold * len(own)

    def _rows_of(self, indices: Sequence[int]) -> dict[Words, list[int]]:
        rows_of: dict[Words, list[int]] = defaultdict(list)
        for index in indices:
            for triple in self._prefix(self._own[index]):
                rows_of[triple].append(index)
        return rows_of

    def _prefix(self, own: Triples) -> list[Words]:
        ranked = sorted(own, key=lambda triple: (self._rows_with[triple], triple))
        return ranked[: len(own) - ceil(self._threshold * len(own)) + 1]

    def _nearest(
        self, own: Triples, rows_of: dict[Words, list[int]], before: int
    ) -> tuple[int, float] | None:
        """The most similar row earlier than `before` and its similarity, the earliest of equals; None below the threshold."""
        candidates = {index for triple in self._prefix(own) for index in rows_of.get(triple, ())}
        best: tuple[int, float] | None = None
        for index in sorted(index for index in candidates if index < before):
            other = self._own[index]
            shared = len(own & other)
            similarity = shared / (len(own) + len(other) - shared)
            if similarity >= self._threshold and (best is None or similarity > best[1]):
                best = index, similarity
        return best


def held_out_among(rows: Sequence[Row], held_out: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The rows that are held-out ones, each with that one; read without case and white space."""
    kept_back = {words(row.prompt): row for row in held_out}
    return [(one, row) for one in rows if (row := kept_back.get(words(one.prompt))) is not None]


def refuse_held_out(rows: Sequence[Row], held_out: Sequence[Row], place: str) -> None:
    """Refuse rows to learn from that are held-out ones, read without case and white space.

    Raises:
        DataError: with the first such row.
    """
    found = {row.id: row for _, row in held_out_among(rows, held_out)}
    if found:
        first = next(iter(found.values()))
        raise DataError(
            f"samples of {len(found):,} held-out rows, first row `{first.id}` ({first.place}):"
            " what is measured must not be learned from",
            place=place,
        )


def _triples(text: Words) -> Triples:
    return set(zip(text, text[1:], text[2:], strict=False)) if len(text) > 2 else {text}
