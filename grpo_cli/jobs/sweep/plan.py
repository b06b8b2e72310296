"""What a sweep will run: read from the command line, kept in a file beside its runs, found again by a resume.

`runs/NAME.sweep.json` names recipe, overrides and runs; each of these is an ordinary run folder `runs/NAME-…-sSEED`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_cli.errors import DataError, SetupError, UsageError, why_unwritten
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import find, label_of, shipped_recipes
from grpo_cli.run import lines
from grpo_cli.run.folder import new_name
from grpo_cli.run.naming import why_no_name
from grpo_cli.run.records import parse_line
from grpo_cli.text import visible

SCHEMA = 1
SUFFIX = ".sweep.json"
MOST_RUNS = 500
"""Runs of one sweep: a slip of the keyboard in a list is not started."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: `sets` are its own overrides, its seed and name among them; `arm` says which values it has."""

    name: str
    arm: str
    seed: int
    sets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep. `recipe` is an absolute path; `dir` is where its runs lie."""

    name: str
    recipe: str
    dir: str
    runs: tuple[PlannedRun, ...]

    @property
    def path(self) -> Path:
        """The file that keeps it."""
        return Path(self.dir) / f"{self.name}{SUFFIX}"

    def write(self) -> None:
        """Keep it beside its runs.

        Raises:
            SetupError: the folder cannot be written.
        """
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines.replace(self.path, text)
        except OSError as err:
            raise SetupError(f"`{self.path}` cannot be written: {why_unwritten(err)}") from err


def make_plan(
    recipe: str, sets: Sequence[str], seeds: int, name: str | None = None, dir: str | None = None
) -> SweepPlan:
    """The runs of every combination of listed values and `seeds` seeds; each recipe is loaded, so all mistakes come first.

    Raises:
        UsageError: the recipe is stdin, a list is empty, or it would be too many runs.
        RecipeError: an override that the recipe does not take.
    """
    if recipe == "-":
        raise UsageError("a sweep needs a recipe that it can read again", hint="save it to a file")
    choices = [(key, values) for key, values in map(split_values, sets)]
    fixed = [f"{key}={values[0]}" for key, values in choices if len(values) == 1]
    varied = [(key, values) for key, values in choices if len(values) > 1]
    for key, _ in choices:
        if key in ("run.name", "run.dir") or (key == "train.seed" and seeds > 1):
            hint = {"run.name": "--name", "run.dir": "--dir", "train.seed": "--seeds"}[key]
            raise UsageError(f"`{key}` is the sweep's own to set", place="--set", hint=f"say {hint}")
    arms = list(itertools.product(*([f"{key}={value}" for value in values] for key, values in varied)))
    if len(arms) * seeds > MOST_RUNS:
        raise UsageError(f"{len(arms)} combinations × {seeds} seeds are more than {MOST_RUNS} runs")
    first = load(recipe, [*fixed, *(arms[0] if arms else ())])
    folder = dir or first.run.dir
    sweep = name or new_name(label_of(recipe))
    if not re.fullmatch(r"[\w.+-]+", sweep) or why_no_name(sweep):
        raise UsageError(
            f"`{visible(sweep, 60)}` cannot name a sweep",
            place="--name",
            hint="letters, digits, - _ . +, a letter first",
        )
    runs = []
    for arm in arms:
        base = load(recipe, [*fixed, *arm])
        for offset in range(seeds):
            seed = base.train.seed + offset
            tag = "-".join([sweep, *(_tag(text) for text in arm), f"s{seed}"])
            own = (*fixed, *arm, f"train.seed={seed}", f"run.dir={folder}", f"run.name={tag}")
            load(recipe, own)
            runs.append(PlannedRun(tag, ", ".join(arm) or "as written", seed, own))
    if len({run.name for run in runs}) < len(runs):
        raise UsageError(
            "two runs of the sweep would have the same name", place="--set", hint="is a value given twice?"
        )
    return SweepPlan(sweep, recipe if recipe in shipped_recipes() else str(find(recipe).resolve()), folder, tuple(runs))


def read_plan(named: str, dir: str = "runs") -> SweepPlan:
    """The sweep of this name under `dir`, its file, or the newest (`last`).

    Raises:
        DataError: there is none, or its file is damaged.
    """
    found = sorted(Path(dir).glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
    path = Path(named) if named.endswith(SUFFIX) else Path(dir) / f"{named}{SUFFIX}"
    if named == "last" and found:
        path = found[-1]
    if not path.is_file():
        names = ", ".join(p.name.removesuffix(SUFFIX) for p in reversed(found[-5:]))
        hint = f"there are {names}" if names else "`grpo sweep RECIPE --seeds 3` begins one"
        raise DataError(f"no sweep `{named}` under `{dir}`", hint=hint)
    try:
        kept = parse_line(path.read_bytes())
        runs = tuple(PlannedRun(**(run | {"sets": tuple(run["sets"])})) for run in kept["runs"])
        return SweepPlan(kept["name"], kept["recipe"], str(path.parent), runs)
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise DataError(f"is no sweep's file: {err}", place=str(path)) from err


def split_values(text: str) -> tuple[str, list[str]]:
    """Key and values of `KEY=V1,V2`; commas in brackets, braces and quotes part nothing.

    Raises:
        UsageError: no `=`, or an empty value between commas.
    """
    key, equals, rest = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"`{text}` is not KEY=VALUE", place="--set", hint="such as train.lr=1e-6,3e-6")
    values, depth, quote = [""], 0, ""
    for char in rest:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{(":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            values.append("")
            continue
        values[-1] += char
    values = [value.strip() for value in values]
    if len(values) > 1 and not all(values):
        raise UsageError(f"`{text}` has an empty value", place="--set", hint="values are parted by single commas")
    return key.strip(), values


def _tag(text: str) -> str:
    """`lr1e-6` of `train.lr=1e-6`: letters that a folder name takes."""
    key, _, value = text.partition("=")
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{key.rsplit('.', 1)[-1]}{value}").strip("_")[:32]


def as_object(plan: SweepPlan) -> dict[str, Any]:
    """For `--dry-run --json`."""
    return {"schema": SCHEMA, "sweep": plan.name, "recipe": plan.recipe, "runs": [asdict(run) for run in plan.runs]}
