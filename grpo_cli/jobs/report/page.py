"""The page: static HTML with the outcome first, data as JSON, one script. It makes no request, and text cannot act.

Model text reaches the page in two ways only: escaped by the templates, or as JSON that the script sets with `textContent`.
Besides, a content policy lets nothing run but the one script whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.jobs.report.arms import arms_table
from grpo_cli.jobs.report.findings import FindingGroup, grouped_findings
from grpo_cli.jobs.report.outcome import AlarmAct, Setup, acts_of, setup_of, tiles_of, verdict
from grpo_cli.jobs.report.overlays import held_out, overlay
from grpo_cli.jobs.report.packing import MOST_PACKED, SamplePack, pack_samples
from grpo_cli.jobs.report.pictures import (
    groups,
    histogram,
    latency,
    lengths,
    policy,
    prompts,
    rewards,
    timing,
    verifiers,
)
from grpo_cli.jobs.report.plot import Figure
from grpo_cli.jobs.report.reading import SampleDigest, read_samples
from grpo_cli.jobs.report.stages import stage_tables
from grpo_cli.jobs.report.templates import render
from grpo_cli.run import lines
from grpo_cli.run.reading import ReadOnce
from grpo_cli.text import Json, visible

SCRIPTS = ("plot.js", "reader.js", "report.js")
OVERLAYS = (
    ("reward/total/mean", "reward-all", "Reward", "Mean reward of each step.", "reward", False, False),
    (
        "group/signal",
        "signal-all",
        "Groups with signal",
        "Share of groups whose rewards differ.",
        "share",
        True,
        False,
    ),
    ("length/mean", "length-all", "Length", "Mean completion length.", "tokens", False, False),
    (
        "entropy",
        "entropy-all",
        "Entropy",
        "Entropy of the policy, over the rows trained on.",
        "entropy",
        False,
        False,
    ),
    ("kl", "kl-all", "KL to the reference", "Mean over tokens.", "kl", False, False),
    ("grad_norm", "grad-all", "Gradient norm", "Before clipping, log scale.", "norm", False, True),
)


@dataclass(frozen=True)
class RunPart:
    """What the page says of one run; `parts` are words of the page with their figures."""

    run: RunData
    index: int
    parts: list[tuple[str, list[Figure]]]
    findings: list[FindingGroup]
    acts: list[AlarmAct]
    setup: Setup
    reading: SampleDigest
    pack: SamplePack


def write_report(arms: Sequence[Arm], target: Path) -> Path:
    """Write the report of these arms; the file is complete or not there.

    Raises:
        SetupError: the place cannot be written.
    """
    page = build_page(arms)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lines.replace(target, page)
    except OSError as err:
        raise SetupError(f"`{target}` cannot be written: {why_unwritten(err)}") from err
    return target


def build_page(arms: Sequence[Arm]) -> str:
    """The HTML text."""
    arms = [  # several look through the samples of a run
        replace(arm, runs=tuple(replace(run, folder=ReadOnce(run.folder)) for run in arm.runs))
        for arm in arms
    ]
    runs = [run for arm in arms for run in arm.runs]
    is_single = len(runs) == 1
    first: list[Figure | None] = [held_out(arms)]
    if not is_single:
        first += [
            overlay(arms, key, id, title, says, y, share=share, log=log)
            for key, id, title, says, y, share, log in OVERLAYS
        ]
    shown = [figure for figure in first if figure is not None]
    parts = [_run_part(run, i, len(runs)) for i, run in enumerate(runs)]
    figures = [*shown, *(figure for part in parts for _, drawn in part.parts for figure in drawn)]
    axes: dict[tuple[Any, ...], int] = {}
    data: dict[str, Json] = {
        "figures": [_safe(figure.as_json(axes)) for figure in figures],
        "axes": [_safe(list(axis)) for axis in axes],
        "packs": [asdict(part.pack) for part in parts],
        "readings": [_reading_json(part.reading) for part in parts],
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


def _run_part(run: RunData, index: int, count: int) -> RunPart:
    reading = read_samples(run.folder)
    figures = run_figures(run, reading, "" if count == 1 else f"{index}-")
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


def run_figures(run: RunData, reading: SampleDigest, prefix: str) -> list[tuple[str, list[Figure]]]:
    """The four words of the page with the figures of one run."""
    parts = [
        ("Train", [rewards(run, reading.bands), groups(run), histogram(run), lengths(run)]),
        ("Eval", [prompts(reading.heat)]),
        ("Stability", [policy(run)]),
        ("Performance", [timing(run), verifiers(run), latency(run)]),
    ]
    return [(word, [f.renamed(prefix + f.id) for f in drawn if f is not None]) for word, drawn in parts]


def embedded(value: Json) -> str:
    """JSON that can stand inside a script element: ASCII only, and no `<` that could end it."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str).replace(
        "<", "\\u003c"
    )


def _reading_json(reading: SampleDigest) -> dict[str, Json]:
    return {
        "prompts": [_safe(p) for p in reading.prompts],
        "surprises": [_safe(s) for s in reading.surprises],
    }


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
