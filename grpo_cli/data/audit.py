"""Compiles the gold of every row once, and checks that each gold passes its own verifier before training starts.

A gold that its own verifier calls wrong would punish every right answer to its row, so it is reported as an error of
the data. With `drop` such rows are left out and listed; none is ever kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil
from typing import Any, Literal

from grpo_cli.data.files import WatchedFields
from grpo_cli.data.rows import Row
from grpo_cli.data.sources import SourceLike
from grpo_cli.data.template import FillError, parse
from grpo_cli.errors import DataError, Mistake, SetupError, kind_of
from grpo_verifiers.combine import SUM, CombineRule, NoVerifier, judges_of
from grpo_verifiers.names import near_or_known
from grpo_verifiers.text import placeholders
from grpo_verifiers.verdict import Outcome
from grpo_verifiers.verifier import BadGold, Sample, Unavailable, Verifier

# Rows that are the same question: within a set, and between training and held-out rows.

TOKEN = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]")
COMMON_ROWS = 5
COMMON_SHARE = 0.05
INSTRUCTION_SHARE = 0.5
"""Triples that more of the rows have are an instruction around the question."""
THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Pair:
    """Two similar rows and their similarity, 1.0 for equal prompts; `first` is the earlier row, or the training row."""

    first: Row
    second: Row
    similarity: float

    @property
    def is_exact(self) -> bool:
        """Whether both ask the same, rather than nearly the same."""
        return words(self.first.question) == words(self.second.question)


Words = tuple[str, ...]
Triples = set[Words]


def words(text: str) -> Words:
    """The words, numbers and signs of a text, without case and white space: equal for equal questions."""
    return tuple(TOKEN.findall(text.casefold()))


class Corpus:
    """An index of rows that finds similar ones.

    Most rows are settled at once: a row whose rare triples mostly occur in no other row has no near copy. The others
    are looked up by the rarest n - ceil(THRESHOLD * n) + 1 of their n triples (the prefix filter of set-similarity
    joins: two sets above the threshold must share one of these). The rows found are compared exactly, by all triples
    except those of an instruction that most rows share; wordings of many rows still distinguish questions.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._words = [words(row.question) for row in rows]
        self._first: dict[Words, int] = {}
        for index, text in enumerate(self._words):
            self._first.setdefault(text, index)
        triples = {index: _triples(text) for text, index in self._first.items()}
        self._rows_with = Counter(chain.from_iterable(triples.values()))
        limit = max(COMMON_ROWS, int(COMMON_SHARE * len(triples)))
        self._common = {triple for triple, count in self._rows_with.items() if count > limit}
        self._own = {index: found - self._common for index, found in triples.items()}
        most = max(limit, INSTRUCTION_SHARE * len(triples))
        self._instruction = {triple for triple in self._common if self._rows_with[triple] > most}
        self._asked = {index: found - self._instruction for index, found in triples.items()}

    def duplicates(self) -> list[Pair]:
        """Each row that repeats an earlier row, with the most similar earlier row; exact repetitions first."""
        repeated = {triple for triple, count in self._rows_with.items() if count > 1}
        near_rows = [index for index, own in self._own.items() if self._may_match(own, repeated)]
        rows_of = self._rows_of(near_rows)
        near = []
        for index in near_rows:
            if found := self._nearest(self._own[index], self._asked[index], rows_of, before=index):
                near.append(Pair(self.rows[found[0]], self.rows[index], found[1]))
        exact = [
            Pair(self.rows[self._first[text]], self.rows[index], 1.0)
            for index, text in enumerate(self._words)
            if self._first[text] != index
        ]
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def overlap(self, held_out: Sequence[Row]) -> list[Pair]:
        """Each held-out row that repeats an indexed row, with the most similar of them; exact repetitions first."""
        exact, asked = [], []
        for row in held_out:
            text = words(row.question)
            if text in self._first:
                exact.append(Pair(self.rows[self._first[text]], row, 1.0))
            else:
                asked.append((row, _triples(text)))
        theirs = set(chain.from_iterable(found - self._common for _, found in asked))
        rows_of = self._rows_of([index for index, own in self._own.items() if self._may_match(own, theirs)])
        near = []
        for row, triples in asked:
            own = triples - self._common
            if found := self._nearest(own, triples - self._instruction, rows_of, before=len(self.rows)):
                near.append(Pair(self.rows[found[0]], row, found[1]))
        return exact + sorted(near, key=lambda pair: -pair.similarity)

    def _may_match(self, own: Triples, others: Triples) -> bool:
        return bool(own) and len(own & others) >= THRESHOLD * len(own)

    def _rows_of(self, indices: Sequence[int]) -> dict[Words, list[int]]:
        rows_of: dict[Words, list[int]] = defaultdict(list)
        for index in indices:
            for triple in self._prefix(self._own[index]):
                rows_of[triple].append(index)
        return rows_of

    def _prefix(self, own: Triples) -> list[Words]:
        ranked = sorted(own, key=lambda triple: (self._rows_with[triple], triple))
        return ranked[: len(own) - ceil(THRESHOLD * len(own)) + 1]

    def _nearest(
        self, own: Triples, asked: Triples, rows_of: dict[Words, list[int]], before: int
    ) -> tuple[int, float] | None:
        """The most similar row earlier than `before` and its similarity, the earliest of equals; None below the threshold."""
        candidates = {index for triple in self._prefix(own) for index in rows_of.get(triple, ())}
        best: tuple[int, float] | None = None
        for index in sorted(index for index in candidates if index < before):
            other = self._asked[index]
            shared = len(asked & other)
            similarity = shared / (len(asked) + len(other) - shared)
            if similarity >= THRESHOLD and (best is None or similarity > best[1]):
                best = index, similarity
        return best


