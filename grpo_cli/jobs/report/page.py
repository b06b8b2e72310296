"""The page: static HTML with the outcome first, data as JSON, and one script. It makes no requests, and text from a run
cannot execute.

Model text reaches the page in two ways only: escaped by the templates, or as JSON that the script sets with `textContent`.
Besides, a content policy lets nothing run but the one script whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.findings.finding import Finding
from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.findings.samples import duplicate_rows, nearest_step, samples_behind, split_of
from grpo_cli.jobs.report import plot
from grpo_cli.jobs.report.arms import AlarmAct, Setup, acts_of, arms_table, setup_of, tiles_of, verdict
from grpo_cli.jobs.report.reading import (
    MOST_PACKED,
    SampleDigest,
    SamplePack,
    add_thumbnails,
    pack_samples,
    read_samples,
)
from grpo_cli.jobs.report.templates import render
from grpo_cli.run import lines
from grpo_cli.run.reading import ReadOnce
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import across_seeds
from grpo_cli.text import Json, number, score, visible, without_home

# Findings on the page: one entry for each code, however often it was raised, with the completions behind the first.

MOST_SAID = 40
"""Most occurrences listed for one code."""


@dataclass
class FindingGroup:
    """All findings of one code in the order of their steps; `samples` are those of `sample_step` behind the first."""

    code: str
    found: list[Finding] = field(default_factory=list)
    samples: Sequence[SampleRecord] = ()
    sample_step: int | None = None
    is_held_out: bool = False

    @property
    def count(self) -> int:
        """How often it was noted."""
        return len(self.found)

    @property
    def when(self) -> str:
        """`step 12`, or `5 times, steps 12 to 90`."""
        first, last = self.found[0].step, self.found[-1].step
        return f"step {first}" if len(self.found) == 1 else f"{len(self.found)} times, steps {first} to {last}"

    @property
    def earlier(self) -> list[Finding]:
        """Earlier occurrences, at most the latest of them."""
        return self.found[:-1][-MOST_SAID:]


def grouped_findings(run: RunData) -> list[FindingGroup]:
    """The run's findings by code, the earliest first; copies among its rows last."""
    groups: dict[str, FindingGroup] = {}
    for finding in run.findings:
        groups.setdefault(finding.code, FindingGroup(finding.code)).found.append(finding)
    copies = duplicate_rows(run.folder)
    if copies is not None:
        groups[copies[0].code] = FindingGroup(copies[0].code, [copies[0]])
    for group in groups.values():
        split = split_of(group.code)
        step = nearest_step(run.folder, group.found[0].step, split)
        if step is None:
            continue
        of_copies = copies[1] if copies is not None and group.code == copies[0].code else None
        group.samples = of_copies or samples_behind(group.code, list(run.folder.samples(step, split)))
        group.sample_step, group.is_held_out = step, split == "eval"
    return list(groups.values())


# The stages of a chain as a table: held-out score before and after each, with 95 % intervals.

PASS_1 = "pass@1"


@dataclass(frozen=True)
class StageRow:
    """One stage in words: its steps on the axis of the chain, scores before and after."""

    name: str
    steps: str
    before: str
    after: str
    n: str


@dataclass(frozen=True)
class StageTable:
    """The stages of an arm; `how` names what the intervals are over."""

    label: str
    rows: list[StageRow]
    how: str


def stage_tables(arms: Sequence[Arm]) -> list[StageTable]:
    """A table of each arm whose runs are chains of the same stages."""
    found = []
    for arm in arms:
        chains = [run.manifest.get("stages") or [] for run in arm.runs]
        names = [[str(stage.get("name")) for stage in chain] for chain in chains]
        if names[0] and all(names[0] == other for other in names):
            over = f"over {len(chains)} seeds (t)" if len(chains) > 1 else "clustered by prompt"
            rows, done = [], 0
            for stages in zip(*chains, strict=True):
                steps = int(stages[0].get("steps") or 0)
                before, after = (_score([stage.get(when) for stage in stages]) for when in ("before", "after"))
                n = next((stage["after"].get("n") for stage in stages if stage.get("after")), None)
                rows.append(StageRow(str(stages[0]["name"]), f"{done + 1} to {done + steps}", before, after, number(n)))
                done += steps
            label = arm.runs[0].name if len(arm.runs) == 1 else arm.label
            found.append(StageTable(label, rows, f"95 % intervals {over}"))
    return found


def _score(measured: Sequence[dict[str, Any] | None]) -> str:
    """`0.412 [0.380, 0.440]`: of one run its own interval, of several that over them; a dash where one was not measured."""
    known = [one for one in measured if one is not None and one.get(PASS_1) is not None]
    if len(known) < len(measured):
        return number(None)
    if len(known) == 1:
        return f"{score(known[0][PASS_1])} [{score(known[0].get('low'))}, {score(known[0].get('high'))}]"
    said = across_seeds([one[PASS_1] for one in known])
    return f"{score(said.mean)} [{score(said.low)}, {score(said.high)}]"


