"""A file of pairs as `grpo pairs` writes it, read back: every line with its place, and compared with the rows of a recipe.

How this works. `pair_lines` and `answer_lines` make the lines that `grpo pairs` writes, under the names that TRL's data
sets have. `read_pair_lines` reads such a file, `pairs_of_rows` finds the training row of each pair by its prompt, and
refuses pairs of held-out rows. `count_unspelt` counts texts that are not what was drawn: bytes that spell nothing
became U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.data.audit import held_out_among
from grpo_cli.data.files import Record
from grpo_cli.data.rows import Row
from grpo_cli.data.sources import SourceLike, broken_lines, load_source
from grpo_cli.errors import DataError, Mistake
from grpo_cli.preference.pairs import RowPairs

KEY = "prefer.data"
TEXTS = ("prompt", "chosen", "rejected")
WRITES = "`grpo pairs RUN` writes such lines"


@dataclass(frozen=True, slots=True)
class PairLine:
    """One line: a winner and a loser that answer `prompt`; `row` is the id of its row, empty where the line has none."""

    row: str
    prompt: str
    chosen: str
    rejected: str
    place: str


@dataclass(frozen=True, slots=True)
class FilePair:
    """A winner and a loser that answer the training row at index `row`."""

    row: int
    chosen: str
    rejected: str


def read_pair_lines(source: SourceLike, base: Path | None) -> list[PairLine]:
    """The lines of a source; its name is relative to `base`, else to the current folder.

    Raises:
        DataError: no such file, an empty one, and every line that is no pair, or calls a text a loser that an earlier line of
            the same prompt calls a winner, or the other way round.
    """
    loaded = load_source(source, "train", base, KEY)
    if loaded.broken:
        raise broken_lines(loaded.broken)
    lines: list[PairLine] = []
    mistakes: list[Mistake] = []
    called: dict[tuple[str, str, str], tuple[str, str]] = {}
    for record in loaded.records:
        line = _line(record)
        if isinstance(line, Mistake):
            mistakes.append(line)
            continue
        for kind, text in (("a winner", line.chosen), ("a loser", line.rejected)):
            before, place = called.setdefault((line.row, line.prompt, text), (kind, line.place))
            if before != kind:
                mistakes.append(Mistake(line.place, f"{kind} of this line is {before} in {place}"))
        lines.append(line)
    if mistakes:
        raise DataError(mistakes, hint=WRITES)
    return lines


def _line(record: Record) -> PairLine | Mistake:
    fields = record.fields
    if "label" in fields and "chosen" not in fields:
        return Mistake(record.place, "no pair but a single answer: `grpo pairs --unpaired` wrote it")
    for key in TEXTS:
        if not isinstance(fields.get(key), str):
            return Mistake(record.place, f"no pair: {f'`{key}` must be text' if key in fields else f'no `{key}`'}")
    if fields["chosen"] == fields["rejected"]:
        return Mistake(record.place, "no pair: `chosen` and `rejected` are the same text")
    row = fields.get("row")
    row_id = row if isinstance(row, str) else ""
    return PairLine(row_id, fields["prompt"], fields["chosen"], fields["rejected"], record.place)


def pairs_of_rows(lines: Sequence[PairLine], rows: Sequence[Row], held_out: Sequence[Row]) -> list[FilePair]:
    """The pairs with the training rows that they answer; a line belongs to a row by its prompt, word for word, and
    among rows of the same prompt by the row's id.

    Raises:
        DataError: pairs of held-out rows, or of rows that are none of these.
    """
    asked = [Row(line.row, line.prompt, None, {}, line.place) for line in lines]
    if kept_back := held_out_among(asked, held_out):
        first, row = kept_back[0]
        raise DataError(
            f"{len(kept_back):,} of {len(lines):,} pairs are of held-out rows, first row `{row.id}` ({row.place}):"
            " what is measured must not be learned from",
            place=first.place,
            hint="take these lines out, or make the pairs anew with `grpo pairs`",
        )
    by_prompt: dict[str, int] = {}
    for index, row in enumerate(rows):
        by_prompt.setdefault(row.prompt, index)
    by_id = {(row.id, row.prompt): index for index, row in enumerate(rows)}
    places = [by_id.get((line.row, line.prompt), by_prompt.get(line.prompt)) for line in lines]
    strange = [line for line, index in zip(lines, places, strict=True) if index is None]
    if strange:
        raise DataError(
            f"{len(strange):,} of {len(lines):,} pairs are of rows that the recipe does not train on, first row"
            f" `{strange[0].row or strange[0].prompt[:60]}`: pairs of another recipe",
            place=strange[0].place,
            hint="a pair belongs to a row by its prompt, word for word: `data` must be what the samples were drawn with",
        )
    return [
        FilePair(index, line.chosen, line.rejected)
        for line, index in zip(lines, places, strict=True)
        if index is not None
    ]


def no_pair_fits(source: SourceLike, context: int | None) -> DataError:
    """The error where no pair of a file fits the model's context in tokens."""
    return DataError(f"no pair of `{source.source}` fits the model's {context} tokens", place=KEY)


# Lines of a file of pairs, under the names that TRL's data sets have; the other keys are for people.

ANSWERS = ("chosen", "rejected", "completion")
"""The keys under which a line holds what a model has written."""


def pair_lines(row: RowPairs) -> Iterator[dict[str, Any]]:
    """One line a pair: `prompt`, `chosen`, `rejected`, and the row, lengths and steps they come from."""
    for pair in row.pairs:
        winner, loser = row.samples[pair.chosen.place], row.samples[pair.rejected.place]
        yield {
            "row": winner.row,
            "prompt": winner.prompt,
            "chosen": pair.chosen.text,
            "rejected": pair.rejected.text,
            "chosen_length": pair.chosen.length,
            "rejected_length": pair.rejected.length,
            "chosen_step": winner.step,
            "rejected_step": loser.step,
        }


def answer_lines(row: RowPairs) -> Iterator[dict[str, Any]]:
    """One line a whole, judged, distinct answer: `prompt`, `completion` and `label`, as KTO takes them."""
    for answer in row.answers:
        sample = row.samples[answer.place]
        yield {
            "row": sample.row,
            "prompt": sample.prompt,
            "completion": answer.text,
            "label": answer.is_right,
            "length": answer.length,
            "step": sample.step,
        }


# Texts that are not what was drawn: bytes that spell nothing became U+FFFD, which is tokenised as itself.

UNSPELT = "\ufffd"
"""What decoders put where tokens spell no text."""


def count_unspelt(items: Sequence[Sequence[str]]) -> int:
    """How many of these pairs, or answers alone, hold such a text."""
    return sum(any(UNSPELT in text for text in texts) for texts in items)


def unspelt_text(broken: int, total: int, what: str = "pairs") -> str:
    """The sentence about `broken` of `total`; both making pairs and learning from a file print it."""
    return (
        f"{broken:,} of {total:,} {what} hold U+FFFD, as bytes do that spell no text: what is learned is not what"
        " was drawn"
    )
