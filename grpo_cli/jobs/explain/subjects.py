"""What can be explained, kind by kind: its names, what is known of one as data, and the same as text."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from grpo_cli.curriculum.select import SELECTORS
from grpo_cli.errors import UsageError
from grpo_cli.jobs.explain import findings, methods, rows, verifiers
from grpo_cli.recipe.checking.episodes import CREDITS, describe_credit
from grpo_cli.recipe.checking.other_names import method_elsewhere, misspelt, same_letters
from grpo_cli.recipe.sections.course import STRATEGIES, describe_strategy
from grpo_cli.recipe.widening import PRESETS
from grpo_verifiers import KINDS
from grpo_verifiers.names import nearest

WIDTH = 100


class Subject(NamedTuple):
    """A kind of thing that can be explained: how its names are found and one is described."""

    title: str
    names: Callable[[], Iterable[str]]
    describe: Callable[[str], dict[str, Any]]
    render: Callable[[dict[str, Any]], str]
    brief: str = ""
    """What is listed in place of the names, if they are too many."""


def describe_selector(name: str) -> dict[str, Any]:
    """What a way to choose rows does, from its class."""
    return {"selector": name, "summary": inspect.getdoc(SELECTORS[name]) or ""}


def render_named(described: dict[str, Any]) -> str:
    """A selector, a way to give credit or a strategy: its name, what it does, and the line that sets it."""
    (kind, name), about = next(iter(described.items())), described["summary"]
    key = {"selector": "train.select", "credit": "train.credit", "strategy": "launch.strategy"}[kind]
    how = f"set with `{key}: {name}`"
    if kind == "credit":
        reads = ", ".join(f"`{key}`" for key in described["reads"])
        how += f", or `{{method: {name}, …}}` with {reads} or `weight`"
    return f"{name}\n\n{about if kind == 'selector' else textwrap.fill(about, WIDTH)}\n\n{how}"


@cache
def keys_by_path() -> dict[str, dict[str, Any]]:
    """Summary, values, default, example and inner keys of every key of a recipe. `docs.generate` writes the file from the schema."""
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("keys.json").read_text("utf-8"))
    return found


@cache
def key_names() -> dict[str, str]:
    """What a key can be called by: its path, and its last part where no other key ends in that."""
    paths = keys_by_path()
    ends = Counter(path.rsplit(".", 1)[-1] for path in paths)
    short = {path.rsplit(".", 1)[-1]: path for path in paths}
    return {name: path for name, path in short.items() if ends[name] == 1} | {path: path for path in paths}


def describe_key(name: str) -> dict[str, Any]:
    """Path, meaning, values, default and an example of a key, and the keys inside it."""
    path = key_names()[name]
    return {"key": path, **keys_by_path()[path]}


def render_key(described: dict[str, Any]) -> str:
    """The text form of `describe_key`."""
    lines = [described["key"], "", *textwrap.wrap(described["summary"], WIDTH), ""]
    if described["values"]:
        lines += textwrap.wrap(described["values"], WIDTH, initial_indent="values   ", subsequent_indent=" " * 9)
    if described["default"] is not None and not described["keys"]:
        lines.append(f"default  {json.dumps(described['default'])}")
    lines += textwrap.indent(described["example"], " " * 9).replace(" " * 9, "example  ", 1).splitlines()
    for path, about in described["keys"].items():
        lines += textwrap.wrap(f"{path}  {about}", WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines).rstrip()


SUBJECTS: tuple[Subject, ...] = (
    Subject("verifiers", lambda: KINDS, verifiers.describe, verifiers.render),
    Subject("credit", lambda: CREDITS, describe_credit, render_named),
    Subject("algorithms", lambda: PRESETS, methods.describe_algorithm, methods.render_algorithm),
    Subject(
        "preferences",
        lambda: [*methods.METHODS, *methods.LOSSES],
        methods.describe_preference,
        methods.render_preference,
    ),
    Subject("selectors", lambda: SELECTORS, describe_selector, render_named),
    Subject("strategies", lambda: STRATEGIES, describe_strategy, render_named),
    Subject("findings", findings.rules, findings.describe, findings.render),
    Subject("rows", rows.names, rows.describe, rows.render),
    Subject("keys", key_names, describe_key, render_key, "of the recipe, as `train.prune` or `prune`"),
)
"""What can be explained, in the order in which several things of one name are."""


def find(name: str) -> list[Subject]:
    """The kinds of things that know the name, at least one: `json` is a verifier and a filter.

    Raises:
        UsageError: nothing is called so; the hint holds the nearest names.
    """
    if found := [subject for subject in SUBJECTS if name in subject.names()]:
        return found
    known = [one for subject in SUBJECTS for one in subject.names()]
    near = [one for one in known if one.endswith(f".{name}")] or [n for n in [nearest(name, known)] if n]
    ways = [*PRESETS, *methods.METHODS, *methods.LOSSES]
    if near and near[0] in ways and (own := same_letters(name, ways) or misspelt(name, ways)) != near[0]:
        near = [own] if own else []
    raise UsageError(
        f"nothing is called `{name}`",
        hint=f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
        if near
        else method_elsewhere(name) or "`grpo explain` lists the names",
    )
