"""`grpo sweep`: several runs of one recipe, every combination of the values given, each with so many seeds; a table at the end.

`make_plan` reads what will run from the command line and `SweepPlan.write` keeps it in `runs/NAME.sweep.json`, where a resume
finds it again; each run is an ordinary folder `runs/NAME-…-sSEED`. Each run is a process of its own, `grpo train`; as
many run at the same time as there are seats. The first signal is passed to every run, which saves and ends; no further
run begins.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from grpo_cli.errors import DataError, Exit, SetupError, UsageError, why_unwritten
from grpo_cli.findings.run_data import Arm, RunData, collect
from grpo_cli.jobs.report.arms import Difference, final_difference, final_score
from grpo_cli.jobs.runs import table
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import find, label_of, shipped_recipes
from grpo_cli.run import lines
from grpo_cli.run.folder import RunFolder, new_name
from grpo_cli.run.naming import why_no_name
from grpo_cli.run.records import parse_line
from grpo_cli.statistics.estimate import Interval, across_seeds
from grpo_cli.text import DASH, real_path, score, visible

SCHEMA = 1
SUFFIX = ".sweep.json"
MOST_RUNS = 500
"""Most runs of one sweep: a typing mistake in a list must not start thousands."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: `sets` are its own overrides, its seed and name among them; `arm` names its values."""

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
    return SweepPlan(
        sweep, recipe if recipe in shipped_recipes() else str(real_path(find(recipe))), folder, tuple(runs)
    )


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


# The result of a sweep: held-out scores of its arms with intervals, over seeds if there are several.

HEADER = ("arm", "runs", "held-out pass@1", "95 %", "over", "minus the first", "95 %")


@dataclass(frozen=True)
class ArmOutcome:
    """One combination of values: the number of measured runs, their score, and the difference to the first arm's."""

    arm: str
    planned: int
    measured: int
    score: Interval | None
    over: str
    difference: Difference | None

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        gap = self.difference
        return {
            "arm": self.arm,
            "planned": self.planned,
            "measured": self.measured,
            "pass@1": self.score.as_json() if self.score else None,
            "over": self.over,
            "difference": gap.interval.as_json() | {"over": gap.over} if gap else None,
        }


def outcomes(plan: SweepPlan) -> list[ArmOutcome]:
    """The arms in the order of the sweep; the others are compared with the first measured one."""
    found: list[ArmOutcome] = []
    base: Arm | None = None
    for name in dict.fromkeys(run.arm for run in plan.runs):
        planned = [run for run in plan.runs if run.arm == name]
        data = [one for run in planned if (one := _collected(Path(plan.dir) / run.name)) is not None]
        arm = Arm(name, tuple(run for run in data if final_score(run) is not None))
        gap = final_difference(arm, base) if base is not None and arm.runs else None
        base = base or (arm if arm.runs else None)
        value, over = _score(arm.runs)
        found.append(ArmOutcome(name, len(planned), len(arm.runs), value, over, gap))
    return found


def table_of(found: Sequence[ArmOutcome]) -> list[str]:
    """The table for people."""
    rows = [
        [
            visible(one.arm),
            str(one.measured) if one.measured == one.planned else f"{one.measured} of {one.planned}",
            score(one.score.mean if one.score else None),
            _ends(one.score),
            one.over,
            f"{one.difference.interval.mean:+.3f}" if one.difference else DASH,
            _ends(one.difference.interval if one.difference else None, sign="+"),
        ]
        for one in found
    ]
    return table(HEADER, rows)


def ended_object(plan: SweepPlan, codes: dict[str, int]) -> dict[str, Any]:
    """The one object of `--json`; `code` is null where a run was over before this sweep came to it."""
    runs = [
        {
            "run": str(Path(plan.dir) / run.name),
            "arm": run.arm,
            "seed": run.seed,
            "status": state_of(plan, run),
            "code": codes.get(run.name),
        }
        for run in plan.runs
    ]
    arms = [one.as_json() for one in outcomes(plan)]
    return {"schema": SCHEMA, "sweep": plan.name, "recipe": plan.recipe, "runs": runs, "arms": arms}


def _collected(path: Path) -> RunData | None:
    """A run's records; None if it has not begun or has recorded nothing."""
    if not (path / "run.json").is_file() or not (path / "metrics.jsonl").is_file():
        return None
    try:
        return collect(RunFolder(path))
    except DataError:
        return None  # counted as not measured: `1 of 3`


def _score(runs: Sequence[RunData]) -> tuple[Interval | None, str]:
    """Over seeds where there are several, else that of the evaluation over its prompts."""
    ends = [float(value) for run in runs if (value := final_score(run)) is not None]
    if not ends:
        return None, ""
    if len(ends) > 1:
        return across_seeds(ends), f"{len(ends)} seeds"
    last = next(m for m in reversed(runs[0].evaluations) if m.get("eval/pass@1") is not None)
    low, high = (float(last.get(f"eval/pass@1/{end}") or math.nan) for end in ("low", "high"))
    return Interval(ends[0], low, high, int(last.get("eval/n") or 0)), f"{last.get('eval/n', DASH)} prompts"


