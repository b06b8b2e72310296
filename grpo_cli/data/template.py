"""Text with columns in it: `{question}`, `{answer | after('####')}`, `{meta.level}`, `{choices.0}`; `{{` and `}}` are braces.

Parsed once by hand, with no `eval` and no template language. A template that is one placeholder and nothing
else gives the value itself (`Template.value`), so that message lists and test lists pass through unharmed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.data.filters import FILTERS, Filter, FilterError, NullError, as_text
from grpo_verifiers.names import near_or_known

_COLUMN = re.compile(r"\{\s*[^\W\d]\w*(?:\.\w+)*\s*(?:\|[^{}]*)?\}")
"""A placeholder in a text that has other braces too: a column's name, perhaps with filters."""
_COMMAND = re.compile(r"\\[A-Za-z]+$")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class TemplateError(ValueError):
    """A template that cannot be read; `at` is the offset of the character that stopped it."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class FillError(ValueError):
    """A row that a template cannot be filled from."""


class NullValue(FillError):
    """A row with null where the template names a column."""


class MissingColumn(FillError):
    """A row without a column that the template names; `why` has the reason if the list of columns is not enough."""

    def __init__(self, column: str, columns: Sequence[str], why: str = "") -> None:
        self.column, self.columns = column, tuple(columns)
        self.why = why or near_or_known(column, columns)
        super().__init__(f"no column `{column}`{self.why}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One `{path | filter(args) …}`."""

    path: str
    filters: tuple[tuple[str, Filter, tuple[str, ...]], ...]

    def value(self, fields: Mapping[str, Any]) -> Any:
        """The column's value through the filters.

        Raises:
            FillError: missing column, null, or a filter that finds nothing.
        """
        value: Any = None
        problem: FillError | None = None
        try:
            value = look_up(fields, self.path)
        except MissingColumn as err:
            problem = err
        for name, use, args in self.filters:
            if name == "default" and (problem or value is None or value == ""):
                value, problem = args[0], None
            elif problem is None:
                try:
                    value = use.apply(value, *args)
                except FilterError as err:
                    problem = refused(self.path, err)
        if problem:
            raise problem
        return value

    def text(self, fields: Mapping[str, Any]) -> str:
        """The value as text."""
        try:
            return as_text(self.value(fields))
        except FilterError as err:
            raise refused(self.path, err) from err


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: literal text and placeholders in order."""

    source: str
    parts: tuple[str | Placeholder, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column paths that the template reads, in order, without repetition."""
        return tuple(dict.fromkeys(part.path for part in self.parts if isinstance(part, Placeholder)))

    def fill(self, fields: Mapping[str, Any]) -> str:
        """The text for one row.

        Raises:
            FillError: missing column, null, or a filter that finds nothing.
        """
        return "".join(part if isinstance(part, str) else part.text(fields) for part in self.parts)

    def value(self, fields: Mapping[str, Any]) -> Any:
        """The value itself where the template is one bare placeholder, else the text.

        Raises:
            FillError: missing column, null, or a filter that finds nothing.
        """
        first = self.parts[0]
        return first.value(fields) if self.is_bare and isinstance(first, Placeholder) else self.fill(fields)

    @property
    def is_bare(self) -> bool:
        """Whether it is one placeholder and nothing else."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Placeholder)


def gold_of(template: Template, fields: Mapping[str, Any]) -> Any:
    """The gold that a template gives: the value itself of one bare placeholder (a list means any of its items), else text.

    Raises:
        FillError: missing column, null, a filter that finds nothing, or a list or object inside text (its JSON would
        become the only accepted answer).
    """
    if template.is_bare:
        value = template.value(fields)
        if value is None:
            raise NullValue(f"`{template.columns[0]}` is null")
        return value
    for part in template.parts:
        if isinstance(part, Placeholder) and isinstance(part.value(fields), list | dict):
            raise FillError(
                f"`{part.path}` is a list or object inside text; say which part, such as `{{{part.path}.0}}`, "
                f"or the template as `{{{part.path}}}` alone"
            )
    return template.fill(fields)


def refused(path: str, err: FilterError) -> FillError:
    """Why a row cannot be filled, from a filter's error about the value at `path`."""
    kind = NullValue if isinstance(err, NullError) else FillError
    return kind(f"`{path}` {err}")


def look_up(fields: Mapping[str, Any], path: str) -> Any:
    """The value at `a.b.0`: a column of exactly that name first, else objects by key and lists by index.

    Raises:
        MissingColumn: some part of the path is not there.
    """
    if path in fields:
        return fields[path]
    value: Any = fields
    for depth, key in enumerate(parts := path.split(".")):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            inside = ".".join(parts[:depth])
            known = [f"{inside}.{k}" if inside else str(k) for k in value] if isinstance(value, Mapping) else []
            why, rest = "", ".".join(parts[depth:])
            if isinstance(value, str) and value.strip()[:1] in ("{", "["):
                why = f": `{inside}` is a text that holds JSON, say `{{{inside} | json('{rest}')}}`"
            raise MissingColumn(path, known, why)
    return value


