"""Finds suspicious rows from the data alone: often repeated, contradicting, or unlike the other rows of their template.

A row found here is not proven to be poisoned; somebody should read it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_cli.data.audit import TOKEN, words
from grpo_cli.data.rows import Row

MOST_COPIES = 3
"""A question with more rows than this is reported."""
MOST_EXPOSURE = 0.05
"""The share of all draws that one question may get, its copies counted."""
LEAST_DRAWS = 40
"""A question that is drawn less often than this cannot steer a run."""
LEAST_TEMPLATE = 20
"""Fewest rows of a template for which a usual shape of its golds is determined."""
RARE_SHAPE = 0.05
"""A shape of gold is rare if at most this share of the template's rows has it."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class RareGold:
    """A row whose gold has another shape than nearly all others of its template."""

    row: int
    shape: str
    usual: str
    share: float
    """Share of the template's rows whose gold has the same shape."""


@dataclass(frozen=True)
class RowSignals:
    """The suspicious rows of a set, given by their index."""

    copies: list[int]
    contradictions: list[tuple[int, ...]]
    rare: list[RareGold]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> RowSignals:
        """Find suspicious rows, in time about linear in their text."""
        return cls(count_copies(rows), find_contradictions(rows), find_rare_golds(rows))

    @property
    def repeated(self) -> list[int]:
        """Rows whose question comes more than `MOST_COPIES` times."""
        return [row for row, n in enumerate(self.copies) if n > MOST_COPIES]

    def shares(self) -> list[float]:
        """The expected share of all draws for each row's question, if rows are drawn uniformly."""
        return [n / len(self.copies) for n in self.copies]

    def exposed(self, draws: int) -> list[int]:
        """Rows whose question gets too large a share of a run that draws this many rows."""
        return [
            row for row, share in enumerate(self.shares()) if share >= MOST_EXPOSURE and share * draws >= LEAST_DRAWS
        ]

    def contradicting(self) -> set[int]:
        """Rows with the same question as another row but a different gold."""
        return {row for rows in self.contradictions for row in rows}


def count_copies(rows: Sequence[Row]) -> list[int]:
    """How many rows ask each row's question word for word, itself included.

    Near copies do not count: in a set made from one template all rows are near copies.
    """
    questions = [words(row.question) for row in rows]
    counts = Counter(questions)
    return [counts[text] for text in questions]


def find_contradictions(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Rows with the same question, word for word, and different golds; missing golds and lists are not compared."""
    questions: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if gold_of_row(row.fields) is not None:
            questions[words(row.question)].append(i)
    return [
        tuple(same)
        for same in questions.values()
        if len(same) > 1 and len({words(gold_of_row(rows[i].fields) or "") for i in same}) > 1
    ]


def find_rare_golds(rows: Sequence[Row]) -> list[RareGold]:
    """Rows whose gold is unlike those of their template.

    A template is a prompt with its numbers and capitalised words replaced by blanks. The shape of a gold is made in the
    same way.
    """
    templates: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if gold_of_row(row.fields) is not None:
            # numbers and capitalised words are the open places of a template
            open_ = (
                "0" if _NUMBER.fullmatch(token) else "A" if token[0].isupper() else token
                for token in TOKEN.findall(row.prompt)
            )
            templates[tuple(open_)].append(i)
    found: list[RareGold] = []
    for members in templates.values():
        if len(members) < LEAST_TEMPLATE:
            continue
        shapes = dict[int, str]()
        for i in members:
            # words of the prompt become blanks in the gold too: `unknown` and `Maria` are two shapes, `12` and `35` are
            # one
            named = {token for token in TOKEN.findall(rows[i].prompt) if token[0].isupper()}
            shapes[i] = " ".join(
                "0" if _NUMBER.fullmatch(token) else "A" if token in named else token.casefold()
                for token in TOKEN.findall(gold_of_row(rows[i].fields) or "")
            )
        counts = Counter(shapes.values())
        usual, most = counts.most_common(1)[0]
        if most < (1 - 2 * RARE_SHAPE) * len(members):
            continue
        for i in members:
            share = counts[shapes[i]] / len(members)
            if share <= RARE_SHAPE:
                found.append(RareGold(i, shapes[i], usual, share))
    return sorted(found, key=lambda rare: (rare.share, rare.row))


def gold_of_row(fields: Mapping[str, object]) -> str | None:
    """The gold as text; None unless the gold is a single text or number."""
    gold = fields.get("answer")
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return None
    return str(gold).strip() or None
