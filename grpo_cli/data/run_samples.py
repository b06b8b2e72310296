"""The source `run:NAME`: the training samples of a run, as rows with a column `completion`, for rejection sampling.

    from: run:NAME_OR_PATH      options: {only: right, a_row: 4, shortest: false, language: LATIN, repetition: 0.2, since: 0}

A row comes with at most `a_row` distinct, untruncated completions. Every row occurs equally often, so that easy rows
with many right samples do not crowd out hard ones. The run's held-out samples are in other files and are never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from grpo_cli.data.files import BrokenFile, Record, read_file
from grpo_cli.errors import DataError, RecipeError
from grpo_cli.text import path_of
from grpo_verifiers.names import near_or_known
from grpo_verifiers.shaping import Shaped, build_term

RUNS = "runs"
OWN = ("step", "row", "group", "verdicts", "outcome", "reward", "outcome_reward", "advantage", "tokens", "truncated", "fields")  # fmt: skip
"""Keys of a sample that are no columns of its row; `prompt` and `completion` are the other two."""
STEP = re.compile(r"step-(\d+)\.jsonl$")


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Which samples are taken. `wrong` samples serve as a placebo; `language` is a script, `repetition` a share of
    repeated words."""

    only: str = "right"
    a_row: int = 4
    shortest: bool = False
    language: str | None = None
    repetition: float | None = None
    since: int = 0

    @classmethod
    def of(cls, options: Mapping[str, Any], name: str, key: str) -> SampleFilter:
        """The options of a source.

        Raises:
            RecipeError: an unknown option, or an invalid value.
        """
        known = {field.name for field in fields(cls)}
        for option in options:
            if option not in known:
                raise RecipeError(
                    f"unknown option `{option}` of `{name}`{near_or_known(option, sorted(known))}", place=key
                )
        taking = cls(**options)
        share = taking.repetition
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        wanted = {
            "only": (taking.only in ("right", "wrong"), "`right` or `wrong`"),
            "a_row": (_is_whole(taking.a_row, 1), "a whole number of at least 1"),
            "shortest": (isinstance(taking.shortest, bool), "`true` or `false`"),
            "language": (taking.language is None or isinstance(taking.language, str), "a script such as `LATIN`"),
            "repetition": (share is None or (is_number and 0 <= share <= 1), "a share between 0 and 1"),
            "since": (_is_whole(taking.since, 0), "a step"),
        }
        for option, (fits, expected) in wanted.items():
            if not fits:
                got = getattr(taking, option)
                raise RecipeError(f"option `{option}` of `{name}` must be {expected}, got {got!r}", place=key)
        return taking


def run_rows(
    name: str, shown: str, options: Mapping[str, Any], base: Path | None, key: str
) -> Iterator[Record | BrokenFile]:
    """The rows of a run's samples; `name` is the run, `shown` how the recipe calls the source.

    Raises:
        RecipeError: an invalid option.
        DataError: no such run, or nothing in it that may be taken.
    """
    taking = SampleFilter.of(options, shown, key)
    folder = find_samples(name, shown, base, key)
    kept: dict[str, list[dict[str, Any]]] = {}
    seen: dict[str, set[str]] = {}
    count = 0
    for file in sorted(folder.glob("step-*.jsonl"), key=_step):
        if _step(file) < taking.since:
            continue
        for item in read_file(file, f"{shown} {file.name}"):
            if isinstance(item, BrokenFile):
                yield item
                continue
            count += 1
            line = item.fields
            if not isinstance(line.get("fields") or {}, dict) or not isinstance(line.get("tokens") or 0, int | float):
                yield BrokenFile(item.place, "no sample of a run: `fields` must be an object, `tokens` a number")
                continue
            row, text, outcome = str(line.get("row", "")), line.get("completion"), line.get("outcome")
            if not isinstance(text, str) or text in seen.setdefault(row, set()) or line.get("truncated"):
                continue
            # a sample without a verdict is neither right nor wrong, and must not be taken as a wrong one
            if outcome not in (("right",) if taking.only == "right" else ("wrong", "no_answer", "over_limit")):
                continue
            shaped = Shaped(text)
            if taking.language is not None and build_term("language", script=taking.language)(shaped) < 0:
                continue
            if taking.repetition is not None and build_term("repetition", free=taking.repetition)(shaped) < 0:
                continue
            seen[row].add(text)
            kept.setdefault(row, []).append(line)
    if not kept:
        raise DataError(
            f"none of {count:,} samples of `{shown}` is {taking.only}, whole"
            f"{' and as its options ask' if options else ''}",
            place=key,
        )
    for row, lines in kept.items():
        if taking.shortest:
            lines.sort(key=lambda line: int(line.get("tokens") or len(str(line["completion"]))))
        # a row with fewer samples than `a_row` repeats them, so that it stands in the set as often as any other
        for line in islice(cycle(lines[: taking.a_row]), taking.a_row):
            own = {k: v for k, v in line.items() if k not in OWN and k not in ("prompt", "completion")}
            own |= line.get("fields") or {}
            yield Record({**own, "completion": line["completion"]}, f"{shown} row {row}", row)


def _step(file: Path) -> int:
    found = STEP.search(file.name)
    return int(found[1]) if found else -1


def find_samples(name: str, shown: str, base: Path | None, key: str) -> Path:
    """The folder of a run's training samples: a path, or a name under `runs/`, beside the recipe and from here.

    Raises:
        DataError: no such run, or one without samples.
    """
    path = path_of(name)
    bases = [Path()] if base is None or path.is_absolute() else [base, Path()]
    places = [one for b in bases for one in (b / path, b / RUNS / path)]
    run = next((one for one in places if (one / "run.json").is_file()), None)
    if run is None:
        named = sorted({p.parent.name for b in bases for p in (b / RUNS).glob("*/run.json")})
        raise DataError(f"no run `{name}`{near_or_known(name, named) if named else ''}", place=key)
    if not any((run / "samples").glob("step-*.jsonl")):
        raise DataError(f"the run `{shown}` has no samples", place=key)
    return run / "samples"


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
