"""Rows as training, evaluation and audits use them: an id, a prompt, and every field that a verifier may read.

`fields` holds every column of the source, with `answer` replaced by the recipe's answer template and the
recipe's `data.columns` added. The id is a hash of the source row, never of the filled prompt: a reworded
template keeps the ids, so runs with different prompts can be compared row by row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from grpo_cli.data.files import Record
from grpo_cli.data.filters import FilterError, as_text
from grpo_cli.data.images import MARK, RowImage, image_column, placed, read_images
from grpo_cli.data.messages import BadMessages, Message, prompt_text, read_messages, read_tools
from grpo_cli.data.sources import SourceLike, Which, broken_lines, load_source, mix
from grpo_cli.data.template import (
    FillError,
    MissingColumn,
    NullValue,
    Template,
    TemplateError,
    column_or_template,
    gold_of,
    parse,
    refused,
)
from grpo_cli.data.where import Where, parse_where
from grpo_cli.errors import DataError, Mistake, RecipeError


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt with its gold. `messages` is None where `data.plain` asks for bare text. `place` is its file and line,
    `tools` are the tools that the model may call, `prefill` is the beginning of the answer, `images` what the marks in its
    texts stand for."""

    id: str
    prompt: str
    messages: list[Message] | None
    fields: dict[str, Any]
    place: str = field(default="", compare=False)
    tools: list[dict[str, Any]] | None = None
    prefill: str = ""
    images: tuple[RowImage, ...] = ()

    @property
    def question(self) -> str:
        """What rows are compared by: the prompt; with images one word, since texts of different images are often alike."""
        if not self.images:
            return self.prompt
        parts = [*self.prompt.casefold().split(), *(image.sha256 for image in self.images)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Split:
    """Rows, and the compiled golds of every verifier in the same order."""

    rows: list[Row]
    golds: dict[str, list[Any]]

    def take(self, places: Sequence[int]) -> Split:
        """The rows at these places, in this order."""
        golds = {name: [of[i] for i in places] for name, of in self.golds.items()}
        return Split([self.rows[i] for i in places], golds)


class DataLike(Protocol):
    """The `data` section of a recipe (`recipe.Data`)."""

    @property
    def train(self) -> Sequence[SourceLike]: ...
    @property
    def eval(self) -> SourceLike | Sequence[SourceLike] | None: ...

    system: str | None
    prompt: str
    prefill: str | None
    answer: str | None
    id: str | None
    plain: bool

    @property
    def columns(self) -> Mapping[str, str]: ...

    images: str | list[str] | None
    where: str | None
    on_null: Literal["error", "drop"]


def load_rows(
    data: DataLike, which: Which, base: Path | None = None, note: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """The rows of `data.train` or `data.eval`, filled and with unique ids; file names count from `base`, then from here.
    `note` gets how many rows `data.where` and `data.on_null` left out.

    Raises:
        RecipeError: a template that cannot be read, or an unknown option of a source.
        DataError: every broken line and every row that cannot be filled, with `file:line`.
        SetupError: a file that may not be read, a missing package, no network.
    """
    layout = RowLayout.of(data)
    named = named_sources(data, which)
    loaded = [load_source(source, which, base, key) for key, source in named]
    broken = [item for part in loaded for item in part.broken]
    if broken:
        raise broken_lines(broken)
    records = mix([part.records for part in loaded], [source.weight for _, source in named])
    filled = fill_rows(records, layout)
    for line in filled.left_out():
        note(f"{which}: {line}")
    return filled.rows


def named_sources(data: DataLike, which: Which) -> list[tuple[str, SourceLike]]:
    """The sources of one split with the recipe keys that name them.

    Raises:
        RecipeError: no held-out source.
    """
    if which == "train":
        many = len(data.train) > 1
        return [(f"data.train[{i}]" if many else "data.train", s) for i, s in enumerate(data.train)]
    if data.eval is None:
        raise RecipeError("the recipe has no `data.eval`", place="data.eval")
    if isinstance(data.eval, Sequence):
        return [(f"data.eval[{i}]", source) for i, source in enumerate(data.eval)]
    return [("data.eval", data.eval)]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How a source row becomes a `Row`: the parsed templates of a recipe's data section."""

    prompt: Template
    answer: Template | None
    id: Template | None
    columns: dict[str, Template]
    system: Template | None
    plain: bool
    prefill: Template | None = None
    where: Where | None = None
    drops_null: bool = False
    images: tuple[Template, ...] | None = None
    """None: the recipe says nothing of images, so rows must have none."""

    @classmethod
    def of(cls, data: DataLike) -> RowLayout:
        """Parse the templates.

        Raises:
            RecipeError: every template that cannot be read.
        """
        mistakes: list[Mistake] = []

        def read(key: str, source: str, bare: bool = False, loose: bool = False) -> Template:
            try:
                return column_or_template(source) if bare else parse(source, loose=loose)
            except TemplateError as err:
                mistakes.append(template_mistake(f"data.{key}", source, err))
                return parse("")

        named = [data.images] if isinstance(data.images, str) else data.images
        where = None
        if data.where is not None:
            try:
                where = parse_where(data.where)
            except TemplateError as err:
                mistakes.append(template_mistake("data.where", data.where, err))
        layout = cls(
            prompt=read("prompt", data.prompt),
            answer=None if data.answer is None else read("answer", data.answer),
            id=None if data.id is None else read("id", data.id, bare=True),
            columns={name: read(f"columns.{name}", source, bare=True) for name, source in data.columns.items()},
            system=None if data.system is None else read("system", data.system, loose=True),
            plain=data.plain,
            prefill=None if data.prefill is None else read("prefill", data.prefill, loose=True),
            where=where,
            drops_null=data.on_null == "drop",
            images=None if named is None else tuple(read("images", source, bare=True) for source in named),
        )
        for key, words in (("data.system", layout.system), ("data.prefill", layout.prefill)):
            mistakes += [Mistake(key, why) for why in leaked_golds(words, layout.answer)]
        if mistakes:
            raise RecipeError(mistakes)
        return layout

    def make(self, record: Record, row_id: str) -> Row:
        """The row of one record.

        Raises:
            FillError, BadMessages: it cannot be filled.
        """
        fields, is_filled = dict(record.fields), bool(record.row)
        template = None if is_filled else self.answer
        answer = record.fields.get("answer") if template is None else gold_of(template, record.fields)
        if self.drops_null and answer is None and "answer" in fields:
            raise NullValue("`answer` is null")
        if template is not None or "answer" in fields:
            # numbers become the text that a model would write; lists and objects stay as they are for verifiers that
            # read them
            fields["answer"] = as_text(answer) if isinstance(answer, bool | int | float) else answer
        columns = {} if is_filled else self.columns
        fields.update((name, column.value(record.fields)) for name, column in columns.items())
        images = read_images([one.value(record.fields) for one in self.images], record.folder) if self.images else ()
        if images:
            fields.setdefault("image_sha256", [image.sha256 for image in images])
        value = self.prompt.value(record.fields)
        system = None
        if self.system is not None:
            text = self.system.fill(record.fields)
            # a template that a row fills with the empty string gives no system turn; an empty string in the recipe
            # gives one
            system = text if text.strip() or not self.system.columns else None
        prefill = self.prefill.fill(record.fields) if self.prefill is not None else ""
        if isinstance(value, list):
            messages = read_messages(value, system, sees=bool(images))
            if images:
                last = max(i for i, message in enumerate(messages) if message["role"] == "user")
                if not any(MARK in message["content"] for message in messages):
                    messages[last]["content"] = placed(messages[last]["content"], len(images))
                placed("".join(message["content"] for message in messages), len(images))
            if self.plain:
                raise BadMessages("the prompt is a list of messages, but `data.plain` wants text")
            tools = read_tools(record.fields.get("tools"), is_chat=True)
            return Row(row_id, prompt_text(messages), messages, fields, record.place, tools, prefill, images)
        try:
            prompt = as_text(value)
        except FilterError as err:
            raise refused(self.prompt.source, err) from err
        if not prompt.strip():
            raise NullValue("the prompt is empty")
        prompt = placed(prompt, len(images)) if images else prompt
        if self.plain:
            text = f"{system}\n\n{prompt}" if system else prompt
            return Row(row_id, text, None, fields, record.place, prefill=prefill)
        tools = read_tools(record.fields.get("tools"), is_chat=False)
        chat = [] if system is None else [{"role": "system", "content": system}]
        chat.append({"role": "user", "content": prompt})
        return Row(row_id, prompt, chat, fields, record.place, tools, prefill, images)


def leaked_golds(words: Template | None, answer: Template | None) -> list[str]:
    """The mistake of a text for the model that contains the gold's column: it would give the answer away."""
    golds = {"answer"} if answer is None else {path.partition(".")[0] for path in answer.columns} | {"answer"}
    paths = [] if words is None else [path for path in words.columns if path.partition(".")[0] in golds]
    return [f"would tell the gold: `{{{path}}}` is its column; write `{{{{{path}}}}}` for braces" for path in paths]


def template_mistake(place: str, source: str, err: TemplateError) -> Mistake:
    """A template's error, with the position in the template underlined."""
    start = source.rfind("\n", 0, err.at) + 1
    line = source[start:].splitlines()[0] if source[start:] else ""
    return Mistake(place, str(err), f"    {line}\n    {' ' * (err.at - start)}^")


@dataclass(frozen=True, slots=True)
class FilledRows:
    """The rows, the number that `where` dropped, and the number left out because of a null, with the first reason."""

    rows: list[Row]
    total: int
    unkept: int
    nulls: list[Mistake]

    def left_out(self) -> list[str]:
        """One sentence for each reason that left rows out."""
        lines = [f"`data.where` keeps {self.total - self.unkept:,} of {self.total:,} rows"] if self.unkept else []
        if self.nulls:
            first = self.nulls[0]
            count = f"dropped {len(self.nulls):,} of {self.total - self.unkept:,} rows with a null"
            lines.append(f"{count}, first {first.place}: {first.message}")
        return lines


def fill_rows(records: Sequence[Record], layout: RowLayout) -> FilledRows:
    """The rows of all records that `where` keeps, in order.

    Raises:
        DataError: every row that cannot be filled (a column missing from many rows is named once), or no row is left.
    """
    rows: list[Row] = []
    nulls: list[Mistake] = []
    unkept = 0
    mistakes: list[Mistake] = []
    missing: dict[str, list[tuple[Record, MissingColumn]]] = {}
    ids = IdGiver(layout.id)
    for record in records if layout.images is None else ():
        if not record.row and (column := image_column(record.fields)) is not None:
            raise DataError(
                f"the column `{column}` holds images, and the recipe does not show them to the model",
                place=record.place,
                hint=f'`data.images: "{{{column}}}"` shows them, `data.images: []` trains on the text alone',
            )
    for record in records:
        try:
            if layout.where is not None and not layout.where.keeps(record.fields):
                unkept += 1
                continue
            rows.append(layout.make(record, ids.of(record)))
        except MissingColumn as err:
            missing.setdefault(err.column, []).append((record, err))
        except NullValue as err:
            (nulls if layout.drops_null else mistakes).append(Mistake(record.place, str(err)))
        except (FillError, BadMessages) as err:
            mistakes.append(Mistake(record.place, str(err)))
    for column, failures in missing.items():
        record, first = failures[0]
        # a key that some rows have is null in the others; a key that no row has is a mistake in the recipe
        if layout.drops_null and len(failures) < len(records) - unkept:
            nulls += [Mistake(one.place, f"no column `{column}`") for one, _ in failures]
            continue
        count = f" in {len(failures):,} of {len(records):,} rows" if len(failures) > 1 else ""
        mistakes.append(Mistake(record.place, f"no column `{column}`{count}{first.why}"))
    if mistakes:
        # give this hint only if leaving rows out would help: some rows have the column, or it is null
        is_null = any(len(failures) < len(records) - unkept for failures in missing.values()) or any(
            m.message.endswith(" is null") or m.message == "the prompt is empty" for m in mistakes
        )
        hint = "`data.on_null: drop` leaves rows with a null, or without the column, out and counts them"
        raise DataError(mistakes, hint=hint if is_null else "")
    filled = FilledRows(rows, len(records), unkept, nulls)
    if records and not rows:
        # show the values of the first row: a text in place of a number is then seen at once
        values = {path: records[0].fields.get(path) for path in layout.where.columns()} if layout.where else {}
        shown = ", ".join(f"`{path}` is {json.dumps(value, ensure_ascii=False)[:60]}" for path, value in values.items())
        hint = f"in {records[0].place} {shown}" if shown else ""
        raise DataError("no row is left: " + "; ".join(filled.left_out()), hint=hint)
    return filled


class IdGiver:
    """Gives each record its id. A declared id must be unique; equal contents get `-2`, `-3`, … in order."""

    def __init__(self, declared: Template | None) -> None:
        self._declared = declared
        self._seen: Counter[str] = Counter()
        self._places: dict[str, Record] = {}

    def of(self, record: Record) -> str:
        """The id of this record.

        Raises:
            FillError: the declared id is missing, null, empty, or stands in another row already.
        """
        if record.row:
            name = record.row
        elif self._declared is None:
            # twelve hex digits of the row's content, whatever the order of its columns
            text = json.dumps(record.fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        else:
            name = self._declared.fill(record.fields).strip()
            if not name:
                raise FillError("the id is empty")
            first = self._places.setdefault(name, record)
            if first.place != record.place:
                raise FillError(f"the id `{name}` stands in {first.place} already")
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"


# Prompts that do not fit are left out and counted. They are not cut: the gold would not answer a cut question.


@dataclass(frozen=True, slots=True)
class FittingRows:
    """The rows that fit, and the others with their token counts, longest first."""

    rows: list[Row]
    dropped: list[tuple[Row, int]]
    limit: int

    def summary(self) -> str:
        """One line for the log; empty when nothing was dropped."""
        if not self.dropped:
            return ""
        whole = len(self.rows) + len(self.dropped)
        row, tokens = self.dropped[0]
        return (
            f"dropped {len(self.dropped):,} of {whole:,} rows: prompts over {self.limit:,} tokens"
            f" (the longest has {tokens:,}, {row.place or row.id})"
        )


def drop_overlong(rows: Sequence[Row], count_tokens: Callable[[Row], int], limit: int | None) -> FittingRows:
    """Keep rows whose prompt, chat template included, has at most `limit` tokens; None keeps all without counting.

    Raises:
        DataError: no row fits.
    """
    if limit is None:
        return FittingRows(list(rows), [], 0)
    counted = [(row, count_tokens(row)) for row in rows]
    kept = [row for row, tokens in counted if tokens <= limit]
    dropped = sorted((pair for pair in counted if pair[1] > limit), key=lambda pair: -pair[1])
    if rows and not kept:
        raise none_fits(*min(counted, key=lambda pair: pair[1]), limit)
    return FittingRows(kept, dropped, limit)


def none_fits(shortest: Row, tokens: int, limit: int) -> DataError:
    """The error where every prompt is too long, with the shortest one and its tokens."""
    return DataError(
        f"every prompt is over {limit:,} tokens; the shortest has {tokens:,}",
        place=shortest.place,
        hint="raise `data.max_prompt_tokens`, lower `sample.max_tokens`, or take a model with a longer context",
    )
