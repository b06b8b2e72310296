"""From a path, a shipped name or stdin to a checked recipe, or to every mistake in it at once: read, widen, check, cut.

How this works: `read_documents` reads the file and all it extends. `Layers` holds them and the `--set` flags laid over each other,
lower ones first: mappings merge key by key, lists and plain values are replaced, and `origin` keeps for each path the file or flag
that set it last. `_settle` finds the files that single keys name, and `check` makes a `Recipe` of the merged mapping. A
wrong value is cut out, so that the rest is checked too; a missing one gets a placeholder. Rules between keys are
checked when names, types and ranges are right, stages when the whole has no mistake. Mistakes get their place in a file
or flag at the very end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from grpo_cli.errors import Mistake, RecipeError, names_secret
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.checking.values import RecipeFinding, check_values, findings
from grpo_cli.recipe.named import anchored, from_folder, refuse_foreign_code
from grpo_cli.recipe.reading.dump import stage_data
from grpo_cli.recipe.reading.source import Document, eaten_by_shell, parse, read_documents
from grpo_cli.recipe.sections.fields import Path, ancestors
from grpo_cli.recipe.sections.recipe import Recipe, takes_text
from grpo_cli.recipe.widening import complete, widen
from grpo_cli.text import path_of, without_home

REMOVABLE = ("verify", "shaping")
"""Sections of named parts: null takes out one that a lower layer has. In the lowest, a name alone is a part with its defaults."""


def load(
    source: str | FilePath, sets: Sequence[str] = (), *, base: FilePath | None = None, of_run: bool = False
) -> Recipe:
    """The recipe of a path, a shipped name or `-` (stdin), under `--set` flags.

    `base` is the folder that its relative paths are taken from, where that is not the folder of the file. `of_run`: it is the
    recipe of a run that is only looked at, measured or exported, so that keys of sampling that are gone are left out.

    Raises:
        RecipeError: with every mistake of the files and flags, each with its place; or it names code that came with a model.
    """
    return load_with_folder(source, sets, base=base, of_run=of_run)[0]


def load_with_folder(
    source: str | FilePath, sets: Sequence[str] = (), *, base: FilePath | None = None, of_run: bool = False
) -> tuple[Recipe, FilePath]:
    """The same, and the folder that its relative paths count from.

    Raises:
        RecipeError: as `load`.
    """
    documents, own = read_documents(source)
    near, top = own if base is None else base, documents[-1]
    layers = stack(documents, sets, of_run=of_run)
    if layers.mistakes and any(not isinstance(one.data, dict) for one in documents):
        raise RecipeError(layers.mistakes)
    if not isinstance(top.data, dict):
        what = "is empty" if top.data is None else "is not a mapping of keys"
        raise RecipeError(f"the recipe {what}", place=top.name, hint="`grpo init` writes one to start from")
    layers.data.pop("extends", None)
    _settle(layers, near)
    recipe, found = check(layers)
    if recipe is None or found or layers.mistakes:
        raise _error(layers, found, top.name)

    def said_in(path: Path) -> FilePath | None:
        said = layers.document(path)
        return FilePath(said.name).parent if said is not None and said is not top else None

    recipe = anchored(recipe, near, said_in)
    stages = [Recipe.model_validate(stage_data(recipe, at)) for at in range(len(recipe.stages or ()))]
    refuse_foreign_code([recipe, *stages], None if str(source) == "-" else FilePath(top.name), near)
    return recipe, near


@dataclass(frozen=True, slots=True)
class SetFlag:
    """A `--set` as it was typed."""

    text: str


@dataclass
class Layers:
    """The merged data. `origin` maps a path to the layer that set it last."""

    of_run: bool
    """Whether keys that are gone are left out."""
    data: dict[str, Any] = field(default_factory=dict)
    origin: dict[Path, Document | SetFlag] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, doc: Document) -> None:
        """Lay a document on top."""
        self.mistakes += doc.mistakes
        if not isinstance(doc.data, dict):
            return
        over = widen(doc.data, of_run=self.of_run)
        for section in REMOVABLE:
            said, known = doc.data.get(section), self.data.get(section)
            if isinstance(said, dict) and isinstance(known, dict):
                for name in [name for name, value in said.items() if value is None and name in known]:
                    self._forget((section, name))
                    del known[name], over[section][name]
        below = self.data.get("eval")
        if isinstance(below, dict) and below.pop("expect", None) is not None:
            self._forget(("eval", "expect"))  # of the recipe below, and not of one that changes it
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
        spelt = raw.strip()
        # a mistake in a double-quoted value must be reported, not taken as text
        is_quoted = len(spelt) > 1 and spelt[0] == spelt[-1] == '"' and not re.search(r'(?<!\\)"', spelt[1:-1])
        is_text = isinstance(doc.data, str | None) and (not doc.mistakes or is_quoted)
        if takes_text(tuple(path)) and not is_text:
            doc = Document(doc.name, raw, raw)
        if eaten := eaten_by_shell(raw):
            doc.mistakes = [Mistake("", eaten)]
        if doc.mistakes:
            self.mistakes += [Mistake(f"--set {text}", m.message) for m in doc.mistakes]
            return
        self._put(self.data, path, doc.data, (), flag)
        self.data = widen(self.data, of_run=self.of_run)

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


def stack(documents: Sequence[Document], sets: Sequence[str], *, of_run: bool = False) -> Layers:
    """Documents from the lowest to the topmost, then the flags."""
    layers = Layers(of_run)
    for doc in documents:
        layers.add(doc)
    for text in sets:
        layers.set(text)
    return layers


def _settle(layers: Layers, base: FilePath) -> None:
    """Find what two keys name before the recipe is checked, from the folder of the file that holds them (with `--set`, from here).

    The function of a `python` verifier gets the folder that it is imported from, as it lies from the recipe's. The file of a chat
    template gives way to its text, so that a run holds what it was trained with: a template has braces, the name of a file none.
    """
    verify, model = layers.data.get("verify"), layers.data.get("model")
    for name, one in verify.items() if isinstance(verify, dict) else ():
        if isinstance(one, dict) and one.get("kind", name) == "python" and "path" not in one:
            said = layers.document(("verify", name, "function"))
            if isinstance(one.get("function"), str):
                one["function"] = without_home(one["function"])
            one["path"] = [from_folder(base, FilePath(said.name).parent if said is not None else FilePath())]
    path: Path = ("model", "chat_template")
    named = model.get("chat_template") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(named, str) or "{" in named or not named.strip():
        return
    said = layers.document(path)
    file = (FilePath(said.name).parent if said is not None else FilePath()) / path_of(named)
    try:
        text = file.read_bytes().decode("utf-8")
        why = "" if "{" in text else "is no template: nothing stands in braces"
    except UnicodeDecodeError as err:
        why = f"is not UTF-8 text: {err.reason} at byte {err.start}"
    except OSError as err:
        why = f"cannot be read: {(err.strerror or 'error').lower()}"
    if why:
        layers.mistakes.append(layers.mistake(path, f"`{named}` {why}"))
        del model["chat_template"]
    else:
        model["chat_template"] = text


def check(layers: Layers) -> tuple[Recipe | None, list[RecipeFinding]]:
    """The recipe of merged layers, and everything wrong with it; wrong values are left out to check the rest."""
    data = complete(deepcopy(layers.data))
    found = check_values(data)
    recipe: Recipe | None = None
    cut: set[Path] = set()
    for _ in range(5):
        try:
            recipe = Recipe.model_validate(data)
            break
        except ValidationError as err:
            new = findings(err)
            # what a cut left behind (a missing key, an empty list) is no mistake of its own: it lies on the path of a cut
            found += [
                f for f in new if not any(all(a == b for a, b in zip(f.path, path, strict=False)) for path in cut)
            ]
            cut |= {f.path for f in new}
            for one in new:
                _cut(data, one.path, "is missing" in one.message)
            data = complete(data)
    if recipe is None:
        return None, list(dict.fromkeys(found))
    # a rule would check the placeholder of a wrong value
    wrong = {path[:1] for path in cut}
    for one in check_rules(recipe, layers.is_set):
        if one.idle is not None:  # a mistake where the recipe would be another one without this key
            without = deepcopy(layers.data)
            _cut(without, one.idle, missing=False)
            with suppress(ValidationError):
                if Recipe.model_validate(without) == recipe:
                    continue
        if one.path[:1] not in wrong:
            found.append(one)
    for at in range(len(recipe.stages or ())) if not found else ():
        under: Path = ("stages", at)
        said = {path[2:]: layer for path, layer in layers.origin.items() if path[:2] == under}
        _, wrong_there = check(Layers(layers.of_run, stage_data(recipe, at), said))
        found += [
            replace(one, path=(*under, *one.path), message=f"stage {at + 1}: {one.message}") for one in wrong_there
        ]
    return recipe, list(dict.fromkeys(found))


def _error(layers: Layers, found: list[RecipeFinding], name: str) -> RecipeError:
    """All mistakes in the order of the files' lines, those of flags last, with the hints of the first ten."""

    def order(place: str) -> tuple[bool, str, int, int]:
        file, *spot = place.rsplit(":", 2)
        if place.startswith("--set ") or len(spot) < 2 or not (spot[0].isdecimal() and spot[1].isdecimal()):
            return place.startswith("--set "), place, 0, 0
        return False, file, int(spot[0]), int(spot[1])

    placed: list[tuple[Mistake, str]] = [(m, "") for m in layers.mistakes]
    placed += [(layers.mistake(f.path, f.message, at_key=f.at_key), f.hint) for f in found]
    placed = [(m if m.place else replace(m, place=name), hint) for m, hint in placed]
    placed.sort(key=lambda pair: order(pair[0].place))
    hints = list(dict.fromkeys(hint for _, hint in placed[:10] if hint))
    return RecipeError([m for m, _ in placed], hint="\nhint: ".join(hints))


