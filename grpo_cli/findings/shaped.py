"""What is paid beside the outcome and takes its place: groups that train on it alone, right answers that it makes worth a wrong one."""

from __future__ import annotations

from statistics import fmean as mean

from grpo_cli.findings.finding import Finding, History, Limits, finding_at, mean_over, measured


def shaping_alone(history: History, limits: Limits) -> Finding | None:
    """W62: most of what is learned comes from groups whose outcomes are equal, by |advantage| times tokens: from what is paid
    beside the outcome alone. Right answers are gone soon after.

    Said after three steps above the bound, or where nothing is learned any more and the three last lessons were above it in the
    mean: answers that have become alike leave no group with a spread.
    """
    shares = measured(history, "shape/alone")[-limits.alone_steps :]
    if len(shares) < limits.alone_steps:
        return None
    learned = [line.get("shape/alone") is not None for line in history[-limits.alone_steps :]]
    worst = mean(shares) if not learned[-1] else min(shares) if all(learned) else 0.0
    if worst <= limits.alone:
        return None
    return finding_at(
        "W62",
        history,
        f"{mean(shares):.0%} of what was learned in {len(shares)} steps came from groups whose outcomes are equal: they train on"
        " what is paid beside the outcome",
        "say `train.alive_by: outcome`",
    )


def right_paid_as_wrong(history: History, limits: Limits) -> Finding | None:
    """W63: right answers are paid no more than a wrong one to the same prompt: something else weighs as much as being right."""
    if len(history) < limits.window:
        return None
    share = mean_over(history[-limits.window :], "group/inverted", limits.window // 2)
    if share is None or share <= limits.inverted:
        return None
    return finding_at(
        "W63",
        history,
        f"{share:.0%} of the right answers in {limits.window} steps were paid no more than a wrong one to the same prompt",
        "lower the weight of what is paid beside the outcome, or pay it for right answers only (`only: right`)",
    )
