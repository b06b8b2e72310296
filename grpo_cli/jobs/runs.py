"""`grpo runs`: runs listed, shown, compared and deleted.

`summarise` makes one line of a run's folder, also for old and damaged runs. The listing sorts and aligns these lines;
`removable` refuses runs that must not be deleted. `compare_runs` compares runs with the first: the recipe keys that
differ, and the difference of the held-out scores, paired by row.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from grpo_cli.display.watch import LONG_S, OVER, card_of, seconds_of
from grpo_cli.errors import DataError, SetupError, UsageError
from grpo_cli.findings.held_out import trusted_score
from grpo_cli.recipe.reading.dump import filled_up
from grpo_cli.run.find import list_runs
from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.info import Metrics, info_of, of_all_rows, recipe_file, recipe_of
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import Comparison, paired_clustered
from grpo_cli.text import DASH, duration, number, plus_minus, score, visible
from grpo_verifiers.names import nearest

UNREADABLE = "unreadable"
STATUSES = ("running", "silent", *OVER, UNREADABLE)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """`score` is the held-out pass@1 of the last evaluation (`half`: its ±), `start` that of the first; `best` and `gain` go by
    evaluations of all held-out rows; `seconds` from the start to the last news; `bytes` on disk. None is "not measured"."""

    name: str
    path: str
    status: str
    recipe: str = ""
    model: str = ""
    seed: int | None = None
    step: int = 0
    steps: int = 0
    started: str = ""
    seconds: float = 0.0
    start: float | None = None
    score: float | None = None
    half: float | None = None
    best: float | None = None
    best_step: int | None = None
    reward: float | None = None
    bytes: int = 0
    reason: str = ""
    gain: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, by its recorded status."""
        return self.status in OVER or self.status in (UNREADABLE, "silent")

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        return asdict(self)


def summarise(folder: RunFolder, now: float | None = None) -> RunSummary:
    """The line of a run. A run that has not ended and has written nothing for ten minutes is `silent`: it was killed,
    or it waits."""
    size = bytes_of(folder.path)
    try:
        info, card, manifest = info_of(folder), card_of(folder), folder.manifest()
    except (DataError, OSError, ValueError) as err:
        return RunSummary(folder.name, str(folder.path), UNREADABLE, bytes=size, reason=str(err))
    measured = [e for e in card.evaluations if e.get("eval/pass@1") is not None]
    all_rows = of_all_rows(measured)
    best = max(all_rows, key=trusted_score, default=None)
    last: Metrics = measured[-1] if measured else {}
    newest: Metrics = card.history[-1] if card.history else {}
    status = manifest.get("status")
    if status not in OVER:
        news = [f.stat().st_mtime for f in (folder.path / "metrics.jsonl", folder.path / "train.log") if f.exists()]
        since = (time.time() if now is None else now) - max([*news, seconds_of(manifest.get("started")) or 0.0])
        status = "running" if since < LONG_S else "silent"
    return RunSummary(
        name=folder.name,
        path=str(folder.path),
        status=str(status),
        recipe=info.recipe,
        model=info.model,
        seed=info.seed,
        step=int(newest.get("step") or 0),
        steps=info.steps,
        started=str(manifest.get("started") or ""),
        seconds=card.wall_s,
        start=trusted_score(measured[0]) if measured else None,
        score=trusted_score(last) if last else None,
        half=last.get("eval/pass@1/half"),
        best=trusted_score(best) if best else None,
        best_step=int(best["step"]) if best else None,
        reward=newest.get("reward/total/mean"),
        bytes=size,
        reason=str(manifest.get("reason") or ""),
        gain=trusted_score(all_rows[-1]) - trusted_score(all_rows[0]) if len(all_rows) > 1 else None,
    )


def bytes_of(path: Path) -> int:
    """The size of a folder on disk. Links are not followed; files that vanish meanwhile are ignored."""
    total, left = 0, [path]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


# Deleting runs: never one that may still be running, and never a folder that is no run.


def removable(folders: Sequence[RunFolder], even_running: bool = False) -> list[RunSummary]:
    """What would go.

    Raises:
        UsageError: one of them still runs.
    """
    found = [summarise(folder) for folder in folders]
    for one in found:
        if not one.is_over and not even_running:
            raise UsageError(
                f"`{one.name}` is running", hint="end it first, or say --force if nothing writes to it any more"
            )
    return found


def remove(found: Sequence[RunSummary]) -> int:
    """Delete runs with their checkpoints, samples and logs; returns the number of bytes freed.

    Raises:
        SetupError: a folder could not be deleted; those before it are gone.
    """
    freed = 0
    for one in found:
        try:
            shutil.rmtree(one.path)
        except OSError as err:
            raise SetupError(f"`{one.path}` could not be deleted: {err.strerror or err}") from err
        freed += one.bytes
    return freed


