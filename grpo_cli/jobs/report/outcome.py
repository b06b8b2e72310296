"""The static parts of the page: before and after with n and interval, findings, and what was run."""

from __future__ import annotations

import html
import json
import math
import shlex
from collections.abc import Sequence

from grpo_cli.display.watch.run import card_of
from grpo_cli.findings.finding import Finding
from grpo_cli.findings.run_data import Arm, RunData, diff_from_defaults
from grpo_cli.findings.samples import behind, duplicate_rows, nearest_step, split_of
from grpo_cli.jobs.report.arms import arms_html, held_out_shares
from grpo_cli.run.info import Metrics
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import paired_clustered
from grpo_cli.text import duration, half, number, percent, score, visible

MOST_SHOWN = 600
"""Characters of the end of a completion shown behind a finding."""


def outcome_html(arms: Sequence[Arm]) -> str:
    """The first thing a reader sees."""
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        said = f'<p class="verdict">{verdict(runs[0])}</p>{acted_html(runs[0])}'
        return _tiles(runs[0]) + said + findings_html(runs[0])
    return arms_html(arms) + "".join(acted_html(run) + findings_html(run) for run in runs if run.findings)


def verdict(run: RunData) -> str:
    """Before and after in one sentence, with the paired difference on the same prompts and what could have been seen."""
    points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
    if len(points) < 2:
        return "Held-out rows were measured less than twice: nothing can be said about before and after."
    first, last = points[0], points[-1]
    said = f"held-out pass@1 {_interval(first, 'eval/pass@1')} → {_interval(last, 'eval/pass@1')} (n {last.get('eval/n', number(None))}), step {first.get('step')} → {last.get('step')}"
    a, b = (held_out_shares(run.folder, int(m.get("step") or 0)) for m in (first, last))
    rows = [row for row in a if row in b]
    if len(rows) < 2:
        return f"{said}."
    found = paired_clustered([a[row] for row in rows], [b[row] for row in rows])
    p = f"p {found.p_value:.2g}" if found.p_value >= 1e-4 else "p &lt; .0001"
    power = "no difference is sure to be found on so few"
    if math.isfinite(found.detectable):
        power = f"a true difference of {found.detectable:.3f} or more is found with 80 % power"
    gap = found.difference
    is_even = math.isclose(gap.high - gap.mean, gap.mean - gap.low, abs_tol=1e-9)
    within = half(gap.half) if is_even else f"[{gap.low:+.3f}, {gap.high:+.3f}]"
    return f"{said}. Paired on {len(rows)} prompts: {gap.mean:+.3f} {within}, {p}; {power}."


def acted_html(run: RunData) -> str:
    """Each time an alarm paused the run or took it back: what it was, and where the evidence lies."""
    shown = ""
    for act in run.manifest.get("acted") or []:
        what = "paused" if act["action"] == "pause" else f"rolled back from step {act['at']}"
        why = "; ".join(
            f"{alarm['code']} at step {alarm['step']}: {alarm['text']}" for alarm in act["alarms"]
        )
        shown += f'<p class="verdict">{_text(f"{run.name} was {what}: {why}")} <code>{_text(act["evidence"])}</code></p>'
    return shown


def findings_html(run: RunData) -> str:
    """Health notes of the run with their steps; of each kind the first with the completions behind it."""
    copies = duplicate_rows(run.folder)
    found = [*run.findings, *([copies[0]] if copies else [])]
    if not found:
        return f'<p class="note">no findings in {len(run.steps)} steps of {_text(run.name)}</p>'
    rows, told = [], set[str]()
    for f in found[:40]:
        rows.append(
            f"<tr><td>{f.code}</td><td>step {f.step}</td><td>{_text(f.text)}</td><td>{_text(f.hint)}</td></tr>"
        )
        if f.code not in told:
            told.add(f.code)
            rows.append(_behind_html(run, f, copies[1] if copies and f is copies[0] else None))
    count = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    table = f"<table>{''.join(rows)}</table>"
    return f'<details class="findings"><summary>{count} in {_text(run.name)}</summary>{table}</details>'


def _behind_html(run: RunData, finding: Finding, samples: Sequence[SampleRecord] | None) -> str:
    """The completions behind a finding as a row of its own; nothing where the run kept no samples."""
    split = split_of(finding.code)
    step = nearest_step(run.folder, finding.step, split)
    if step is None:
        return ""
    chosen = samples or behind(finding.code, list(run.folder.samples(step, split)))
    shown = "".join(
        f"<p>{_text(r.row)} · {r.outcome or 'no verdict'} · {r.tokens} tokens</p><pre>{_text(r.completion[-MOST_SHOWN:])}</pre>"
        for r in chosen
    )
    if not shown:
        return ""
    return f'<tr><td></td><td colspan="3"><details><summary>{"held-out " if split == "eval" else ""}samples of step {step}</summary>{shown}</details></td></tr>'


