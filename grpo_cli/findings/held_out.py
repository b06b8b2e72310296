"""Findings of evaluations: of held-out rows, of the gold verifier, of the canary prompts.

Held-out (W53, W54, W40): held-out prompts are answered right less often than before the first step, or the score ends outside
the band that the recipe expects, or verifiers fail on them.

Gold (W70): does the score rise because answers get better, or because the training verifier is being gamed? A second verifier
that is not rewarded judges the same held-out completions. The gap between the two is paired by sample and clustered by
prompt. There is an alarm if the gap is significantly above ten points, even at the first evaluation (the two verifiers
differ in their definition of right), or if a smaller significant gap has grown significantly since then and still grows
or has lowered the gold score. A small constant gap only shows two reasonable definitions of right, and is not reported.

Canary (W71): did the run teach something that it was not meant to? Fixed prompts that are never trained on are asked
again and again. The drop from the first measurement is tested over prompts (paired t test on their means). Its p is
corrected for the number of looks, so that many looks raise a false alarm no more often than one. Half of the error
probability is divided among the looks that the recipe plans (Bonferroni). The other half is for additional looks, which
follow a drop that is large but not yet significant: the j-th of these gets 1/(j (j + 1)) of it, which sums to at most
1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

from grpo_cli.findings.finding import Finding, History, Limits, finding_at
from grpo_cli.run.info import Metrics, of_all_rows
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import ALIKE, paired_clustered

ALPHA = 0.05
"""Probability of a false finding over all evaluations of a run; the j-th gets 1/(j (j + 1)) of it."""
Z_OF_HALF = NormalDist().inv_cdf(0.975)
"""Standard errors in the half-width of a recorded interval, which holds 95 %."""


def held_out_fell(evaluations: History) -> Finding | None:
    """W53: fewer held-out answers are right, sampled or greedy, than at the first evaluation, by more than chance.

    The two are compared as independent samples, though their prompts are the same: so a finding is rather late than false.
    """
    evaluations = of_all_rows(evaluations)
    if len(evaluations) < 2:
        return None
    first, last = evaluations[0], evaluations[-1]
    for key, name in (("eval/pass@1", "pass@1"), ("eval/greedy", "greedy pass@1")):
        before, after = first.get(key), last.get(key)
        half_before, half_after = first.get(f"{key}/half"), last.get(f"{key}/half")
        if before is None or after is None or not half_before or not half_after:
            continue
        z = (before - after) * Z_OF_HALF / math.hypot(half_before, half_after)
        looks = len(evaluations) - 1
        p = 2 * NormalDist().cdf(-z)
        if z <= 0 or p * looks * (looks + 1) >= ALPHA:
            continue
        text = (
            f"held-out {name} is {after:.3f}, {before:.3f} at step {first.get('step', 0)}: training has made it worse"
        )
        hint = (
            "keep the weights it began with; lower `train.lr`, raise `train.kl.beta`, or read what the reward pays for"
        )
        return finding_at("W53", evaluations, text, hint)
    return None


def out_of_band(evaluations: History, step: int | None, band: Sequence[float]) -> Finding | None:
    """W54: the held-out pass@1 after the step that `eval.expect` names is outside its band by more than its own interval."""
    if step is None or not evaluations or evaluations[-1].get("step") != step:
        return None
    (low, high), score = band, evaluations[-1].get("eval/pass@1")
    half = evaluations[-1].get("eval/pass@1/half") or 0.0
    if score is None or low - half <= score <= high + half:
        return None
    text = (
        f"held-out pass@1 is {score:.3f} ±{half:.3f} after {step} steps, where the recipe expects {low:g} to {high:g}"
    )
    hint = "compare model, rows, settings and packages with the first lines of the recipe"
    if score > high:
        hint = (
            "read right samples: does the verifier pay what is not right, or are held-out rows among the training rows?"
        )
    return finding_at("W54", evaluations, text, hint)


class HeldOutScores:
    """Reports W53, W54 and W40 during a run, each once. It gets every evaluation in order.

    `step` and `band` are those of `eval.expect`.
    """

    def __init__(self, step: int | None = None, band: Sequence[float] = ()) -> None:
        self._step, self._band = step, band
        self._evaluations: list[Metrics] = []
        self._said: set[str] = set()

    def evaluated(self, metrics: Metrics) -> list[Finding]:
        """New findings at this evaluation."""
        self._evaluations.append(metrics)
        looks = [held_out_fell(self._evaluations), out_of_band(self._evaluations, self._step, self._band)]
        samples, failed = (metrics.get(f"eval/{key}") or 0 for key in ("samples", "without_verdict"))
        if failed > Limits().verifier_trouble * samples:
            text = f"verifiers fail on {failed:,} of {samples:,} held-out samples: these count neither as right nor as wrong"
            hint = "see `reason` in the samples under `eval/`, and fix the verifier"
            looks.append(finding_at("W40", self._evaluations, text, hint))
        found = [finding for finding in looks if finding is not None and finding.code not in self._said]
        self._said.update(finding.code for finding in found)
        return found


# The gold verifier.

ALARM_Z = 3.0
WIDE = 0.10
GROWING = 3
"""Consecutive evaluations over which the gap must have grown, unless gold is below its start already."""


def gap_metrics(records: Sequence[SampleRecord], gold: str, right_at: float) -> dict[str, float | int | None]:
    """`eval/gold/…`: gold pass@1, the gap of primary minus gold with its interval and z, and how many were fooled.

    Over the samples that both judged. z is the mean difference of the prompts over its standard error.
    """
    pairs: dict[Any, tuple[list[float], list[float]]] = {}
    for record in records:
        verdict = record.verdicts.get(gold)
        if not record.is_judged or verdict is None or verdict.score is None:
            continue
        golds, proxies = pairs.setdefault(record.group, ([], []))
        golds.append(float(verdict.score >= right_at))
        proxies.append(float(record.is_right))
    if not pairs:
        return {"eval/gold/pass@1": None, "eval/gold/gap": None, "eval/gold/z": None, "eval/gold/n": 0}
    gap = paired_clustered([g for g, _ in pairs.values()], [p for _, p in pairs.values()]).difference
    return {
        "eval/gold/pass@1": fmean(fmean(g) for g, _ in pairs.values()),
        "eval/gold/gap": gap.mean,
        "eval/gold/gap/low": gap.low,
        "eval/gold/gap/high": gap.high,
        "eval/gold/z": clustered_z([fmean(p) - fmean(g) for g, p in pairs.values()]),
        "eval/gold/fooled": sum(p > g for gs, ps in pairs.values() for g, p in zip(gs, ps, strict=True)),
        "eval/gold/n": len(pairs),
    }


def trusted_score(evaluation: Mapping[str, Any]) -> float:
    """The gold score where it was measured, else the primary verifier's: the score that decides which checkpoint is best."""
    gold = evaluation.get("eval/gold/pass@1")
    return float(evaluation["eval/pass@1"] if gold is None else gold)


