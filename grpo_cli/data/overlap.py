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
from math import ceil

from grpo_cli.data.rows import Row

_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]")
COMMON_ROWS = 50
COMMON_SHARE = 0.05
THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows and how much of them is shared, 1.0 for equal prompts; `first` is the earlier, or the training row."""

    first: Row
    second: Row
    similarity: float


def words(text: str) -> tuple[str, ...]:
    """The words, numbers and signs of a text, without case and white space: equal for equal questions."""
    return tuple(_WORD.findall(text.casefold()))


class Corpus:
    """Rows indexed for finding others like them.

    Two sets of n and m triples that share so much must share one of their rarest members: of n only the rarest
    n - ceil(threshold * n) + 1 are looked up (the prefix filter of set-similarity joins), then compared exactly.
    """

    def __init__(self, rows: Sequence[Row], threshold: float = THRESHOLD) -> None:
        self.rows = rows
        self._threshold = threshold
        self._number_of: dict[str, int] = {}
        self._words = [words(row.prompt) for row in rows]
        self._first: dict[tuple[str, ...], int] = {}
        for index, text in enumerate(self._words):
            self._first.setdefault(text, index)
        triples = {index: self._triples(text) for text, index in self._first.items()}
        self._rows_with = Counter(triple for found in triples.values() for triple in found)
        self._common = max(COMMON_ROWS, int(COMMON_SHARE * len(triples)))
        self._own = {index: self._rarest_first(found) for index, found in triples.items()}
        self._sets = {index: frozenset(own) for index, own in self._own.items() if own}
        self._rows_of: dict[int, list[int]] = defaultdict(list)
        for index, own in self._own.items():
            for triple in self._prefix(own):
                self._rows_of[triple].append(index)

    def duplicates(self) -> list[Pair]:
        """Each row that repeats an earlier one, with the most similar such; exact ones first."""
        exact, near = [], []
        for index, text in enumerate(self._words):
            first = self._first[text]
            if first != index:
                exact.append(Pair(self.rows[first], self.rows[index], 1.0))
            elif found := self._nearest(self._own[index], before=index):
                near.append(Pair(self.rows[found[0]], self.rows[index], found[1]))
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def overlap(self, held_out: Sequence[Row]) -> list[Pair]:
        """Each held-out row that is also one of these, with the most similar such; exact ones first."""
        exact, near = [], []
        for row in held_out:
            text = words(row.prompt)
            if text in self._first:
                exact.append(Pair(self.rows[self._first[text]], row, 1.0))
            elif found := self._nearest(self._rarest_first(self._triples(text)), before=len(self.rows)):
                near.append(Pair(self.rows[found[0]], row, found[1]))
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def _triples(self, text: tuple[str, ...]) -> set[int]:
        numbers = self._number_of
        at = [numbers.setdefault(word, len(numbers)) for word in text]
        if len(at) < 3:
            at += [-1] * (3 - len(at))
        return {(a << 64) + (b << 32) + c for a, b, c in zip(at, at[1:], at[2:], strict=False)}

    def _rarest_first(self, found: set[int]) -> list[int]:
        rows_with = self._rows_with
        ranked = sorted((rows_with[triple], triple) for triple in found)
        return [triple for count, triple in ranked if count <= self._common]

    def _prefix(self, own: list[int]) -> list[int]:
        return own[: len(own) - ceil(self._threshold * len(own)) + 1]

    def _nearest(self, own: list[int], before: int) -> tuple[int, float] | None:
        """The most similar row earlier than `before` and its similarity, the earliest of equals; None below the threshold."""
        asked = frozenset(own)
        candidates = {index for triple in self._prefix(own) for index in self._rows_of.get(triple, ())}
        best: tuple[int, float] | None = None
        for index in sorted(index for index in candidates if index < before):
            other = self._sets[index]
            shared = len(asked & other)
            similarity = shared / (len(asked) + len(other) - shared)
            if similarity >= self._threshold and (best is None or similarity > best[1]):
                best = index, similarity
        return best
