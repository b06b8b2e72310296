"""Did the run teach something that it was not meant to? Fixed prompts that are never trained on, asked again and again.

The drop from the first measurement is tested over prompts (paired t test on their means) and its p is corrected for looks, so
that a run of many looks raises a false alarm no more often than one of a single look: half of the chance of one is shared
by the looks that the recipe plans (Bonferroni), the other half by those in between, which follow a drop that is
large but not yet significant; the j-th of these gets 1/(j (j + 1)) of it, and all of them together no more than the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import paired_clustered

ALPHA_OF_CANARY = 0.01
"""Chance of a false alarm over all looks of a run."""

Shares = Mapping[str, Sequence[float]]
"""For each prompt, by row id, 1 for every right sample and 0 for every wrong one."""


def look_count(steps: int, every: int) -> int:
    """How often a run of so many steps asks after its start; the last step counts."""
    return max(1, math.ceil(steps / every))


def planned(step: int, steps: int, every: int) -> bool:
    """Whether the recipe itself asks after this step."""
    return step % every == 0 or step == steps


def correction(step: int, steps: int, every: int, before: Sequence[Mapping[str, Any]]) -> int:
    """By what the p of a look is multiplied; `before` are the lines of earlier ones."""
    if planned(step, steps, every):
        return 2 * look_count(steps, every)
    number = 1 + sum(not planned(int(line["step"]), steps, every) for line in before)
    return 2 * number * (number + 1)


def is_doubtful(line: Mapping[str, Any]) -> bool:
    """Whether the drop is above the bar and not significant: the next step is looked at too, since a fall can be fast."""
    drop, p = line.get("canary/drop"), line.get("canary/p")
    return drop is not None and p is not None and drop > line["canary/bar"] and p >= ALPHA_OF_CANARY


def shares_of(
    records: Sequence[SampleRecord], verifier: str | None, right_at: float
) -> dict[str, list[float]]:
    """What each prompt's judged samples are by one verifier; None: by the primary one. No verdict counts neither way."""
    found: dict[str, list[float]] = {}
    for record in records:
        own = found.setdefault(record.row, [])
        if verifier is None:
            own += [float(record.is_right)] if record.is_judged else []
        elif (verdict := record.verdicts.get(verifier)) is not None and verdict.score is not None:
            own.append(float(verdict.score >= right_at))
    return found


def canary_metrics(start: Shares, now: Shares, factor: int, bar: float) -> dict[str, float | int | None]:
    """`canary/…`: the share right, the drop from the start over prompts that both have, and its p times `factor` (`correction`).

    `canary/p` is None where there are fewer than two such prompts, `canary/bar` the drop from which an alarm may speak.
    """
    known = [row for row in start if start[row] and now.get(row)]
    rates = [fmean(shares) for shares in now.values() if shares]
    found: dict[str, float | int | None] = {
        "canary/pass@1": fmean(rates) if rates else None,
        "canary/n": len(rates),
        "canary/drop": None,
        "canary/p": None,
        "canary/bar": bar,
    }
    if known:
        compared = paired_clustered([start[row] for row in known], [now[row] for row in known])
        found["canary/drop"] = -compared.difference.mean
        if len(known) > 1:
            found["canary/p"] = min(1.0, compared.p_value * factor)
    return found


def canary_alarm(line: Mapping[str, Any]) -> str | None:
    """What is wrong at this measurement, or None."""
    drop, p = line.get("canary/drop"), line.get("canary/p")
    if drop is None or p is None or drop <= line["canary/bar"] or p >= ALPHA_OF_CANARY:
        return None
    return (
        f"{line['canary/pass@1']:.1%} of the canary samples are right, {drop:.1%} fewer than at the start"
        f" ({line['canary/n']} prompts, p {p:.2g} corrected for all looks)"
    )