def _ends(interval: Interval | None, sign: str = "") -> str:
    if interval is None or not math.isfinite(interval.low):
        return DASH
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


OVER = ("done", "stopped")
"""States after which a run is not begun again."""
STOPS = (Exit.INTERRUPTED, Exit.TERMINATED)
MOST_TOLD = 20
"""Last lines of a failed run that are repeated."""


@dataclass
class SweepEnd:
    """The exit codes of a sweep's runs by name; runs that had ended before have none."""

    codes: dict[str, int] = field(default_factory=dict)
    signal: int | None = None

    @property
    def code(self) -> Exit:
        """A signal's code, else the first of a run that failed, else whether some run missed its bar."""
        if self.signal is not None:
            return Exit.TERMINATED if self.signal == signal.SIGTERM else Exit.INTERRUPTED
        failed = [code for code in self.codes.values() if code > Exit.BAR_MISSED]
        return (
            Exit(failed[0]) if failed and failed[0] in list(Exit) else Exit(min(1, max(self.codes.values(), default=0)))
        )


def state_of(plan: SweepPlan, run: PlannedRun) -> str:
    """`new`, or the status in the run's folder."""
    path = Path(plan.dir) / run.name
    if not (path / "run.json").is_file():
        return "new"
    return str(RunFolder(path).manifest().get("status"))


def command_of(plan: SweepPlan, run: PlannedRun, state: str, display: str) -> list[str]:
    """The command that begins the run, or goes on with it."""
    sets = [word for text in run.sets for word in ("--set", text)]
    resume = [] if state == "new" else ["--resume", str(Path(plan.dir) / run.name)]
    return [sys.executable, "-P", "-m", "grpo_cli", "train", plan.recipe, *sets, *resume, "--display", display]


def run_all(plan: SweepPlan, seats: list[Mapping[str, str]], display: str, tell: Callable[[str], None]) -> SweepEnd:
    """Run the unfinished runs, one in each seat (a seat is a set of environment variables); a failed run does not stop
    the others."""
    ended, free, count, is_alone = SweepEnd(), SimpleQueue[Mapping[str, str]](), len(plan.runs), len(seats) == 1
    for seat in seats:
        free.put(seat)
    living: set[subprocess.Popen[bytes]] = set()
    guard = threading.Lock()

    def one(number: int, run: PlannedRun) -> None:
        state = state_of(plan, run)
        if state in OVER:
            tell(f"run {number} of {count}  {run.name}  {state} already")
            return
        seat = free.get()
        try:
            with guard:
                if ended.signal is not None:
                    return
                tell(f"run {number} of {count}  {run.name}{'' if state == 'new' else f'  goes on ({state})'}")
                # a single run gets the terminal; several would draw over each other, so their last lines are shown at
                # their end
                process = subprocess.Popen(
                    command_of(plan, run, state, display if is_alone else "plain"),
                    env={**os.environ, **seat},
                    stdin=None if is_alone else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None if is_alone else subprocess.PIPE,
                )
                living.add(process)
            _, said = process.communicate()
            with guard:
                living.discard(process)
                ended.codes[run.name] = process.returncode if process.returncode >= 0 else 128 - process.returncode
            if ended.codes[run.name] > Exit.BAR_MISSED:
                tell(f"{run.name} ended with exit code {ended.codes[run.name]}")
                for line in (said or b"").decode(errors="replace").splitlines()[-MOST_TOLD:]:
                    tell(f"    {line}")
        finally:
            free.put(seat)

    def stop(number: int, _: FrameType | None) -> None:
        ended.signal = number
        for process in list(living):
            # Ctrl-C reaches the processes of a terminal by itself; a second one would end them in the middle of a step
            if number == signal.SIGTERM or not _is_in_front():
                process.send_signal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ThreadPoolExecutor(len(seats)) as pool:
            for done in [pool.submit(one, i, run) for i, run in enumerate(plan.runs, 1)]:
                done.result()
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
    if ended.signal is None and any(code in STOPS for code in ended.codes.values()):
        ended.signal = signal.SIGINT
    return ended


def seats_of(gpus: int, at_once: int | None, visible: str | None) -> list[Mapping[str, str]]:
    """One seat for each GPU that may be used, else one; `at_once` is how many are wanted."""
    names = [part.strip() for part in visible.split(",") if part.strip()] if visible else [str(i) for i in range(gpus)]
    if gpus > 1 and at_once != 1:
        return [{"CUDA_VISIBLE_DEVICES": name} for name in names[: at_once or gpus]]
    return [{} for _ in range(at_once or 1)]


def _is_in_front() -> bool:
    """Whether a Ctrl-C in the terminal reaches this process and its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