def held_out_among(rows: Sequence[Row], held_out: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The rows that are also held out, each with its held-out row; case and white space are ignored."""
    kept_back = {words(row.question): row for row in held_out}
    return [(one, row) for one in rows if (row := kept_back.get(words(one.question))) is not None]


def refuse_held_out(rows: Sequence[Row], held_out: Sequence[Row], place: str) -> None:
    """Refuse training rows that are also held out; case and white space are ignored.

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


def refuse_shown(
    key: str, source: SourceLike | None, templates: Sequence[str], rows: Sequence[Row], held_out: Sequence[Row]
) -> None:
    """Refuse demonstrations that cannot be made from these rows, or that show held-out rows.

    Args:
        key: the recipe key of the phase of supervised training.
        source: the source of the phase's own rows; None where it uses the training rows.
        templates: of the demonstrations; a row draws one of them, so every row must fill all.

    Raises:
        DataError: a row that does not fill a template, or samples of a held-out row.
    """
    if source is not None and source.source.startswith("run:"):
        refuse_held_out(rows, held_out, source.source)
    for template in map(parse, templates):
        for row in rows:
            try:
                template.fill(row.fields)
            except FillError as err:
                raise DataError(f"`{key}.demonstration`: {err}", place=row.place) from err


def _triples(text: Words) -> Triples:
    return set(zip(text, text[1:], text[2:], strict=False)) if len(text) > 2 else {text}


BATCH = 256
MISSING = object()


@dataclass(frozen=True, slots=True)
class GoldAudit:
    """The rows with valid golds, their golds per verifier in the same order, and the rows left out with the reason.

    `doubtful` rows are kept: their gold looks like a placeholder for a missing one, but may be meant. `refused` holds,
    per verifier, the golds of rows that were left out.
    """

    rows: list[Row]
    golds: dict[str, list[Any]]
    dropped: list[Mistake]
    doubtful: list[Mistake] = field(default_factory=list)
    refused: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Gold:
    """A compiled gold and a completion that must be right for it, or the reason why there is none."""

    gold: Any = None
    text: str | None = None
    problem: str = ""


def audit_golds(
    rows: Sequence[Row],
    verifiers: Mapping[str, Verifier],
    on_bad_gold: Literal["error", "drop"] = "error",
    rule: CombineRule = SUM,
) -> GoldAudit:
    """Compile the gold of every row for every verifier that judges it, and run each gold through its own verifier.

    With the rule `by` a row has a gold only for the verifier that the row names, and None for the others.

    Raises:
        DataError: a gold is bad and `on_bad_gold` is `error`, or no row is left.
        SetupError: a verifier cannot run on this machine.
    """
    mistakes: dict[int, Mistake] = {}
    is_chosen = rule.method == "by"
    rows_of: dict[str, list[int]] = {name: [] if is_chosen else list(range(len(rows))) for name in verifiers}
    for index, row in enumerate(rows if is_chosen else ()):
        try:
            for name in judges_of(row.fields, verifiers, rule):
                rows_of[name].append(index)
        except NoVerifier as err:
            mistakes[index] = Mistake(row.place, str(err), kind=kind_of(str(err), row.fields.values()))
    golds: dict[str, list[Any]] = {name: [None] * len(rows) for name in verifiers}
    for name, verifier in verifiers.items():
        try:
            found = _compile([rows[index] for index in rows_of[name]], verifier)
        except Unavailable as err:
            raise SetupError(str(err), place=f"verify.{name}", hint=err.hint) from err
        for index, gold in zip(rows_of[name], found, strict=True):
            golds[name][index] = gold.gold
            if gold.problem and index not in mistakes:
                message = f"`verify.{name}` cannot use this row: {gold.problem}"
                own = [gold.text, *(rows[index].fields.get(column) for column in verifier.columns)]
                mistakes[index] = Mistake(rows[index].place, message, kind=kind_of(message, own))
    dropped = [mistakes[index] for index in sorted(mistakes)]
    if dropped and on_bad_gold == "error":
        raise DataError(dropped, hint="fix the rows, or set `data.on_bad_gold: drop` to leave them out")
    kept = [index for index in range(len(rows)) if index not in mistakes]
    if rows and not kept:
        raise DataError(dropped, hint="every row has a bad gold: look at `data.answer`, `gold` and the verifier first")
    return GoldAudit(
        [rows[i] for i in kept],
        {name: [found[i] for i in kept] for name, found in golds.items()},
        dropped,
        [
            Mistake(rows[i].place, f"the answer {none[0]!r} reads like none")
            for i in kept
            if (none := placeholders(rows[i].fields.get("answer")))
        ],
        {name: [found[i] for i in mistakes if found[i] is not None] for name, found in golds.items()},
    )


def _compile(rows: Sequence[Row], verifier: Verifier) -> list[_Gold]:
    # rows of equal golds are compiled and judged once: a set of a hundred thousand rows often has a few thousand
    # first by the columns that the verifier names, then by all fields that were read while an earlier row was compiled
    seen: dict[str, list[tuple[dict[str, Any], int]]] = defaultdict(list)
    known: list[_Gold] = []
    index_of: list[int] = []
    firsts: list[Row] = []
    for row in rows:
        alike = seen[json.dumps([row.fields.get(name) for name in verifier.columns], ensure_ascii=False)]
        agrees = (i for read, i in alike if all(row.fields.get(name, MISSING) == v for name, v in read.items()))
        if (index := next(agrees, None)) is None:
            watched = WatchedFields(row.fields)
            index = len(known)
            lacks = next((column for column in verifier.columns if column not in row.fields), None)
            try:
                if lacks is not None:
                    raise BadGold(f"no column `{lacks}`{near_or_known(lacks, list(row.fields))}")
                known.append(_Gold(verifier.compile(watched), verifier.gold_text(watched)))
            except BadGold as err:
                known.append(_Gold(problem=str(err)))
            firsts.append(row)
            if len(alike) < 8:  # for a verifier that reads whole rows a longer list brings nothing
                alike.append(({name: row.fields.get(name, MISSING) for name in watched.read}, index))
        index_of.append(index)
    # a gold that its own verifier does not pass would never be paid, whatever the model writes
    pending = [
        (index, Sample(gold.text, gold.gold, firsts[index].prompt))
        for index, gold in enumerate(known)
        if gold.text is not None
    ]
    for start in range(0, len(pending), BATCH):
        batch = pending[start : start + BATCH]
        verdicts = verifier.judge([sample for _, sample in batch])
        for (index, sample), verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is Outcome.RIGHT:
                continue
            shown = sample.completion if len(sample.completion) <= 60 else "…" + sample.completion[-59:]
            why = verdict.detail or verdict.reason or verdict.outcome.value
            if verdict.reason in ("not_supported", "untrusted_objects"):
                why = f"{verdict.reason}: {verdict.detail}"
            problem = f"the gold does not pass its own verifier: {shown!r} is {verdict.outcome.value} ({why})"
            if verdict.outcome is Outcome.ERROR:
                problem = f"the verifier fails on the gold {shown!r}: {why}"
            known[index] = replace(known[index], problem=problem)
    return [known[index] for index in index_of]