def setup_html(run: RunData, index: int) -> str:
    """The recipe as a difference from the defaults, the command, and where and with what it ran."""
    manifest = run.manifest
    argv = [str(word) for word in manifest.get("argv") or []]
    command = shlex.join(["grpo", *argv[1:]]) if argv else ""
    facts = [
        ("command", command),
        ("started", manifest.get("started")),
        ("status", manifest.get("status")),
        ("device", manifest.get("device")),
        ("seed", manifest.get("seed")),
        ("git", manifest.get("git")),
    ]
    facts += [("warning", warning) for warning in manifest.get("warnings") or []]
    for name, sandbox in (manifest.get("sandbox") or {}).items():
        facts.append((f"sandbox of {name}", "; ".join([sandbox["tier"], *sandbox["warnings"]])))
    facts += [(f"{name} version", version) for name, version in (manifest.get("versions") or {}).items()]
    rows = "".join(
        f"<tr><th>{_text(str(name))}</th><td><code>{_text(str(value))}</code></td></tr>"
        for name, value in facts
        if value not in (None, "")
    )
    diff = diff_from_defaults(run)
    if diff is None:
        changed = '<p class="note">the defaults this recipe was made with are not known here</p>'
    else:
        cells = "".join(
            f"<tr><th>{_text(key)}</th><td>{_text(_value(default))}</td><td>{_text(_value(value))}</td></tr>"
            for key, default, value in diff
        )
        changed = f"<table><tr><th>key</th><th>default</th><th>this run</th></tr>{cells}</table>"
    recipe = html.escape("\n".join(visible(line) for line in run.folder.recipe_text.splitlines()))
    whole = html.escape(
        "\n".join(visible(line) for line in json.dumps(manifest, indent=2, default=str).splitlines())
    )
    return (
        f'<section id="setup{index}"><h3>Setup</h3><table>{rows}</table><h4>Recipe, where it differs from the defaults</h4>{changed}'
        f"<details><summary>whole recipe, resolved</summary><pre>{recipe}</pre></details>"
        f"<details><summary>manifest</summary><pre>{whole}</pre></details></section>"
    )


def _tiles(run: RunData) -> str:
    points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
    tiles = []
    if points:
        first, last = points[0], points[-1]
        n = f"n {last['eval/n']} prompts" if last.get("eval/n") else ""
        tiles.append(
            (
                "held-out pass@1",
                f"{score(first['eval/pass@1'])} → {score(last['eval/pass@1'])}",
                f"{half(first.get('eval/pass@1/half'))} → {half(last.get('eval/pass@1/half'))}  {n}",
            )
        )
        if last.get("eval/greedy") is not None:
            tiles.append(
                (
                    "greedy",
                    f"{score(first.get('eval/greedy'))} → {score(last['eval/greedy'])}",
                    f"{half(first.get('eval/greedy/half'))} → {half(last.get('eval/greedy/half'))}  n {last.get('eval/greedy/n', '')}",
                )
            )
        for k in sorted(
            int(key[10:])
            for key in last
            if key.startswith("eval/pass@") and key[10:].isdigit() and key != "eval/pass@1"
        )[-1:]:
            tiles.append(
                (
                    f"pass@{k}",
                    f"{score(first.get(f'eval/pass@{k}'))} → {score(last.get(f'eval/pass@{k}'))}",
                    half(last.get(f"eval/pass@{k}/half")),
                )
            )
    if run.steps:
        reward = run.curve("reward/total/mean")
        tiles.append(
            ("training reward", f"{score(reward[0])} → {score(reward[-1])}", f"{len(run.steps)} steps")
        )
        if any(run.curve("think")):
            think = run.curve("think")
            tiles.append(
                ("samples that think", f"{percent(think[0])} → {percent(think[-1])}", "of training samples")
            )
    card = card_of(run.folder)
    samples = sum(m.get("samples") or 0 for m in run.steps)
    tiles.append(
        (
            "time",
            duration(card.wall_s),
            f"{samples:,} samples, {number(float(sum(m.get('tokens') or 0 for m in run.steps)))} tokens",
        )
    )
    cells = "".join(
        f'<div class="tile"><span>{_text(a)}</span><b>{_text(b)}</b><small>{_text(c)}</small></div>'
        for a, b, c in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _interval(metrics: Metrics, key: str) -> str:
    return f"{score(metrics.get(key))} {half(metrics.get(f'{key}/half'))}".strip()


def _value(value: object) -> str:
    return "—" if value is None else str(value) if not isinstance(value, str) else value


def _text(text: str) -> str:
    return html.escape(visible(text))