SCHEMA = 1
Order = Literal["started", "name", "status", "recipe", "step", "score", "best", "gain", "reward", "time", "size"]
ORDERS: tuple[str, ...] = get_args(Order)
_FIELDS = {"time": "seconds", "size": "bytes"}
"""Columns whose field in the summary has another name."""
_WORDS = ("name", "status", "recipe")
HEADER = ("run", "status", "steps", "held-out", "best", "gain", "time", "size", "recipe")


def listed(root: Path, by: str = "started", reverse: bool = False, status: Sequence[str] = ()) -> list[RunSummary]:
    """The runs under a folder; numbers from high to low, words from A on, times from the newest, unmeasured ones last.

    Raises:
        UsageError: no such order, or no such status.
    """
    asked = [(word, STATUSES, "--status", f"no run is `{word}`") for word in status]
    for word, known, place, text in [*asked, (by, ORDERS, "--sort", f"runs cannot be sorted by `{by}`")]:
        if word not in known:
            near = nearest(word, known, 0.5)
            raise UsageError(
                text, place=place, hint=f"did you mean `{near}`?" if near else f"one of {', '.join(known)}"
            )
    found = [summarise(folder) for folder in list_runs(root)]
    found = [one for one in found if not status or one.status in status]
    return ordered(found, by, reverse)


def ordered(found: Iterable[RunSummary], by: str, reverse: bool = False) -> list[RunSummary]:
    """Sorted by a column; runs without a value are last in both directions."""
    key = attrgetter(_FIELDS.get(by, by))
    have, lack = list[RunSummary](), list[RunSummary]()
    for one in found:
        (lack if key(one) is None else have).append(one)
    have.sort(key=lambda one: one.name)
    have.sort(key=key, reverse=(by in _WORDS) == reverse)
    return have + lack


def rows_of(found: Sequence[RunSummary]) -> list[list[str]]:
    """Cells by `HEADER`."""
    return [
        [
            visible(one.name),
            visible(one.status),
            f"{one.step}/{one.steps}" if one.steps else str(one.step),
            held_out(one),
            f"{score(one.best)} @{one.best_step}" if one.best is not None else DASH,
            f"{one.gain:+.3f}" if one.gain is not None else DASH,
            duration(one.seconds),
            size_text(one.bytes),
            visible(Path(one.recipe).name) if one.recipe else DASH,
        ]
        for one in found
    ]


def held_out(one: RunSummary) -> str:
    """`.972 ±.014`."""
    return DASH if one.score is None else f"{score(one.score)} {plus_minus(one.half)}"


def size_text(size: float) -> str:
    """`1.3 GB`, in powers of 1,000 as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of aligned columns; at a `width` the last columns that do not fit are left out, never the first three."""
    cells = [list(header), *map(list, rows)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(header))]
    count = len(header)
    while width is not None and count > 3 and sum(wide[:count]) + 2 * (count - 1) > width:
        count -= 1
    return ["  ".join(cell.ljust(wide[i]) for i, cell in enumerate(row[:count])).rstrip() for row in cells]


def run_object(folder: RunFolder) -> dict[str, Any]:
    """The object of `show --json`."""
    one = summarise(folder)
    evaluations: list[dict[str, Any]] = []
    if one.status != UNREADABLE:
        evaluations = [dict(metrics) for metrics in card_of(folder).evaluations]
    return {"schema": SCHEMA, "run": one.as_json(), "evaluations": evaluations}


def groups_of(folder: RunFolder, step: int, split: Split, row: str | None = None) -> list[list[SampleRecord]]:
    """The samples of a step by group, or those of the row with this id, or with the only one that begins so.

    Raises:
        DataError: no samples of that step, or of such a row.
    """
    groups: dict[str, list[SampleRecord]] = {}
    for sample in folder.samples(step, split):
        groups.setdefault(str(sample.group or sample.row), []).append(sample)
    if not groups:
        kept = folder.steps(split)
        hint = f"there are those of {len(kept)} steps, {kept[0]} to {kept[-1]}" if kept else "none were kept"
        raise DataError(f"no samples of step {step}", place="--step", hint=hint)
    if row is None:
        return list(groups.values())
    found = [group for group in groups.values() if group[0].row.startswith(row)]
    if len({group[0].row for group in found}) != 1:
        why = "several rows have ids that begin so" if found else f"rows {', '.join(g[0].row for g in groups.values())}"
        raise DataError(f"no row `{row}` in step {step}: {why:.300}", place="--row")
    return found