def parse(source: str, *, loose: bool = False) -> Template:
    """Read a template; `loose` keeps braces that hold no column's name, and those of a LaTeX command (`\\boxed{answer}`).

    Raises:
        TemplateError: unknown filter, unclosed brace, stray quote, wrong number of arguments.
    """
    parts: list[str | Placeholder] = []
    text, at = "", 0
    while at < len(source):
        char = source[at]
        if char in "{}" and source[at : at + 2] == char * 2:
            text, at = text + char, at + 2
        elif (
            loose
            and char in "{}"
            # a brace that names a column, and is no argument of a LaTeX command
            and not (char == "{" and _COLUMN.match(source, at) and not _COMMAND.search(source, 0, at))
        ):
            text, at = text + char, at + 1
        elif char == "}":
            raise TemplateError("`}` without `{`; write `}}` for a brace", at)
        elif char == "{":
            if text:
                parts.append(text)
            text = ""
            reader = _Reader(source, at + 1)
            parts.append(reader.placeholder())
            at = reader.at
        else:
            text, at = text + char, at + 1
    if text or not parts:
        parts.append(text)
    return Template(source, tuple(parts))


def column_or_template(source: str) -> Template:
    """`tests` and `{tests}` are the same column; anything with a brace in it is a template.

    Raises:
        TemplateError: as `parse`.
    """
    if "{" in source or "}" in source:
        return parse(source)
    return Template(source, (Placeholder(source.strip(), ()),))


@dataclass(slots=True)
class _Reader:
    """Reads one placeholder, from just behind its `{` to just behind its `}`."""

    source: str
    at: int

    def placeholder(self) -> Placeholder:
        opened = self.at - 1
        path = self._until("|{}", opened).strip()
        if not path:
            raise TemplateError("a placeholder without a column; write `{{` and `}}` for braces", opened)
        filters = []
        while self._peek() == "|":
            self.at += 1
            filters.append(self._filter(opened))
        if self._peek() == "{":
            raise TemplateError("`{` inside a placeholder; write `{{` for a brace", self.at)
        self.at += 1
        return Placeholder(path, tuple(filters))

    def _filter(self, opened: int) -> tuple[str, Filter, tuple[str, ...]]:
        start = self.at
        name = self._until("|(){},'\"", opened).strip()
        start += len(self.source[start : self.at]) - len(self.source[start : self.at].lstrip())
        if name not in FILTERS:
            raise TemplateError(f"unknown filter `{name}`{near_or_known(name, list(FILTERS))}", start)
        args = self._arguments() if self._peek() == "(" else ()
        use = FILTERS[name]
        if not use.fewest <= len(args) <= use.most:
            takes = f"{use.fewest}" if use.fewest == use.most else f"{use.fewest} to {use.most}"
            raise TemplateError(f"filter `{name}` takes {takes} arguments, got {len(args)}", start)
        self._spaces()
        if self._peek() not in "|}":
            raise TemplateError("expected `|` or `}`", self.at)
        return name, use, args

    def _arguments(self) -> tuple[str, ...]:
        self.at += 1
        args: list[str] = []
        while True:
            self._spaces()
            if self._peek() == ")" and not args:
                break
            quote, start, text = self._peek(), self.at, ""
            if quote not in ("'", '"'):
                raise TemplateError("an argument stands in quotes", self.at)
            self.at += 1
            while (char := self._peek()) != quote:
                self.at += 1
                if self.at > len(self.source):
                    raise TemplateError("a quote that is never closed", start)
                if char == "\\" and self._peek() in _ESCAPES:
                    char = _ESCAPES[self._peek()]
                    self.at += 1
                text += char
            self.at += 1
            args.append(text)
            self._spaces()
            if self._peek() == ")":
                break
            if self._peek() != ",":
                raise TemplateError("expected `,` or `)`", self.at)
            self.at += 1
        self.at += 1
        return tuple(args)

    def _until(self, stops: str, opened: int) -> str:
        start = self.at
        while self.at < len(self.source) and self.source[self.at] not in stops:
            self.at += 1
        if self.at == len(self.source):
            raise TemplateError("`{` that is never closed; write `{{` for a brace", opened)
        return self.source[start : self.at]

    def _peek(self) -> str:
        return self.source[self.at] if self.at < len(self.source) else "\0"

    def _spaces(self) -> None:
        while self._peek().isspace():
            self.at += 1
