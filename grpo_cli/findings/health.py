"""Advice during a run: problems that its last steps show, reported as soon as they begin.

How this works: every rule takes the history and the limits, and returns a finding at the last step, or None. `RULES`
lists them, the worst first. `Health` keeps the history of a run and returns new findings after each step; `over_run`
does the same for a finished run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from grpo_cli.findings.finding import (
    Finding,
    History,
    Limits,
    all_of_last,
    finding_at,
    finite,
    mean_over,
    measured,
    median,
    median_of_last,
    reward_scale,
    step_of,
    two_medians,
)
from grpo_cli.findings.samples import untrusted_objects
from grpo_cli.run.info import Metrics
from grpo_cli.statistics.step import as_drawn, mean, percentile

FIRST_STEPS = 3
"""Steps that count as the start of a run: enough to average out noise, few enough for a run that learns fast."""


def findings(history: History, limits: Limits | None = None) -> list[Finding]:
    """The findings after the last of these steps."""
    return _of_drawn([as_drawn(metrics) for metrics in history], limits or Limits())


def _of_drawn(history: History, limits: Limits) -> list[Finding]:
    found = [said for rule in RULES if (said := rule(history, limits)) is not None]
    codes = {finding.code for finding in found}
    # leave out consequences of another finding: they would distract from the cause
    return [one for one in found if codes.isdisjoint(CAUSES.get(one.code, ()))]


@dataclass
class Health:
    """Returns findings when they begin; one that persists is repeated only after `again_after` steps."""

    limits: Limits = field(default_factory=Limits)
    _history: list[Metrics] = field(default_factory=list)
    _said: dict[str, int] = field(default_factory=dict)
    _first: list[Metrics] = field(default_factory=list)

    def step(self, metrics: Metrics) -> list[Finding]:
        """New findings after this step."""
        self._history.append(as_drawn(metrics))
        kept = 4 * max(self.limits.window, self.limits.flat_steps)
        if len(self._history) > kept:
            # keep the first steps: entropy and lengths are compared with them
            del self._history[self.limits.window]
        said, again_after = self._said, self.limits.again_after
        found = _of_drawn(self._history, self.limits)
        new = [f for f in found if f.code not in said or f.step - said[f.code] >= again_after]
        for finding in new:
            self._said[finding.code] = finding.step
        return new


def over_run(history: History, limits: Limits | None = None) -> list[Finding]:
    """All findings of a whole run, each where it was raised."""
    health = Health(limits or Limits())
    return [finding for metrics in history for finding in health.step(metrics)]


def no_mixed_group(history: History, limits: Limits) -> Finding | None:
    """W10: nothing to learn from in several steps running."""
    last = all_of_last(history, "group/mixed", limits.no_mixed_steps)
    if last is None or any(last) or _alone(history):
        return None
    signal = all_of_last(history, "group/with_signal", limits.no_mixed_steps)
    if signal is not None and all(signal):  # only the threshold for "right" is too high or too low
        text = f"no mixed group for {len(last)} steps, though rewards differ: no group is divided by `right_at`"
        hint = "set `verify.NAME.right_at` to the reward from which an answer is right"
        return finding_at("W10", history, text, hint)
    text = f"no mixed group for {len(last)} steps: nothing to learn from"
    return finding_at("W10", history, text, "other prompts, a larger group, or a higher temperature")


def _alone(history: History) -> bool:
    """Whether groups have one sample, as a critic allows: such a group is never mixed, but has signal."""
    return bool(history) and history[-1].get("group/size") == 1


def samples_alike(history: History, limits: Limits) -> Finding | None:
    """W35: all samples of a group are the same wrong text, so there is nothing to compare."""
    shares = measured(history[-limits.window :], "group/one_text")
    share = percentile(shares, 0.5) or 0.0
    if len(shares) < FIRST_STEPS or share < limits.one_text:
        return None
    distinct, size = median(history[-limits.window :], "group/distinct") or 1.0, history[-1].get("group/size")
    text = f"{share:.0%} of the groups are one wrong text {size} times, {distinct:.1f} different texts in a group of {size}"
    return finding_at(
        "W35", history, text, "fewer steps or more rows in the `warmup`, or a higher `sample.temperature`"
    )


def critic_explains_nothing(history: History, limits: Limits) -> Finding | None:
    """W34: the policy learns from a critic whose values explain the returns no better than their mean does.

    Judged by the end of the warm-up first, so that the finding comes before the policy has moved far, and then over
    windows. Where nearly all answers are right, or wrong, there is little left to explain.
    """
    known = [m for m in history if finite(m.get("critic/explained_variance")) is not None]
    if not known:
        return None
    waited, moved = ([m for m in known if bool(m.get("critic/warmup")) is asked] for asked in (True, False))
    is_first = bool(history) and not history[-1].get("critic/warmup") and len(moved) <= 1
    last = (
        all_of_last(waited, "critic/explained_variance", min(limits.window // 2, max(len(waited), 3)))
        if is_first
        else all_of_last(moved, "critic/explained_variance", limits.window)
    )
    right = median_of_last(history, "right", 1 if is_first else limits.window)
    if last is None or (right is not None and abs(right - 0.5) > limits.explicable):
        return None
    explained = percentile(last, 0.5) or 0.0
    if explained > 0.0:
        return None
    text = (
        f"the critic explains {explained:.2f} of the variance of the returns"
        f" {'at the end of its warm-up' if is_first else f'over {len(last)} steps'}: no more than their mean does"
    )
    return finding_at("W34", history, text, "raise `train.critic.warmup_steps`, or change `train.critic.lr`")


def many_all_wrong(history: History, limits: Limits) -> Finding | None:
    """W11: too hard."""
    hint = "consider easier prompts or a larger group"
    return _too_many("W11", "all_wrong", "all wrong", limits.all_wrong, hint, history, limits)


def many_all_right(history: History, limits: Limits) -> Finding | None:
    """W12: too easy. A run that is learning makes its groups all right itself: no finding while that goes on."""
    # compare with `flat_steps` ago; in a shorter run, with its first steps
    earlier = history[: -limits.flat_steps][-limits.window :]
    before = earlier if len(earlier) >= FIRST_STEPS else history[:FIRST_STEPS]
    now, then = median_of_last(history, "right", limits.window), median(before, "right")
    if now is not None and then is not None and now >= then + limits.right_gain:
        return None
    hint = "consider harder prompts"
    return _too_many("W12", "all_right", "all right", limits.all_right, hint, history, limits)


def _too_many(
    code: str, kind: str, words: str, limit: float, hint: str, history: History, limits: Limits
) -> Finding | None:
    last = all_of_last(history, f"group/{kind}", limits.window)
    counts = all_of_last(history, "group/count", limits.window)
    if last is None or counts is None or not all(counts) or _alone(history):
        return None
    shares = [value / count for value, count in zip(last, counts, strict=True)]
    if (mean(shares) or 0.0) < limit or sorted(shares)[len(shares) // 2] < limit:
        return None
    typical = round(percentile(last, 0.5) or 0)
    signal = measured(history[-limits.window :], "group/with_signal")
    mixed = measured(history[-limits.window :], "group/mixed")
    if sum(signal) - sum(mixed) >= 0.5 * sum(last):  # half of these groups still have signal
        hint = "their rewards still differ: is `verify.NAME.right_at` where you want it?"
    return finding_at(code, history, f"{typical} of {counts[-1]} groups {words} for {len(last)} steps", hint)


def truncated(history: History, limits: Limits) -> Finding | None:
    """W20: answers are cut off, and a cut answer is a wrong one."""
    last = all_of_last(history, "truncated", limits.window)
    share = mean(last) if last else None
    if share is None or share <= limits.truncated:
        return None
    text = f"{100 * share:.0f}% of completions truncated"
    return finding_at("W20", history, text, "raise `sample.max_tokens`, or shape with `overlong`")


def right_shrinks(history: History, limits: Limits) -> Finding | None:
    """W21: right answers get shorter while the reward falls."""
    now, before = two_medians(history, "length/right", limits.flat_steps, limits.window)
    reward_now, reward_before = two_medians(history, "reward/total/mean", limits.flat_steps, limits.window)
    if now is None or before is None or reward_now is None or reward_before is None:
        return None
    if now > 0.7 * before or reward_now > reward_before - limits.flat_gain * reward_scale(history):
        return None
    text = f"right answers shrank from {before:.0f} to {now:.0f} tokens while the reward fell"
    return finding_at("W21", history, text, "read the right samples: is the reward being gamed?")


def entropy_collapsed(history: History, limits: Limits) -> Finding | None:
    """W30: entropy fell fast, far below the start, and the reward gained nothing by it.

    A smooth fall with a rising reward is how learning looks, and an exponential one at any pace is no collapse: the
    fall must be steeper, in logarithms, than the one before it.
    """
    start = history[0].get("entropy") if history else None
    now, before = two_medians(history, "entropy", limits.window, 3)
    reward_now, reward_before = two_medians(history, "reward/total/mean", limits.window, 3)
    if not start or now is None or before is None or reward_now is None or reward_before is None:
        return None
    if now > limits.entropy_left * start or now > limits.entropy_fall * before:
        return None
    _, earlier = two_medians(history, "entropy", 2 * limits.window, 3)
    apart = limits.window
    if earlier is None:  # the run is shorter: compare with its own start
        earlier, apart = start, len(history) - limits.window - 2
    usual = limits.window / max(apart, 1) * math.log(max(earlier / before, 1.0)) if before > 0 else math.inf
    if now > 0 and math.log(before / now) < limits.entropy_bend * usual:
        return None
    if reward_now > reward_before + limits.flat_gain * reward_scale(history):
        return None
    text = f"entropy fell from {before:.2f} to {now:.2f} in {limits.window} steps, reward did not rise"
    return finding_at("W30", history, text, "lower `train.lr`, or raise `train.clip.high`")


def kl_without_gain(history: History, limits: Limits) -> Finding | None:
    """W31: the policy moves away from the reference and the reward stays where it is."""
    now = median_of_last(history, "kl", limits.window)  # a monitored KL is not measured at every step
    before = median_of_last(history[: -limits.flat_steps], "kl", limits.window)
    reward_now, reward_before = two_medians(history, "reward/total/mean", limits.flat_steps, limits.window)
    if now is None or before is None or reward_now is None or reward_before is None:
        return None
    if (
        now < limits.kl_floor
        or now < limits.kl_growth * before
        or reward_now > reward_before + limits.flat_gain * reward_scale(history)
    ):
        return None
    text = f"kl grew from {before:.3g} to {now:.3g} in {limits.flat_steps} steps, reward flat"
    return finding_at("W31", history, text, "stop here, or raise `train.kl.beta`")


def verifier_trouble(history: History, limits: Limits) -> Finding | None:
    """W40: verifiers fail or run into limits."""
    errors = all_of_last(history, "error", limits.window)
    over = all_of_last(history, "over_limit", limits.window)
    failed, burst = mean(errors) if errors else None, mean(over) if over else None
    if max(failed or 0.0, burst or 0.0) <= limits.verifier_trouble:
        return None
    return finding_at(
        "W40", history, f"verifiers: {100 * (failed or 0):.1f}% errors, {100 * (burst or 0):.1f}% over limit in {limits.window} steps",
        "see `reason` in the samples; errors are no zeros, they leave the group",
    )  # fmt: skip


def slow_verifier(history: History, limits: Limits) -> Finding | None:
    """W41: more time for verifying than for generating."""
    verify = all_of_last(history, "time/verify", limits.slow_verify_steps)
    generate = all_of_last(history, "time/generate", limits.slow_verify_steps)
    if verify is None or generate is None:
        return None
    typical_verify, typical_generate = percentile(verify, 0.5) or 0.0, percentile(generate, 0.5) or 0.0
    if typical_verify <= typical_generate or typical_verify < 0.5:
        return None
    text = f"verifying takes {typical_verify:.1f}s a step, generating {typical_generate:.1f}s"
    return finding_at("W41", history, text, "more cores, or a tighter time limit")


def invalid_actions(history: History, limits: Limits) -> Finding | None:
    """W46: the environment cannot use many of the actions."""
    shares = all_of_last(history, "env/invalid", limits.window)
    if shares is None or (share := mean(shares) or 0.0) <= limits.invalid_actions:
        return None
    text = f"{share:.0%} of the actions in {limits.window} steps meant nothing to the environment"
    hint = "show the form of an action in the prompt or by a `warmup`; `environment.turn_tokens` may cut them off"
    return finding_at("W46", history, text, hint)


def farmed_milestones(history: History, limits: Limits) -> Finding | None:
    """W47: milestones are farmed: episodes reach the same one again and again, or more of them without more success."""
    if len(history) < limits.window:
        return None
    repeated = math.fsum(measured(history[-limits.window :], "env/milestones_again")) / limits.window
    shares = all_of_last(history, "credit/milestone_without_success", limits.flat_steps) or [0.0]
    ends, ended = mean(shares[-limits.window :]) or 0.0, mean(shares[: limits.window]) or 0.0
    reached, before = two_medians(history, "env/milestones", limits.flat_steps, limits.window)
    right, was_right = two_medians(history, "right", limits.flat_steps, limits.window)
    if repeated > limits.repeated_milestones:
        text = f"{repeated:.0%} of the milestones in {limits.window} steps had been reached in the same episode before"
    elif ends > limits.farmed_milestones and ends >= ended + limits.rise:
        text = f"{ends:.0%} of the episodes that reach a milestone end without success, {ended:.0%} {limits.flat_steps} steps ago"
    elif (
        None not in (reached, before, right, was_right)
        and (reached or 0.0) >= (before or 0.0) + limits.more_milestones
        and (right or 0.0) < min((was_right or 0.0) + limits.right_gain, limits.full)
    ):
        text = f"episodes reach {reached:.2g} milestones, {before:.2g} {limits.flat_steps} steps ago, and {right:.0%} are right, {was_right:.0%} then"
    else:
        return None
    hint = "milestones may be farmed: pay each once and less than success (the environment's `reward`, `train.credit.reward`), or name fewer"
    return finding_at("W47", history, text, hint)


def nothing_to_credit(history: History, limits: Limits) -> Finding | None:
    """W48: few turns saw a state that another saw too, or no episode reaches a milestone: credit for turns has little
    data."""
    shares = all_of_last(history, "credit/anchor_share", limits.window)
    reached = all_of_last(history, "credit/milestone_1/reached", limits.window)
    if shares is not None and (share := mean(shares) or 0.0) < limits.anchors:
        text = f"{share:.0%} of the turns in {limits.window} steps saw a state that another turn of their row saw too"
        hint = "`credit: gigpo` is nearly plain GRPO here: let the environment return a `state` without history or step counter"
        return finding_at("W48", history, text, hint)
    if reached is not None and not any(reached):
        text = f"no episode of {limits.window} steps reached a milestone"
        hint = "`credit: milestones` is plain GRPO until one does: name a part of the task that is reached now and then"
        return finding_at("W48", history, text, hint)
    return None


def gradient_spike(history: History, limits: Limits) -> Finding | None:
    """W50: a gradient norm far above its median."""
    norms = [m["grad_norm"] for m in history if m.get("grad_norm") is not None and math.isfinite(m["grad_norm"])]
    if len(norms) <= limits.window or history[-1].get("grad_norm") is None:
        return None
    usual = percentile(norms[-4 * limits.window - 1 : -1], 0.5) or 0.0
    if usual <= 0 or norms[-1] <= limits.grad_factor * usual or norms[-1] < 1e-6:
        return None
    text = f"gradient norm {norms[-1]:.3g}, usually {usual:.3g}"
    return finding_at("W50", history, text, "clip harder (`train.max_grad_norm`), or lower `train.lr`")


def not_finite(history: History, limits: Limits) -> Finding | None:
    """W51: a metric is not finite."""
    last = history[-1] if history else {}
    bad = [
        key
        for key in ("loss", "grad_norm", "reward/total/mean", "kl")
        if isinstance(last.get(key), float) and not math.isfinite(last[key])
    ]
    if not bad:
        return None
    text = f"not finite: {', '.join(f'`{key}`' for key in bad)}"
    return finding_at("W51", history, text, "lower `train.lr`; the last checkpoint is good")


def one_row_leads(history: History, limits: Limits) -> Finding | None:
    """W61: one row has more than a twentieth of all that the run learned from, by |advantage| times tokens.

    Every set of fewer than twenty rows has this finding too: such a run learns its rows by heart.
    """
    if not history:
        return None
    share, step = history[-1].get("rows/top_share"), step_of(history[-1])
    if share is None or share <= limits.top_share or step < limits.top_share_steps:
        return None
    text = f"one row has {share:.0%} of all that was learned from in {step} steps"
    return finding_at("W61", history, text, "more rows or fewer steps; `grpo audit data` shows the rows")


# Rewards other than the outcome: groups that train on these alone, right answers that get no more than wrong ones.


def shaping_alone(history: History, limits: Limits) -> Finding | None:
    """W62: most of what is learned comes from groups whose outcomes are equal, by |advantage| times tokens: from what is paid
    beside the outcome alone. Right answers are gone soon after.

    Found after three steps above the bound, or where nothing is learned any more and the three last lessons were above
    it in the mean: answers that have become alike leave no group with a spread.
    """
    shares = measured(history, "shape/alone")[-limits.alone_steps :]
    if len(shares) < limits.alone_steps:
        return None
    learned = [line.get("shape/alone") is not None for line in history[-limits.alone_steps :]]
    worst = fmean(shares) if not learned[-1] else min(shares) if all(learned) else 0.0
    if worst <= limits.alone:
        return None
    text = (
        f"{fmean(shares):.0%} of what was learned in {len(shares)} steps came from groups whose outcomes are equal: they train on"
        " what is paid beside the outcome"
    )
    return finding_at("W62", history, text, "set `train.alive_by: outcome`")


def right_paid_as_wrong(history: History, limits: Limits) -> Finding | None:
    """W63: right answers are paid no more than a wrong one to the same prompt: something else weighs as much as being
    right."""
    if len(history) < limits.window:
        return None
    share = mean_over(history[-limits.window :], "group/inverted", limits.window // 2)
    if share is None or share <= limits.inverted:
        return None
    text = f"{share:.0%} of the right answers in {limits.window} steps were paid no more than a wrong one to the same prompt"
    hint = "lower the weight of what is paid beside the outcome, or pay it for right answers only (`only: right`)"
    return finding_at("W63", history, text, hint)


def teacher_shortens(history: History, limits: Limits) -> Finding | None:
    """W64: answers have become a fifth shorter than in the first steps under a teacher: it scores the answers of one who was told more."""
    if len(history) < 2 * limits.window or not measured(history[-limits.window :], "distil/rows"):
        return None
    first, last = (
        mean_over(part, "length/mean", FIRST_STEPS) for part in (history[: limits.window], history[-limits.window :])
    )
    if first is None or last is None or last >= (1 - limits.shorter) * first:
        return None
    text = f"answers have {last:.0f} tokens, {1 - last / first:.0%} fewer than in the first {limits.window} steps: the teacher is told what they work out"
    return finding_at("W64", history, text, "raise `distil.rate`, lower `distil.mix`, or say `distil.contrast: true`")


def reason_leaks(history: History, limits: Limits) -> Finding | None:
    """W65: reasons of the verifier hold the gold. They were replaced by their code; the verifier should not write them."""
    share = median(history[-limits.window :], "distil/leak")
    if not share:
        return None
    text = f"{share:.0%} of what the teacher was told held the gold, and was replaced by the code of the reason"
    return finding_at("W65", history, text, "leave the gold out of `detail`, or say `public_detail: false`")


Rule = Callable[[History, Limits], Finding | None]
RULES: tuple[Rule, ...] = (
    not_finite, gradient_spike, verifier_trouble, samples_alike, no_mixed_group, entropy_collapsed, kl_without_gain, truncated, right_shrinks,
    slow_verifier, untrusted_objects, invalid_actions, farmed_milestones, nothing_to_credit, many_all_wrong, many_all_right, one_row_leads,
    critic_explains_nothing, shaping_alone, right_paid_as_wrong, teacher_shortens, reason_leaks,
)  # fmt: skip
"""Worst first."""
CAUSES: dict[str, tuple[str, ...]] = dict.fromkeys(("W10", "W11", "W31", "W61"), ("W35",))
"""Findings that follow from others; they are not reported together with those."""