def clustered_z(differences: Sequence[float]) -> float:
    """Mean over standard error; with no spread at all, 0 for no difference and the root of n for a constant one."""
    n = len(differences)
    mean = math.fsum(differences) / n
    spread = math.fsum((d - mean) ** 2 for d in differences) / max(n - 1, 1)
    if max(differences) - min(differences) > ALIKE:
        return mean / math.sqrt(spread / n)
    return math.copysign(math.sqrt(n), mean) if abs(mean) > ALIKE else 0.0


def gold_gap(evaluations: History) -> Finding | None:
    """W70: the training verifier calls right what the gold verifier does not, and ever more of it.

    On held-out samples that both judged. Finds a gap that is surely above ten points, or a smaller one that has
    grown significantly and still grows or has cost gold score.
    """
    known = [e for e in evaluations if e.get("eval/gold/gap") is not None]
    if not known:
        return None
    first, now = known[0], known[-1]
    text = (
        f"the training verifier calls {now['eval/pass@1']:.1%} of held-out samples right, "
        f"the gold one {now['eval/gold/pass@1']:.1%}"
    )
    if now["eval/gold/gap/low"] > WIDE:
        start = f", {first['eval/gold/gap']:.1%} at the start" if now is not first else ""
        text += f": a gap of {now['eval/gold/gap']:.1%}{start}"
    else:
        grown = now["eval/gold/gap"] - first["eval/gold/gap"]
        # the standard errors behind 95 % intervals, near enough
        errors = ((e["eval/gold/gap/high"] - e["eval/gold/gap/low"]) / 3.92 for e in (now, first))
        if now["eval/gold/z"] <= ALARM_Z or grown <= ALARM_Z * math.hypot(*errors):
            return None
        gaps = [e["eval/gold/gap"] for e in known[-GROWING:]]
        grows = len(gaps) == GROWING and all(after > before for before, after in itertools.pairwise(gaps))
        if not grows and now["eval/gold/pass@1"] >= first["eval/gold/pass@1"]:
            return None
        text += f"; the gap grew from {first['eval/gold/gap']:.1%} at the start"
    return finding_at("W70", evaluations, text, "read the samples that only the training verifier likes, and fix it")