SCRIPTS = ("plot.js", "reader.js", "report.js")
OVERLAYS = (
    ("reward/total/mean", "reward-all", "Reward", "Mean reward of each step.", "reward", False, False),
    ("group/signal", "signal-all", "Groups with signal", "Share of groups whose rewards differ.", "share", True, False),
    ("length/mean", "length-all", "Length", "Mean completion length.", "tokens", False, False),
    ("entropy", "entropy-all", "Entropy", "Entropy of the policy, over the rows trained on.", "entropy", False, False),
    ("kl", "kl-all", "KL to the reference", "Mean over tokens.", "kl", False, False),
    ("grad_norm", "grad-all", "Gradient norm", "Before clipping, log scale.", "norm", False, True),
)


@dataclass(frozen=True)
class RunPart:
    """The content of one run; `parts` are the sections of the page with their figures."""

    run: RunData
    index: int
    parts: list[tuple[str, list[plot.Figure]]]
    findings: list[FindingGroup]
    acts: list[AlarmAct]
    setup: Setup
    reading: SampleDigest
    pack: SamplePack


def write_report(arms: Sequence[Arm], target: Path, *, images: bool = False) -> Path:
    """Write the report of these arms; the file is complete or not there. With `images` it holds small copies of those of the rows.

    Raises:
        SetupError: the place cannot be written.
        RecipeError, DataError: rows with images cannot be read again.
    """
    page = build_page(arms, images=images)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lines.replace(target, without_home(page))
    except OSError as err:
        raise SetupError(f"`{target}` cannot be written: {why_unwritten(err)}") from err
    return target


def build_page(arms: Sequence[Arm], *, images: bool = False) -> str:
    """The HTML text; `images` as in `write_report`."""
    arms = [  # several figures read the samples of a run
        replace(arm, runs=tuple(replace(run, folder=ReadOnce(run.folder)) for run in arm.runs)) for arm in arms
    ]
    runs = [run for arm in arms for run in arm.runs]
    is_single = len(runs) == 1
    first: list[plot.Figure | None] = [plot.held_out(arms)]
    for key, id, title, says, y, share, log in () if is_single else OVERLAYS:
        first.append(plot.overlay(arms, key, id, title, says, y, share=share, log=log))
    shown = [figure for figure in first if figure is not None]
    parts = [_run_part(run, i, len(runs), images=images) for i, run in enumerate(runs)]
    figures = [*shown, *(figure for part in parts for _, drawn in part.parts for figure in drawn)]
    axes: dict[tuple[Any, ...], int] = {}
    data: dict[str, Json] = {
        "figures": [_safe(figure.as_json(axes)) for figure in figures],
        "axes": [_safe(list(axis)) for axis in axes],
        "packs": [asdict(part.pack) for part in parts],
        "readings": [
            {"prompts": _safe([*part.reading.prompts]), "surprises": _safe([*part.reading.surprises])} for part in parts
        ],
    }
    assets = resources.files("grpo_cli.jobs.report") / "assets"
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return render(
        "page.html",
        runs=parts,
        shown=shown,
        table=None if is_single else arms_table(arms),
        chains=stage_tables(arms),
        tiles=tiles_of(runs[0]) if is_single else [],
        verdict=verdict(runs[0]) if is_single else "",
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup((assets / "report.css").read_text(encoding="utf-8")),
        data=Markup(embedded(data)),
    )


def _run_part(run: RunData, index: int, count: int, *, images: bool) -> RunPart:
    reading = read_samples(run.folder)
    if images:
        add_thumbnails(run.folder, reading)
    prefix = "" if count == 1 else f"{index}-"
    parts = [
        ("Train", [plot.rewards(run, reading.bands), plot.groups(run), plot.histogram(run), plot.lengths(run)]),
        ("Eval", [plot.prompts(reading.heat)]),
        ("Stability", [plot.policy(run)]),
        ("Performance", [plot.timing(run), plot.verifiers(run), plot.latency(run)]),
    ]
    figures = [(word, [replace(f, id=prefix + f.id) for f in drawn if f is not None]) for word, drawn in parts]
    return RunPart(
        run,
        index,
        figures,
        grouped_findings(run),
        acts_of(run),
        setup_of(run),
        reading,
        pack_samples(run.folder, MOST_PACKED // count),
    )


def embedded(value: Json) -> str:
    """JSON that can stand inside a script element: ASCII only, and no `<` that could end it."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str).replace(
        "<", "\\u003c"
    )


def _safe(value: Json) -> Json:
    """Text with control characters made visible, lines kept; a number that is not finite as null, as everywhere in JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return "\n".join(visible(line) for line in value.split("\n"))
    if isinstance(value, dict):
        return {key: _safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return value