def _cut(data: dict[str, Any], path: Path, missing: bool) -> None:
    """Remove a wrong value, or insert a placeholder for a missing one, so that the rest can be checked."""
    holder: Any = data
    for part in path[:-1]:
        try:
            inner = holder[part]
        except (KeyError, IndexError, TypeError):
            if not isinstance(holder, dict):
                return
            inner = holder[part] = {}
        holder = inner
    if missing and isinstance(holder, dict) and path:
        holder[path[-1]] = deepcopy(_STAND_INS.get(path) or _STAND_INS.get(path[-1:], {}))
    elif path and isinstance(holder, dict | list):
        try:
            del holder[path[-1]]  # type: ignore[arg-type]
        except (KeyError, IndexError, TypeError):
            return


_STAND_INS: dict[Path, Any] = {
    ("model",): {"path": "missing"},
    ("path",): "missing",
    ("data",): {"train": [{"from": "missing"}], "prompt": "missing"},
    ("train",): {"steps": 1},
    ("from",): "missing",
    ("data", "train"): [{"from": "missing"}],
    ("prompt",): "missing",
    ("kind",): "missing",
    ("verify",): {"math": {"kind": "math"}},
    ("steps",): 1,
    ("lr",): 1.0,
    ("template",): "missing",
    ("demonstration",): [{"template": "missing"}],
}
