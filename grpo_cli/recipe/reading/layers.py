"""Recipe, the recipes it extends, and `--set` flags laid over each other, with the place each value came from.

How this works: lower layers come first. Mappings merge key by key, lists and plain values are replaced. `origin` keeps for each path
the file or flag that set it last, so that a mistake found later stands at the line that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.errors import Mistake, names_secret
from grpo_cli.recipe.reading.escapes import eaten_by_shell
from grpo_cli.recipe.reading.source import Document, parse
from grpo_cli.recipe.sections.fields import Path, ancestors
from grpo_cli.recipe.sections.recipe import takes_text
from grpo_cli.recipe.widening import widen

REMOVABLE = ("verify", "shaping")
"""Sections of named parts: null takes out one that a lower layer has. In the lowest, a name alone is a part with its defaults."""


@dataclass(frozen=True, slots=True)
class SetFlag:
    """A `--set` as it was typed."""

    text: str


@dataclass
class Layers:
    """The merged data. `origin` maps a path to the layer that set it last."""

    data: dict[str, Any] = field(default_factory=dict)
    origin: dict[Path, Document | SetFlag] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, doc: Document) -> None:
        """Lay a document on top."""
        self.mistakes += doc.mistakes
        if not isinstance(doc.data, dict):
            return
        over = widen(doc.data)
        for section in REMOVABLE:
            said, known = doc.data.get(section), self.data.get(section)
            if isinstance(said, dict) and isinstance(known, dict):
                for name in [name for name, value in said.items() if value is None and name in known]:
                    self._forget((section, name))
                    del known[name], over[section][name]
        self._merge(self.data, over, (), doc)

    def set(self, text: str) -> None:
        """Lay one `key.path=value` on top. The value is YAML, or as typed where the key takes only text (`{answer}`)."""
        flag = SetFlag(text)
        key, equals, raw = text.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            self.mistakes.append(Mistake(f"--set {text}", "expected `key.path=value`"))
            return
        if path[0] == "extends":
            self.mistakes.append(Mistake(f"--set {text}", "`extends` can only be said in a file"))
            return
        doc = parse(raw, f"--set {text}")
        is_text = isinstance(doc.data, str | None)
        if takes_text(tuple(path)) and not (is_text and (not doc.mistakes or _is_quoted(raw))):
            doc = Document(doc.name, raw, raw)
        if eaten := eaten_by_shell(raw):
            doc.mistakes = [Mistake("", eaten)]
        if doc.mistakes:
            self.mistakes += [Mistake(f"--set {text}", m.message) for m in doc.mistakes]
            return
        self._put(self.data, path, doc.data, (), flag)
        self.data = widen(self.data)

    def mistake(self, path: Path, message: str, *, at_key: bool = False) -> Mistake:
        """A mistake at the deepest part of `path` that a file or flag holds."""
        for one in ancestors(path):
            layer = self.origin.get(one)
            if isinstance(layer, SetFlag):
                return Mistake(f"--set {layer.text}", message)
            if layer is None:
                continue
            places = [layer.keys, layer.values] if at_key or len(one) < len(path) else [layer.values, layer.keys]
            # the whole document is no place, unless it is no mapping
            spots = (place.get(up) for up in ancestors(one) for place in places if up or not layer.keys)
            spot = next((found for found in spots if found is not None), None)
            if spot is not None:
                found = layer.mistake(message, spot)
                # the value of a secret is not shown, nor the line: a value may stand on other lines than its key
                return replace(found, source="") if names_secret(path) else found
        first = next((layer for layer in self.origin.values() if isinstance(layer, Document)), None)
        return Mistake(first.name if first else "", message)

    def document(self, path: Path) -> Document | None:
        """The document that holds a key or its nearest parent; None where a flag or nothing does. Its folder is where it lies:
        that of stdin is the current one."""
        said = next((self.origin[one] for one in ancestors(path) if one in self.origin), None)
        return said if isinstance(said, Document) else None

    def is_set(self, path: Path) -> bool:
        """Whether a layer (and not a default or preset) holds this path."""
        return path in self.origin

    def _merge(self, under: dict[str, Any], over: dict[str, Any], path: Path, layer: Document | SetFlag) -> None:
        for key, value in over.items():
            here = (*path, key)
            below = under.get(key)
            if isinstance(below, dict) and isinstance(value, dict):
                self.origin[here] = layer
                self._merge(below, value, here, layer)
            else:
                self._forget(here)
                under[key] = deepcopy(value)
                self._remember(here, value, layer)

    def _put(self, holder: Any, path: list[str], value: Any, done: Path, flag: SetFlag) -> None:
        key: str | int = path[0]
        if isinstance(holder, list):
            if str(key).isdecimal() and int(key) < len(holder):
                key = int(key)
            elif len(holder) == 1 and not str(key).isdecimal():
                return self._put(holder[0], path, value, (*done, 0), flag)
            else:
                name = ".".join(map(str, done))
                message = f"`{name}` is a list of {len(holder)}: name an item, such as `{name}.0`"
                self.mistakes.append(Mistake(f"--set {flag.text}", message))
                return None
        here = (*done, key)
        if len(path) == 1:
            below = holder.get(key) if isinstance(holder, dict) else holder[key]
            if isinstance(below, dict) and isinstance(value, dict) and value:
                self._merge(below, widen({"x": value})["x"], here, flag)
            elif value is None and below is not None and len(here) == 2 and here[0] in REMOVABLE:
                self._forget(here)
                del holder[key]
            else:
                self._forget(here)
                holder[key] = value
                self._remember(here, value, flag)
            return None
        inner = holder.get(key) if isinstance(holder, dict) else holder[key]
        if not isinstance(inner, dict | list):
            self._forget(here)
            inner = holder[key] = {}
            self.origin[here] = flag
        return self._put(inner, path[1:], value, here, flag)

    def _forget(self, path: Path) -> None:
        for known in [p for p in self.origin if p[: len(path)] == path]:
            del self.origin[known]

    def _remember(self, path: Path, value: Any, layer: Document | SetFlag) -> None:
        self.origin[path] = layer
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            self._remember((*path, key), inner, layer)


def _is_quoted(raw: str) -> bool:
    """Whether a value is one in double quotes, whose mistakes are not to be taken for text."""
    raw = raw.strip()
    return len(raw) > 1 and raw[0] == raw[-1] == '"' and not re.search(r'(?<!\\)"', raw[1:-1])


def stack(documents: Sequence[Document], sets: Sequence[str]) -> Layers:
    """Documents from the lowest to the topmost, then the flags."""
    layers = Layers()
    for doc in documents:
        layers.add(doc)
    for text in sets:
        layers.set(text)
    return layers
