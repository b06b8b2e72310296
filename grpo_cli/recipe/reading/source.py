"""YAML text as plain data with the place of every key and value.

Read with 1.2 rules from ruamel's node tree: `1e-6` is a number, `on`, `yes` and `2026-11-27` are words,
a key said twice is a mistake. Lines and columns count from 1. Aliases share data, so a bomb is cut by size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from grpo_cli.errors import Mistake
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.reading.escapes import HINT, eaten_commands

MOST_VALUES = 50_000
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
        return Mistake(f"{self.name}:{spot.line}:{spot.col}", message, excerpt(self.text, spot))


def excerpt(text: str, spot: SourceSpan) -> str:
    """The line of a spot with carets under it; long lines are cut around the spot, control characters shown as `·`."""
    lines = text.split("\n")
    if not 1 <= spot.line <= len(lines) or not lines[spot.line - 1].strip():
        return ""
    line = "".join(c if c.isprintable() else ("  " if c == "\t" else "·") for c in lines[spot.line - 1].rstrip("\r"))
    shift = 2 if "\t" in lines[spot.line - 1][: spot.col - 1] else 1
    start = spot.col - 1 + (shift - 1) * lines[spot.line - 1][: spot.col - 1].count("\t")
    width = max(1, min(spot.end, len(line) + 1) - spot.col)
    if len(line) > WIDTH:
        cut = max(0, start - WIDTH // 2)
        line, start = line[cut : cut + WIDTH], start - cut
    width = max(1, min(width, len(line) - start))
    return f"{spot.line:>6} | {line}\n       | {' ' * start}{'^' * width}"


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
            return self._mapping(node, path, above)
        if isinstance(node, SequenceNode):
            return [self.read(item, (*path, i), above) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
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

    def _scalar(self, node: Node) -> Any:
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
