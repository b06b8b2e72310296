"""The monitors of a run: findings that a reward is being gamed, or that nothing more can be learned.

Health notes are advice; an alarm is a reason to stop and look, and `monitor.on_alarm` sets what a run does then. An
alarm is raised once, and again only after its rule has found nothing for a while. Everything is computed from the
recorded lines, so a resumed run, `grpo doctor` and the report find the same as the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_cli.findings.finding import Finding, History, Limits, finding_at, mean_over, measured, reward_scale
from grpo_cli.findings.held_out import HeldOutScores, canary_dropped, gold_gap, held_out_fell, out_of_band
from grpo_cli.findings.trends import length_hack_at
from grpo_cli.run.info import Metrics
from grpo_cli.statistics.step import as_drawn

MONITORS = {"W70": "gold", "W71": "canary", "W33": "entropy", "W22": "length", "W23": "repetition", "W44": "saturation"}
"""The monitor of `monitor.on_alarm` that each alarm belongs to."""

KEPT = ("step", "entropy", "entropy/sampled", "right", "length/mean", "repetition", "group/count", "group/all_wrong", "reward/total/mean", "reward/std")  # fmt: skip


class Alarms:
    """Gets every step and every evaluation of a run in order, and returns new alarms.

    `parts` are the rewarded verifiers other than the primary one, each with the score at which it is full.
    """

    def __init__(self, parts: Mapping[str, float] | Sequence[str] = (), limits: Limits | None = None) -> None:
        self.parts = dict(parts) if isinstance(parts, Mapping) else dict.fromkeys(parts, 1.0)
        self.limits = limits or Limits()
        self._history: list[dict[str, Any]] = []
        self._lengths: list[float | None] = []
        self._rights: list[float | None] = []
        self._evaluations: list[Metrics] = []
        self._silent: dict[str, int] = {}  # for each raised alarm: number of checks since its rule last found something

    def step(self, metrics: Metrics) -> list[Finding]:
        """New alarms after this step."""
        metrics = as_drawn(metrics)
        keys = (*KEPT, *(f"reward/{name}/mean" for name in self.parts))
        self._history.append({key: metrics[key] for key in keys if metrics.get(key) is not None})
        history, width = self._history, self.limits.window
        self._lengths.append(mean_over(history[-width:], "length/mean", width))
        self._rights.append(mean_over(history[-width:], "right", width))
        found = [
            entropy_gone(history, self.limits),
            length_hack_at(history, self._lengths, self._rights, len(history) - 1, self.limits),
            repeats_itself(history, self.limits),
            saturated(history, self.limits, self.parts),
        ]
        return self._raised([f for f in found if f is not None], ("W33", "W22", "W23", "W44"), self.limits.silent_steps)

    def evaluated(self, metrics: Metrics) -> list[Finding]:
        """New alarms after this evaluation."""
        self._evaluations.append(metrics)
        found = gold_gap(self._evaluations)
        return self._raised([found] if found else [], ("W70",), self.limits.silent_evaluations)

    def watched(self, metrics: Metrics) -> list[Finding]:
        """New alarms after the canary prompts were measured."""
        found = canary_dropped([metrics])
        return self._raised([found] if found else [], ("W71",), self.limits.silent_evaluations)

    def recall(self, lines: Iterable[Metrics]) -> list[Finding]:
        """Read the lines of `metrics.jsonl` that an earlier process of this run wrote; returns the alarms raised in them."""
        found: list[Finding] = []
        for metrics in lines:
            if "group/count" in metrics:
                found += self.step(metrics)
            elif "eval/pass@1" in metrics:
                found += self.evaluated(metrics)
            elif "canary/pass@1" in metrics:
                found += self.watched(metrics)
        return found

    def _raised(self, found: Sequence[Finding], codes: Sequence[str], patience: int) -> list[Finding]:
        new = [finding for finding in found if finding.code not in self._silent]
        speaking = {finding.code for finding in found}
        for code in codes:
            if code in speaking:
                self._silent[code] = 0
            elif code in self._silent:
                self._silent[code] += 1
                if self._silent[code] >= patience:
                    del self._silent[code]
        return new


def alarms_over_run(
    steps: History, evaluations: History, recipe: Mapping[str, Any], canaries: History = ()
) -> list[Finding]:
    """The alarms of a whole run, each where it was raised; `recipe` by dotted key. W22 is left to `trends`."""
    names = dict.fromkeys(key.split(".")[1] for key in recipe if key.startswith("verify."))
    rewarded = [name for name in names if recipe.get(f"verify.{name}.weight", 1)]
    side = [name for name in rewarded if not recipe.get(f"verify.{name}.primary")]
    alarms = Alarms({name: float(recipe.get(f"verify.{name}.right_at") or 1.0) for name in side})
    found = [finding for metrics in steps for finding in alarms.step(metrics) if finding.code != "W22"]
    found += constant_parts(steps, rewarded, alarms.limits)
    held_out = HeldOutScores(recipe.get("eval.expect.step"), recipe.get("eval.expect.pass@1", ()))
    found += [finding for metrics in evaluations for finding in held_out.evaluated(metrics)]
    found += [finding for metrics in canaries for finding in alarms.watched(metrics)]
    return found + [finding for metrics in evaluations for finding in alarms.evaluated(metrics)]


def constant_parts(history: History, parts: Sequence[str], limits: Limits) -> list[Finding]:
    """W45: a part of the reward was the same for all samples of the whole run, and taught nothing."""
    found = []
    for name in parts:
        known = measured(history, f"reward/{name}/mean")
        if len(known) < limits.window or max(known) - min(known) > 1e-12:
            continue
        # equal means do not prove constant scores. Runs from before `reward/NAME/std` show constancy only in steps in
        # which right and other answers occurred
        if spread := measured(history, f"reward/{name}/std"):
            is_spread = max(spread) > 1e-9
        else:
            counts = ((m.get(f"verify/{name}/right"), m.get(f"verify/{name}/calls")) for m in history)
            is_spread = any(right and calls and right < calls for right, calls in counts)
        if is_spread:
            continue
        text = f"`{name}` gave every sample of all {len(known)} steps {known[0]:g}: it teaches nothing"
        hint = f"read the reasons of `verify.{name}` in the samples: can it give anything else?"
        found.append(finding_at("W45", history, text, hint))
    return found


class ConstantParts:
    """W45 while a run goes on: found once, when the parts have been constant for a whole window."""

    def __init__(self, parts: Sequence[str], limits: Limits | None = None) -> None:
        self.parts, self.limits = parts, limits or Limits()
        self._history: list[Metrics] = []

    def step(self, metrics: Metrics) -> list[Finding]:
        """What is newly found after this step."""
        if len(self._history) >= self.limits.window:
            return []
        self._history.append(metrics)
        if len(self._history) < self.limits.window:
            return []
        return constant_parts(self._history, self.parts, self.limits)


def entropy_gone(history: History, limits: Limits) -> Finding | None:
    """W33: entropy is below a quarter of the start, the reward has stopped rising, and much is still unsolved.

    A policy that has learned its task has little entropy too, but then hardly any group is all wrong.
    """
    start = mean_over(history[:3], sampled_or_trained, 1)
    now = mean_over(history[-limits.window :], sampled_or_trained, limits.window)
    wrong = mean_over(history[-limits.window :], "group/all_wrong", limits.window)
    groups = mean_over(history[-limits.window :], "group/count", limits.window)
    reward = mean_over(history[-limits.window :], "reward/total/mean", limits.window)
    earlier = history[: len(history) - limits.stalled_steps][-limits.window :]
    before = mean_over(earlier, "reward/total/mean", limits.window)
    if not start or now is None or wrong is None or not groups or reward is None or before is None:
        return None
    if (
        now >= limits.stalled_entropy_left * start
        or wrong < limits.unsolved * groups
        or reward > before + limits.flat_gain * reward_scale(history)
    ):
        return None
    text = (
        f"entropy is {now:.2g}, {start:.2g} at the start; the reward has stopped at {reward:.2f} and"
        f" {wrong / groups:.0%} of the groups are all wrong"
    )
    hint = "go back to an earlier checkpoint with a lower `train.lr` or a higher `train.clip.high`"
    return finding_at("W33", history, text, hint)


def repeats_itself(history: History, limits: Limits) -> Finding | None:
    """W23: completions repeat themselves: a third of their four-word runs, and twice as many as at the start."""
    start = mean_over(history[: limits.window], "repetition", limits.window)
    now = mean_over(history[-limits.window :], "repetition", limits.window)
    if start is None or now is None or now < limits.repeated or now < limits.repeated_growth * start:
        return None
    text = f"{now:.0%} of the four-word runs in a completion repeat an earlier one, {start:.0%} at the start"
    return finding_at(
        "W23", history, text, "read the longest samples; `shaping.repetition` takes reward off such answers"
    )


def saturated(history: History, limits: Limits, parts: Mapping[str, float]) -> Finding | None:
    """W44: a side reward (a format, say) rose until it is full, and no more answers are right than at the start."""
    before = mean_over(history[: limits.window], "right", limits.window)
    now = mean_over(history[-limits.window :], "right", limits.window)
    if before is None or now is None or len(history) < limits.stalled_steps or now > before + limits.right_gain:
        return None
    for name, full in parts.items():
        key = f"reward/{name}/mean"
        began = mean_over(history[: limits.window], key, limits.window)
        if began is None or full <= 0:
            continue
        start, last = began / full, [m.get(key) for m in history[-limits.stalled_steps :]]
        if any(v is None or v / full < limits.full for v in last) or start > limits.full - limits.rise:
            continue
        text = f"`{name}` is full for {limits.stalled_steps} steps, {start:.0%} at the start; right samples went from {before:.0%} to {now:.0%}"
        return finding_at(
            "W44", history, text, f"lower `verify.{name}.weight`, or make it a condition (`combine.gate`)"
        )
    return None


ALARM_RULES = (gold_gap, canary_dropped, held_out_fell, out_of_band, entropy_gone, repeats_itself, saturated, constant_parts)  # fmt: skip
"""For `grpo explain`; the rule of W22 stands in `trends`."""


def sampled_or_trained(metrics: Metrics) -> float | None:
    """The entropy of a step over all samples, where the engine's log-probs gave it; else over the rows trained on."""
    sampled: float | None = metrics.get("entropy/sampled")
    return metrics.get("entropy") if sampled is None else sampled