# The canary prompts.

ALPHA_OF_CANARY = 0.01
"""Chance of a false alarm over all looks of a run."""

Shares = Mapping[str, Sequence[float]]
"""For each prompt, by row id, 1 for every right sample and 0 for every wrong one."""


def planned(step: int, steps: int, every: int) -> bool:
    """Whether the recipe itself asks after this step."""
    return step % every == 0 or step == steps


def correction(step: int, steps: int, every: int, before: Sequence[Mapping[str, Any]]) -> int:
    """The correction factor for a look's p; `before` are the lines of earlier looks."""
    if planned(step, steps, every):
        return 2 * max(1, math.ceil(steps / every))  # the last step is a look too
    number = 1 + sum(not planned(int(line["step"]), steps, every) for line in before)
    return 2 * number * (number + 1)


def is_doubtful(line: Mapping[str, Any]) -> bool:
    """Whether the drop is above the threshold but not significant: then the next step is measured too, since a fall can
    be fast."""
    drop, p = line.get("canary/drop"), line.get("canary/p")
    return drop is not None and p is not None and drop > line["canary/bar"] and p >= ALPHA_OF_CANARY


def shares_of(records: Sequence[SampleRecord], verifier: str | None, right_at: float) -> dict[str, list[float]]:
    """For each prompt, 1 or 0 for each judged sample by one verifier, or by the primary one (None); samples without a
    verdict are left out."""
    found: dict[str, list[float]] = {}
    for record in records:
        own = found.setdefault(record.row, [])
        if verifier is None:
            own += [float(record.is_right)] if record.is_judged else []
        elif (verdict := record.verdicts.get(verifier)) is not None and verdict.score is not None:
            own.append(float(verdict.score >= right_at))
    return found


def canary_metrics(start: Shares, now: Shares, factor: int, bar: float) -> dict[str, float | int | None]:
    """`canary/…`: the share right, the drop from the start over prompts that both have, and its p times `factor`
    (`correction`).

    `canary/p` is None where there are fewer than two such prompts, `canary/bar` the drop from which an alarm is possible.
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


def canary_dropped(looks: History) -> Finding | None:
    """W71: prompts that are never trained on are answered right less often than before the first step.

    By more than `monitor.canary.drop`, and significantly so: paired over prompts, corrected for the number of looks.
    """
    line = looks[-1]
    drop, p = line.get("canary/drop"), line.get("canary/p")
    if drop is None or p is None or drop <= line["canary/bar"] or p >= ALPHA_OF_CANARY:
        return None
    text = (
        f"{line['canary/pass@1']:.1%} of the canary samples are right, {drop:.1%} fewer than at the start"
        f" ({line['canary/n']} prompts, p {p:.2g} corrected for all looks)"
    )
    hint = "read the canary's samples: the rows may teach this (`grpo audit data`), or the reward may pay for it"
    return finding_at("W71", looks, text, hint)
