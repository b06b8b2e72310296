r"""Recipes by name, and YAML text as plain data with the place of every key and value.

How this works: `read_documents` finds the file of a name and all it extends. `parse` reads with 1.2 rules from ruamel's node tree:
`1e-6` is a number, `on`, `yes` and `2026-11-27` are words, a key said twice is a mistake. Lines and columns count from 1. Aliases
share data, so a bomb is cut by size.

The last part finds escapes of double-quoted YAML that eat TeX: `"\boxed"` is a backspace and `oxed`, `"\text"` a tab and `ext`.
Escapes by number (`\x08`, `\u2028`) are meant as they stand. A line break, a tab and a carriage return are too, unless a command of TeX
begins with their letter.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.tokens import ScalarToken

from grpo_cli.errors import DataError, Mistake, RecipeError
from grpo_cli.recipe.sections.fields import Path
from grpo_cli.run.folder import RunFolder, base_of
from grpo_cli.text import real_path
from grpo_verifiers.names import nearest

MOST_VALUES = 50_000
STDIN = "<stdin>"
MOST_BYTES = 256_000  # pure Python reads about 100 kB of YAML a second
WIDTH = 100


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """Where something stands: line, column and the column after its end on that line."""

    line: int
    col: int
    end: int


@dataclass
class Document:
    """One parsed text. `keys` and `values` hold spots by path; `mistakes` what the text itself got wrong."""

    name: str
    text: str
    data: Any = None
    keys: dict[Path, SourceSpan] = field(default_factory=dict)
    values: dict[Path, SourceSpan] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(self, message: str, spot: SourceSpan | None) -> Mistake:
        """A mistake of this text at a spot, with the source line and a caret."""
        if spot is None:
            return Mistake(self.name, message)
        return Mistake(f"{self.name}:{spot.line}:{spot.col}", message, self._excerpt(spot))

    def _excerpt(self, spot: SourceSpan) -> str:
        """The line of a spot with carets under it; long lines are cut around the spot, control characters shown as `·`."""
        lines = self.text.split("\n")
        if not 1 <= spot.line <= len(lines) or not lines[spot.line - 1].strip():
            return ""
        line = "".join(
            c if c.isprintable() else ("  " if c == "\t" else "·") for c in lines[spot.line - 1].rstrip("\r")
        )
        # a tab is shown as two blanks
        start = spot.col - 1 + lines[spot.line - 1][: spot.col - 1].count("\t")
        width = max(1, min(spot.end, len(line) + 1) - spot.col)
        if len(line) > WIDTH:
            cut = max(0, start - WIDTH // 2)
            line, start = line[cut : cut + WIDTH], start - cut
        width = max(1, min(width, len(line) - start))
        return f"{spot.line:>6} | {line}\n       | {' ' * start}{'^' * width}"


def read_documents(source: str | FilePath) -> tuple[list[Document], FilePath]:
    """The document of a path, a shipped name or `-` (stdin), and all it extends, lowest first; the folder its paths count from.

    Raises:
        RecipeError: one of them cannot be found or read, or `extends` names no recipe or goes in a circle.
    """
    if str(source) == "-":
        if sys.stdin.isatty():
            raise RecipeError("`-` reads a recipe from stdin, and stdin is a terminal", hint="pipe a recipe in")
        doc, folder = _decoded(sys.stdin.buffer.read(MOST_BYTES), STDIN), FilePath()
        seen: list[FilePath] = []
    else:
        file = find(str(source))
        doc, folder, seen = _read(file), file.parent, [real_path(file)]
    chain = [doc]
    while isinstance(doc.data, dict) and doc.data.get("extends") is not None:
        below = doc.data["extends"]
        spot = doc.values.get(("extends",))
        if not isinstance(below, str) or not below:
            raise RecipeError([doc.mistake("`extends` must be a path or the name of a shipped recipe", spot)])
        beside = folder / below
        try:
            file = beside if beside.is_file() else find(below)
        except RecipeError as err:
            message = f"`extends`: no recipe `{below}`"
            raise RecipeError([doc.mistake(message, spot)], hint=err.hint) from None
        if real_path(file) in seen:
            names = " -> ".join(p.name for p in [*seen, file])
            raise RecipeError([doc.mistake(f"`extends` goes in a circle: {names}", spot)])
        seen.append(real_path(file))
        doc, folder = _read(file), file.parent
        chain.append(doc)
    return chain[::-1], folder_of(str(source))


def find(name: str) -> FilePath:
    """The file of a path or a shipped name; of a folder its `recipe.yaml`.

    Raises:
        RecipeError: no such file; the hint holds the nearest shipped name.
    """
    path = FilePath(name)
    if path.is_file():
        return path
    if (path / "run.json").is_file():
        # the folder of a run also holds a recipe, but paths in it are relative to the recipe that the run began with
        raise RecipeError(f"`{name}` is a run, not a recipe", hint=f"`--resume {name}` goes on with it")
    if (path / "recipe.yaml").is_file():
        return path / "recipe.yaml"
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if path.is_dir():
        raise RecipeError(f"`{name}` is a folder without `recipe.yaml`", hint="name a `.yaml` file")
    near = nearest(name.removesuffix(".yaml").rsplit("/", 1)[-1], shipped)
    did = f"did you mean `{near}`? " if near else ""
    raise RecipeError(f"no recipe `{name}`", hint=f"{did}shipped: {', '.join(sorted(shipped))}")


def label_of(name: str) -> str:
    """What runs of a recipe are named after: its file, or the folder of a file that is only called `recipe`."""
    if name == "-":
        return "stdin"
    path = FilePath(name)
    if path.is_dir() and name not in shipped_recipes():
        return real_path(path).name
    return (path.stem if path.stem != "recipe" else real_path(path).parent.name) or path.stem


def shipped_recipes() -> dict[str, FilePath]:
    """Recipes that come with the package, by name; those of `unverified/`, which were never trained here, among them."""
    package = FilePath(__file__).resolve().parents[2]
    for folder in (package / "_recipes", package.parent / "recipes"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.rglob("*.yaml"))}
    return {}


def folder_of(source: str) -> FilePath:
    """The folder that a recipe's relative paths count from: its file's; that of a run's or a checkpoint's own recipe is where
    the run began; of a shipped name and of stdin it is the current one."""
    if source == "-" or (source in shipped_recipes() and not FilePath(source).exists()):
        return FilePath()
    file = find(source)
    for folder in (file.parent, *file.absolute().parents[2:3]):
        if file.name == "recipe.yaml" and (folder / "run.json").is_file():
            with suppress(DataError):
                return base_of(RunFolder(folder)) or file.parent
    return file.parent


def _read(file: FilePath) -> Document:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise RecipeError("too large for a recipe", place=str(file))
        return _decoded(file.read_bytes(), str(file))
    except OSError as err:
        raise RecipeError(f"cannot be read: {(err.strerror or 'error').lower()}", place=str(file)) from None


def _decoded(raw: bytes, name: str) -> Document:
    try:
        return parse(raw.decode("utf-8-sig"), name)
    except UnicodeDecodeError as err:
        raise RecipeError(f"not UTF-8 text: {err.reason} at byte {err.start}", place=name) from None


def parse(text: str, name: str) -> Document:
    """The document of a text; what is wrong with the text stands in its `mistakes` and `data` holds the rest."""
    doc = Document(name, text)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        if node is not None:
            doc.data = _Reader(doc).read(node, (), ())
    except MarkedYAMLError as err:
        what = " ".join(str(err.problem or err.context or "cannot be read").split())
        mark = err.problem_mark or err.context_mark
        if "<stream end>" in what and err.context_mark:
            mark, what = err.context_mark, "the file ends before this is closed"
        if "escape" in what:
            what += f"; in double quotes a backslash begins an escape: {HINT}"
        spot = SourceSpan(mark.line + 1, mark.column + 1, mark.column + 2) if mark else None
        doc.mistakes.append(doc.mistake(f"not YAML: {what}", spot))
    except RecursionError:
        doc.mistakes.append(Mistake(name, "not a recipe: nested too deeply"))
    except (YAMLError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError) as err:
        # ruamel's scanner raises these bare on broken directives, escapes and characters
        what = " ".join(str(err).split())[:120] or type(err).__name__
        doc.mistakes.append(Mistake(name, f"not YAML: {what}"))
    return doc


class _Reader:
    """Node tree to data. Keeps reading after a mistake, so that all of them are found."""

    def __init__(self, doc: Document) -> None:
        self.doc = doc
        self.count = 0

    def read(self, node: Node, path: Path, above: tuple[int, ...]) -> Any:
        self.count += 1
        self.doc.values.setdefault(path, _spot(node))
        if id(node) in above:
            return self._wrong("an alias that contains itself", node)
        if self.count > MOST_VALUES:
            if self.count == MOST_VALUES + 1:
                self._wrong(f"more than {MOST_VALUES:,} values", node)
            return None
        if not isinstance(node, ScalarNode) and _tag(node) not in {"map", "seq", ""}:
            return self._wrong(f"the tag `!{_tag(node)}` has no meaning here", node)
        above = (*above, id(node))
        if isinstance(node, MappingNode):
            out: dict[str, Any] = {}
            merged: dict[str, Any] = {}
            for key_node, value_node in node.value:
                if not isinstance(key_node, ScalarNode):
                    self._wrong("a key must be a word", key_node)
                    continue
                key = str(key_node.value)
                self._find_eaten(key_node)
                if _tag(key_node) == "merge":
                    merged |= self._merge(value_node, path, above)
                    continue
                if key in out:
                    first = self.doc.keys[(*path, key)].line
                    self._wrong(f"key `{key}` is said twice, first on line {first}", key_node)
                    continue
                self.doc.keys[(*path, key)] = _spot(key_node)
                self.doc.values.pop((*path, key), None)
                out[key] = self.read(value_node, (*path, key), above)
            return merged | out
        if isinstance(node, SequenceNode):
            return [self.read(item, (*path, i), above) for i, item in enumerate(node.value)]
        tag, text = _tag(node), str(node.value)
        self._find_eaten(node)
        try:
            if tag == "null":
                return None
            if tag == "bool":
                return {"true": True, "false": False}.get(text.lower(), text)
            if tag == "int":
                return _whole(text)
            if tag == "float":
                return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return text
        if tag not in {"str", "timestamp", ""}:
            return self._wrong(f"the tag `!{tag}` has no meaning here", node)
        return text

    def _merge(self, node: Node, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        out: dict[str, Any] = {}
        for one in reversed(nodes):
            value = self.read(one, path, above)
            if not isinstance(value, dict):
                self._wrong("`<<` takes a mapping", one)
            else:
                out |= value
        return out

    def _find_eaten(self, node: Node) -> None:
        """Note escapes that ate the first letter of a TeX command, each once, also where an alias repeats it."""
        if not isinstance(node, ScalarNode) or node.style != '"':
            return
        start, text = node.start_mark.index, self.doc.text
        for one in eaten_commands(text[start : node.end_mark.index]):
            at = start + one.at
            col = at - text.rfind("\n", 0, at)
            spot = SourceSpan(text.count("\n", 0, at) + 1, col, col + one.width)
            mistake = self.doc.mistake(one.message, spot)
            if mistake not in self.doc.mistakes:
                self.doc.mistakes.append(mistake)

    def _wrong(self, message: str, node: Node) -> None:
        self.doc.mistakes.append(self.doc.mistake(message, _spot(node)))


def _whole(text: str) -> int:
    text = text.replace("_", "")
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.lstrip("+"))
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower(), 10)
    return sign * int(digits[2:] if base != 10 else digits, base)


def _tag(node: Node) -> str:
    tag = str(node.tag or "")
    prefix = "tag:yaml.org,2002:"
    return tag[len(prefix) :] if tag.startswith(prefix) else tag.lstrip("!")


def _spot(node: Node) -> SourceSpan:
    start, end = node.start_mark, node.end_mark
    last = end.column if end.line == start.line else start.column + 1
    return SourceSpan(start.line + 1, start.column + 1, max(last, start.column + 1) + 1)


CODES = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
"""Characters by the letter that YAML escapes them with."""
_LETTERS = {char: letter for letter, char in CODES.items()}
_COMMANDS = frozenset(
    """
    nabla natural ne nearrow neg negthickspace neq newline newcommand nexists ngeq ngtr nleq nless nmid nolimits nonumber
    normalsize not notag notin nparallel nrightarrow nleftarrow nsim ncong nprec nsucc nsubseteq nsupseteq nu nwarrow
    tag tan tanh tau tbinom text textbf textcolor textit textnormal textrm textsc textsf textstyle texttt textup tfrac
    theta therefore thickspace thinspace tilde times tiny to top triangle triangleleft triangleq triangleright
    rangle rbrace rbrack rceil ref rfloor rho right rightarrow rightharpoonup rightleftharpoons rm root rule rvert
    """.split()  # noqa: SIM905 - a table of names reads better than 70 lines of quotes
)
"""Commands of TeX that begin with the letter of a tab, a line break or a carriage return."""
_PAIR = re.compile(r"\\(.)", re.S)
_WORD = re.compile(r"[A-Za-z]{0,20}")
HINT = "use single quotes, or two backslashes"


@dataclass(frozen=True, slots=True)
class EatenCommand:
    """An escape that took the first letter of a command: where it starts, how long the command is, and what is said."""

    at: int
    width: int
    message: str
    code: int


def eaten_commands(raw: str) -> Iterator[EatenCommand]:
    """Those in a double-quoted scalar as it is written; places count from its first character."""
    for pair in _PAIR.finditer(raw):
        if (found := _eaten(pair[1], raw, pair.end())) is not None:
            command, code = found
            rest = f" and `{command[2:]}`" if command[2:] else ""
            message = f"`{command}` in double quotes is U+{code:04X}{rest}: {HINT}; `{_number(code)}` if it is meant"
            yield EatenCommand(pair.start(), len(command), message, code)


def eaten_by_shell(text: str) -> str:
    """What is wrong with a text of the command line whose escapes the shell has read; empty where nothing is."""
    for at, char in enumerate(text):
        if char in _LETTERS and (found := _eaten(_LETTERS[char], text, at + 1)) is not None:
            return f"it holds U+{found[1]:04X} where `{found[0]}` was meant: write {found[0]} in plain single quotes"
    return ""


def _eaten(letter: str, text: str, after: int) -> tuple[str, int] | None:
    """The command that began with this letter, and the character that was made of it."""
    if letter not in CODES:
        return None
    match = _WORD.match(text, after)
    word = letter + (match[0] if match else "")
    if letter in "ntr" and word not in _COMMANDS:
        return None
    return f"\\{word}", ord(CODES[letter])


def spelled_out(text: str) -> str:
    """YAML with such an escape written by its number, so that it is read back unchanged."""
    places = []
    for token in YAML(typ="safe", pure=True).scan(text):
        if isinstance(token, ScalarToken) and token.style == '"':
            start = token.start_mark.index
            places += [(start + one.at, one.code) for one in eaten_commands(text[start : token.end_mark.index])]
    for at, code in reversed(places):
        text = text[:at] + _number(code) + text[at + 2 :]
    return text


def _number(code: int) -> str:
    return f"\\x{code:02X}" if code < 256 else f"\\u{code:04X}"
