"""Reads any file of completions as numbered lines of JSON, including formats of other programs.

    .csv .tsv .parquet   a row is a line, as `data` reads it      JSON array    an item is a line
    one JSON object      its `samples` (an inspect log)           .eval         the samples of an inspect archive
    anything else        JSON lines, plain, .gz, .zst or stdin

`joined` adds the columns of rows with golds to lines without golds, by `custom_id`, another id, or the prompt's text.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from grpo_cli.data.files import PACKED, TABLES, BrokenFile, read_file
from grpo_cli.errors import DataError, UsageError
from grpo_cli.jobs.verify.fields import PROMPT, ROW, BadLine, look_up, text_of
from grpo_cli.lines import UNREADABLE, BrokenText, NumberedLine, numbered, open_file
from grpo_cli.text import Json
from grpo_verifiers.strict_json import RepeatedKey, loads, marked, problem

# The lines that `grpo verify` reads, of a file, gzip, zstd or stdin. A line longer than the cap is given as
# None, never held whole.

MOST_BYTES = 64 * 1024 * 1024


def read(source: str, most_bytes: int = MOST_BYTES) -> Iterator[NumberedLine]:
    """The lines of a path or `-` that are not blank; a packed file is unpacked as it is read.

    Raises:
        UsageError: `-`, and stdin is a terminal.
        DataError: a folder, no such file, or one that cannot be read or decompressed.
    """
    name = "<stdin>" if source == "-" else source
    try:
        path = Path(source)
        if source == "-" and sys.stdin.isatty():
            raise UsageError("`-` reads lines from stdin, and stdin is a terminal", hint="pipe a file in, or name one")
        if source != "-" and path.is_dir():
            raise DataError(
                "is a folder", place=source, hint=f"name files in it, such as `{source.rstrip('/')}/*.jsonl`"
            )
        if source != "-" and not path.exists():
            raise DataError("no such file", place=source)
        file = sys.stdin.buffer if source == "-" else open_file(path, source)
        with nullcontext(file) if source == "-" else file:  # stdin is not ours to close
            for number, raw in numbered(file, most_bytes):
                text = None if raw is None else raw.strip(b" \t\r\n")
                if text != b"":
                    yield NumberedLine(number, text)
    except UNREADABLE as err:
        if isinstance(err, BrokenPipeError):
            raise
        why = getattr(err, "strerror", None) or str(err) or type(err).__name__
        raise DataError(f"cannot be read: {why.lower()}", place=name) from err


SAMPLES = ("samples", "results", "rollouts", "completions")
"""Keys under which a file that is one object keeps its list of samples."""


def read_lines(source: str, stream: bool = False) -> Iterator[NumberedLine]:
    """The lines of a file of completions, of whatever kind; with `stream` each is given before the next is read.

    Raises:
        UsageError, DataError, SetupError: it cannot be read at all.
    """
    kind = next((s for s in reversed(Path(source).suffixes) if s.lower() not in PACKED), "").lower()
    if source != "-" and Path(source).is_file():
        if kind in TABLES or kind == ".parquet":
            items = enumerate(read_file(Path(source), source), start=1)
            return (
                NumberedLine(n, BrokenText(one.why.encode()) if isinstance(one, BrokenFile) else _line(one.fields))
                for n, one in items
            )
        if kind == ".eval":
            return _archive(source)
    lines = read(source)
    return lines if stream else _json_lines(lines, may_be_one=kind == ".json")


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_lines(lines: Iterator[NumberedLine], may_be_one: bool) -> Iterator[NumberedLine]:
    """The lines, or the items if the file is one JSON array or object. The whole file is read only if its first line is
    no complete object."""
    first = next(lines, None)
    if first is None:
        return
    text = first.text or b""
    is_array = text.startswith(b"[")
    if not is_array and not (may_be_one and text.startswith(b"{") and not _is_json(text)):
        # a cheap test, since it runs for every file's first line
        is_log = text.startswith(b"{") and b'"samples"' in text and b'"eval"' in text and _is_json(text)
        value = loads(text) if is_log else None
        yield from _items(value, SAMPLES) if value is not None else (first,)
        yield from lines
        return
    seen = [first, *lines]
    whole = b"\n".join(one.text or b"" for one in seen)
    try:
        value = loads(whole)
    except RepeatedKey:
        value = marked(whole)
    except (ValueError, RecursionError):
        yield from seen
        return
    yield from _items(value, SAMPLES)


def _is_json(text: bytes) -> bool:
    try:
        loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _items(value: object, names: tuple[str, ...]) -> Iterator[NumberedLine]:
    if isinstance(value, Mapping):
        found = next((value[name] for name in names if isinstance(value.get(name), list)), None)
        value = [value] if found is None else found
    assert isinstance(value, list)
    for number, item in enumerate(value, start=1):
        repeated = problem(item)
        yield NumberedLine(number, _line(item) if repeated is None else BrokenText(str(repeated).encode()))


def _archive(source: str) -> Iterator[NumberedLine]:
    try:
        with zipfile.ZipFile(source) as archive:
            names = sorted(n for n in archive.namelist() if n.startswith("samples/") and n.endswith(".json"))
            for number, name in enumerate(names, start=1):
                yield NumberedLine(number, archive.read(name).replace(b"\n", b" ").strip())
    except (zipfile.BadZipFile, OSError, NotImplementedError) as err:
        raise DataError(f"no readable inspect archive: {err}", place=source) from err


class GoldRows:
    """Rows of a file by their ids and prompts, to add their columns to lines that hold only completions."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._by_id: dict[str, dict[str, object]] = {}
        self._by_prompt: dict[str, dict[str, object]] = {}
        for item in read_file(Path(source), source):
            if isinstance(item, BrokenFile):
                raise DataError(item.why, place=item.place)
            for name in ROW:
                if isinstance(item.fields.get(name), str | int):
                    self._by_id.setdefault(str(item.fields[name]), item.fields)
            if prompt := _prompt(item.fields):
                self._by_prompt.setdefault(prompt, item.fields)

    def under(self, line: NumberedLine) -> NumberedLine:
        """The line with its row's columns added, or with the reason why this is not possible."""
        if isinstance(line.text, BrokenText):
            return line
        try:
            value = loads(line.text or b"")
        except (ValueError, RecursionError):
            return line  # reported where lines are parsed
        if not isinstance(value, dict):
            return line
        ids = [str(value[name]) for name in ROW if isinstance(value.get(name), str | int)]
        row = next((self._by_id[name] for name in ids if name in self._by_id), None)
        row = row or self._by_prompt.get(_prompt(value))
        if row is None:
            shown = f"the id `{ids[0]}`" if ids else "this prompt"
            return NumberedLine(line.number, BrokenText(f"no row of `{self.source}` has {shown}".encode()))
        return NumberedLine(line.number, _line({**row, **value}))


def _prompt(fields: Mapping[str, Json]) -> str:
    """The last turn of the prompt, to join two files that write the rest of the chat differently."""
    for name in PROMPT:
        value = look_up(fields, name)
        turns = value
        if isinstance(value, list):
            turns = [turn for turn in value if not (isinstance(turn, Mapping) and turn.get("role") == "assistant")]
        try:
            if turns and (text := text_of(turns, name).strip()):
                return text
        except BadLine:
            continue
    return ""
