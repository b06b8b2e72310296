"""The page: static HTML with the outcome first, data as JSON, one script. It makes no request, and text cannot act.

Model text reaches the page in two ways only: escaped here, or as JSON that the script sets with `textContent`. Besides,
a content policy lets nothing run but the two scripts whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from grpo_cli.errors import SetupError
from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.jobs.report.outcome import outcome_html, setup_html
from grpo_cli.jobs.report.overlays import held_out, overlay
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
from grpo_cli.jobs.report.reading import Reading, read_samples
from grpo_cli.run import lines
from grpo_cli.text import Json, visible

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


def write_report(arms: Sequence[Arm], target: Path) -> Path:
    """Write the report of these arms; the file is complete or not there.

    Raises:
        SetupError: plotly is not installed, or the place cannot be written.
    """
    page = build_page(arms, plotly_source())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lines.replace(target, page)
    except OSError as err:
        raise SetupError(f"`{target}` cannot be written: {(err.strerror or str(err)).lower()}") from err
    return target


def plotly_source() -> str:
    """plotly.js, from the Python package.

    Raises:
        SetupError: it is not installed.
    """
    try:
        return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError) as err:
        raise SetupError(
            "`plotly` is not installed, so no figure can be drawn", hint="pip install plotly"
        ) from err


def build_page(arms: Sequence[Arm], plotly: str) -> str:
    """The HTML text."""
    runs = [run for arm in arms for run in arm.runs]
    sections, figures, readings = [], [], {}
    is_single = len(runs) == 1
    first: list[Figure | None] = [held_out(arms)]
    if not is_single:
        first += [
            overlay(arms, key, id, title, says, y, share=share, log=log)
            for key, id, title, says, y, share, log in OVERLAYS
        ]
    shown = [f for f in first if f is not None]
    figures += shown
    sections.append(_section("outcome", "Outcome", outcome_html(arms) + "".join(map(_figure_html, shown))))
    for i, run in enumerate(runs):
        reading = read_samples(run.folder)
        readings[run.name] = reading
        parts = run_figures(run, reading, "" if is_single else f"{i}-")
        figures += [figure for _, drawn in parts for figure in drawn]
        body = "".join(
            _section(f"{word.lower()}{i}", word, "".join(map(_figure_html, drawn)), level=3)
            for word, drawn in parts
            if drawn
        )
        body += _reading_html(i, run, reading) + setup_html(run, i)
        if is_single:
            sections.append(body)
        else:
            sections.append(f'<details class="run"><summary>run {_text(run.name)}</summary>{body}</details>')
    data = {
        "figures": [f.as_json() for f in figures],
        "readings": [_reading_json(readings[run.name]) for run in runs],
    }
    asset = resources.files("grpo_cli.jobs.report") / "assets"
    script, style = (
        (asset / "report.js").read_text(encoding="utf-8"),
        (asset / "report.css").read_text(encoding="utf-8"),
    )
    title = f"grpo report · {', '.join(run.name for run in runs)}"
    allowed = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in (plotly, script)
    )
    policy_text = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy_text}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_text(title)}</title><style>{style}</style></head>\n'
        f"<body>{_head_html(runs)}<main>{''.join(sections)}</main>"
        f'<script type="application/json" id="data">{embedded(data)}</script>\n'
        f"<script>{plotly}</script>\n<script>{script}</script></body></html>\n"
    )


def run_figures(run: RunData, reading: Reading, prefix: str) -> list[tuple[str, list[Figure]]]:
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


def _reading_json(reading: Reading) -> dict[str, Json]:
    return {
        "prompts": [_safe(p) for p in reading.prompts],
        "surprises": [_safe(s) for s in reading.surprises],
    }


def _safe(value: Json) -> Json:
    """Text with control characters made visible, lines kept."""
    if isinstance(value, str):
        return "\n".join(visible(line) for line in value.split("\n"))
    if isinstance(value, dict):
        return {key: _safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return value


def _text(text: str) -> str:
    return html.escape(visible(text))


def _head_html(runs: Sequence[RunData]) -> str:
    if len(runs) == 1:
        run = runs[0]
        about = " · ".join(
            _text(part)
            for part in (
                run.info.recipe,
                run.info.model,
                run.info.device,
                f"seed {run.info.seed}",
                f"status {run.manifest.get('status')}",
            )
            if part
        )
        links = "".join(
            f'<a href="#{word.lower()}0">{word}</a>'
            for word in ("Train", "Eval", "Stability", "Performance", "Samples", "Setup")
        )
        title = _text(run.name)
    else:
        title, about, links = f"{len(runs)} runs", ", ".join(_text(run.name) for run in runs), ""
    return f'<header><h1>{title}</h1><p class="about">{about}</p><nav><a href="#outcome">Outcome</a>{links}<button id="theme" type="button">dark / light</button></nav></header>'


def _section(id: str, title: str, body: str, level: int = 2) -> str:
    return f'<section id="{id}"><h{level}>{title}</h{level}>{body}</section>'


def _figure_html(figure: Figure) -> str:
    return (
        f'<figure><h4>{_text(figure.title)}</h4><div class="plot" data-figure="{figure.id}" style="height:{figure.height}px" '
        f'role="img" aria-label="{_text(figure.title)}: {_text(figure.caption)}"></div><figcaption>{_text(figure.caption)}</figcaption></figure>'
    )


def _reading_html(i: int, run: RunData, reading: Reading) -> str:
    if not reading.prompts and not reading.surprises:
        return ""
    said = f"{reading.files_read} of {reading.files} sample files were read; all are in <code>{_text(str(run.folder.path))}</code>."
    body = f'<p class="note">{said}</p>'
    if reading.prompts:
        body += f'<h4>The same held-out prompt over time</h4><div class="browser" data-browser="{i}"></div>'
    if reading.surprises:
        body += f'<h4>Worth reading</h4><div class="surprises" data-surprises="{i}"></div>'
    return _section(f"samples{i}", "Samples", body, level=3)
