"""What `grpo eval` says of an evaluation: the one object of `--json`, and what a person reads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from grpo_cli.jobs.evaluate.kinds import Kinds, lines_of
from grpo_cli.jobs.evaluate.run import PairedComparison
from grpo_cli.measure.evaluation import Evaluation, MeasuredSamples
from grpo_cli.statistics.estimate import Interval
from grpo_cli.text import number, visible

SCHEMA = 1


def as_object(
    checkpoint: str,
    found: Evaluation,
    against: str | None,
    reference: Evaluation | None,
    paired: PairedComparison | None,
    kinds: Kinds | None = None,
) -> dict[str, Any]:
    """The one object of `--json`."""
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "checkpoint": checkpoint,
        "n": found.sampled.pass_1.n,
        "pass@1": found.sampled.pass_1.mean,
        "ci": [found.sampled.pass_1.low, found.sampled.pass_1.high],
        "pass@k": {str(k): interval.as_json() for k, interval in found.sampled.pass_k.items()},
        "maj@k": {str(k): value for k, value in found.sampled.maj_k.items()},
        "greedy": found.greedy.pass_1.as_json() if found.greedy else None,
        **found.failures.as_json(),
        "truncated": found.sampled.truncated,
        "think": found.sampled.think,
        "seconds": round(found.sampled.seconds, 3),
        **({"episodes": found.sampled.episodes} if found.sampled.episodes else {}),
        **(
            {"by": {c: {v: kind.as_json() for v, kind in found.items()} for c, found in kinds.items()}} if kinds else {}
        ),
        "compare": None,
    }
    if paired is not None and reference is not None:
        out["compare"] = {
            "against": against,
            "pass@1": reference.sampled.pass_1.mean,
            "difference": paired.sampled.difference.as_json(),
            "p": paired.sampled.p_value,
            "detectable": paired.sampled.detectable,
            "greedy": {
                "only_this": paired.greedy_only_b,
                "only_other": paired.greedy_only_a,
                "p": paired.greedy_p,
                "detectable": paired.greedy_detectable,
            },
        }
    return out


def table(found: Evaluation, path: Path | None, kinds: Kinds | None = None) -> list[str]:
    """What a person reads."""
    s = found.sampled
    lines = [f"pass@1   {_pm(s.pass_1)}   n {s.pass_1.n} prompts, sampled"]
    for k, interval in s.pass_k.items():
        lines.append(f"{f'pass@{k}':<8} {_pm(interval)}   maj@{k} {s.maj_k[k]:.3f}")
    if found.greedy is not None:
        lines.append(f"greedy   {_pm(found.greedy.pass_1)}   n {found.greedy.pass_1.n} prompts")
    lines.append(_tail(s))
    if found.failures.failed:
        lines.append(f"errors   {visible(found.failures.text())}")
    if s.episodes:
        lines.append(_episodes(s))
    if path is not None:
        lines.append(f"samples  {path}")
    return lines + lines_of(kinds or {})


def comparison(against: str, reference: Evaluation | None, paired: PairedComparison) -> list[str]:
    """The paired comparison, with the difference it could have seen."""
    assert reference is not None
    d = paired.sampled
    lines = [
        "",
        f"against  {against}: pass@1 {reference.sampled.pass_1.mean:.3f}",
        f"differs  {d.difference.mean:+.3f} {_range(d.difference)}   p {d.p_value:.2g}"
        f"   paired by prompt, n {d.difference.n}; {_found(d.detectable)}",
    ]
    if paired.greedy_p is not None:
        lines.append(
            f"greedy   right only here {paired.greedy_only_b}, only there {paired.greedy_only_a}"
            f"   p {paired.greedy_p:.2g} (exact McNemar); {_found(paired.greedy_detectable)}"
        )
    return lines


def _range(interval: Interval) -> str:
    if not math.isfinite(interval.half_width):
        return "[—, —]"
    return f"[{interval.low:+.3f}, {interval.high:+.3f}]"


def _found(detectable: float | None) -> str:
    if detectable is None or not math.isfinite(detectable):
        return "no difference is sure to be found on so few"
    return f"differences of {detectable:.3f} or more are found at 80 % power"


def _pm(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _episodes(s: MeasuredSamples) -> str:
    turns, invalid = s.episodes["turns/mean"] or 0.0, s.episodes["env/invalid"] or 0.0
    most, cut = s.episodes["turns/max"], s.episodes["turns/cut"] or 0.0
    split = f"right {number(s.episodes['turns/right'])}   wrong {number(s.episodes['turns/wrong'])}"
    return (
        f"turns    {turns:.1f}, at most {most}   {split}   invalid {invalid:.1%} of them"
        f"   cut {cut:.1%} of the episodes"
    )


def _tail(s: MeasuredSamples) -> str:
    parts = [f"length   {s.mean_tokens:.1f} tokens" if s.mean_tokens is not None else "length   —"]
    if s.truncated is not None:
        parts.append(f"truncated {s.truncated:.1%}")
    return "   ".join(parts)