def lines_of(folder: RunFolder) -> list[str]:
    """One run for a person to read."""
    one = summarise(folder)
    if one.status == UNREADABLE:
        return [f"{visible(one.name)}   {UNREADABLE}: {visible(one.reason)}"]
    card, manifest = card_of(folder), folder.manifest()
    checkpoints = sorted(p.name for p in (folder.path / "checkpoints").glob("step-*") if p.suffix == "")
    recipe, file = visible(one.recipe) or DASH, recipe_file(folder)
    facts = [
        ("status", one.status + (f": {visible(one.reason)}" if one.reason else "")),
        ("recipe", f"{recipe} ({visible(file)})" if one.recipe and file not in ("", one.recipe) else recipe),
        ("model", visible(one.model) or DASH),
        ("steps", f"{one.step} of {one.steps}" if one.steps else str(one.step)),
        ("started", one.started or DASH),
        ("time", duration(one.seconds)),
        ("device", visible(str(manifest.get("device") or "")) or DASH),
        ("seed", DASH if one.seed is None else str(one.seed)),
        ("reward", number(one.reward)),
        ("held-out", held_out(one)),
        ("best", f"{score(one.best)} at step {one.best_step}" if one.best is not None else DASH),
        ("checkpoints", ", ".join(checkpoints) or DASH),
        ("size", size_text(one.bytes)),
        ("folder", one.path),
        ("next", card.next or f"grpo watch {one.path}"),
    ]
    lines = [f"{name:<12} {visible(text)}" for name, text in facts]
    measured = [e for e in card.evaluations if e.get("eval/pass@1") is not None]
    if measured:
        rows = [
            [str(e["step"]), f"{score(e['eval/pass@1'])} {plus_minus(e.get('eval/pass@1/half'))}", score(e.get("eval/greedy"))]
            for e in measured
        ]  # fmt: skip
        lines += ["", *table(("step", "pass@1", "greedy"), rows)]
    return lines


def compared_lines(first: RunSummary, others: Sequence[RunComparison]) -> list[str]:
    """The comparison of runs with the first, as text."""
    lines = table(HEADER, rows_of([first, *(other.summary for other in others)]))
    for other in others:
        lines += ["", f"{visible(other.summary.name)} against {visible(first.name)}"]
        paired = other.why
        if other.paired is not None:
            gap, p = other.paired.difference, other.paired.p_value
            sure = "nothing bounds it" if gap.n < 2 else f"[{gap.low:+.3f}, {gap.high:+.3f}], p {p:.2g}"
            paired = f"{gap.mean:+.3f} {sure}   n {gap.n} rows, steps {other.first_step} and {other.step}"
        lines.append(f"  held-out   {paired}")
        if not other.differs:
            lines.append("  recipe     the same")
        for key, (a, b) in other.differs.items():
            lines.append(f"  {visible(key)}   {_value(a)} → {_value(b)}")
    return lines


def _value(value: Any) -> str:
    return DASH if value is None else visible(str(value), 60)


QUIET = ("run",)
"""Sections of a recipe that name a run's location, not its content."""


@dataclass(frozen=True)
class RunComparison:
    """A run against the first one: `paired` over the rows that both measured last (`step`, `first_step`); None where there are none,
    and `why` then says so."""

    summary: RunSummary
    differs: Mapping[str, tuple[Any, Any]]
    paired: Comparison | None
    first_step: int | None
    step: int | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        found = None
        if self.paired is not None:
            found = {
                "difference": self.paired.difference.as_json(),
                "p": self.paired.p_value,
                "detectable": self.paired.detectable,
            }
        return {
            "run": self.summary.as_json(),
            "recipe": {key: {"first": a, "this": b} for key, (a, b) in self.differs.items()},
            "pass@1": found,
            "steps": [self.first_step, self.step],
            "why": self.why,
        }


def compare_runs(folders: Sequence[RunFolder]) -> tuple[RunSummary, list[RunComparison]]:
    """The first run, and every other compared with it."""
    first, *others = folders
    recipe, shares, step = filled_up(recipe_of(first)), *_last_shares(first)
    found = []
    for other in others:
        theirs, at = _last_shares(other)
        pairs = [(shares[row], theirs[row]) for row in shares if row in theirs]
        why = "" if pairs else ("no held-out row in common" if shares and theirs else "not measured")
        paired = paired_clustered([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
        differs = differences(recipe, filled_up(recipe_of(other)))
        found.append(RunComparison(summarise(other), differs, paired, step, at, why))
    return summarise(first), found


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys at which two recipes differ, with both values; None where one lacks it."""
    one, two = flat_recipe_keys(a), flat_recipe_keys(b)
    keys = [*one, *(key for key in two if key not in one)]
    return {
        key: (one.get(key), two.get(key))
        for key in keys
        if one.get(key) != two.get(key) and key.split(".")[0] not in QUIET
    }


def flat_recipe_keys(recipe: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Sections as dotted keys; lists are values."""
    out: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            out |= flat_recipe_keys(value, f"{above}{key}.")
        else:
            out[f"{above}{key}"] = value
    return out


def _last_shares(folder: RunFolder) -> tuple[dict[str, list[float]], int | None]:
    """Right or not of every judged held-out sample of the last evaluation that was kept, by row, and its step."""
    steps = folder.steps("eval")
    if not steps:
        return {}, None
    groups: dict[str, list[float]] = {}
    try:
        for record in folder.samples(steps[-1], "eval"):
            if record.is_judged:
                groups.setdefault(record.row, []).append(float(record.is_right))
    except (ValueError, DataError):
        return {}, None
    return groups, steps[-1]
