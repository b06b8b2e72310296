"""Rules that need the whole run. `health` reads windows during the run; these rules may also compare start and end.

A rule must separate a fault from learning: answers that grow while more of them are right are no hack, a smooth fall of
entropy with a rising reward is no collapse, and a verifier is only called broken where the completions stayed as they
were. Codes continue those of `health`: W22, W32, W42, W43, W52.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_cli.findings.finding import Finding, History, Limits, finite, median, reward_scale, smooth, step_of, two_ends
from grpo_cli.statistics.step import as_drawn, mean, percentile

POLICY_SIGNS = (
    ("grad_norm", "gradient norm", 1e-6), ("clip/total", "clipped share", 0.05), ("entropy", "entropy", 0.05), ("kl", "kl", 0.05),
)  # fmt: skip
"""Metrics of the policy, their names in a text, and the values below which they do not count."""
MOST_LOOKS = 400
"""Most steps for which all pairs are compared; longer runs are subsampled to this many."""


def trends(history: History, limits: Limits | None = None) -> list[Finding]:
    """The findings of the whole run, each at the first step where it shows, in order."""
    limits, history = limits or Limits(), [as_drawn(metrics) for metrics in history]
    found = [finding for rule in RULES for finding in rule(history, limits)]
    return sorted(found, key=lambda finding: finding.step)


def length_hack(history: History, limits: Limits) -> list[Finding]:
    """W22: answers grow by half and more, and no more of them are right than when they were short."""
    lengths, right = smooth(history, "length/mean", limits.window), smooth(history, "right", limits.window)
    for i in range(0, len(history), max(1, len(history) // MOST_LOOKS)):
        if (found := length_hack_at(history, lengths, right, i, limits)) is not None:
            return [found]
    return []


def length_hack_at(
    history: History, lengths: Sequence[float | None], right: Sequence[float | None], i: int, limits: Limits
) -> Finding | None:
    """W22 as seen after step i; `lengths` and `right` are means over the window that ends at each step."""
    now, right_now, best = lengths[i], right[i], -1.0
    if now is None or right_now is None:
        return None
    latest, longer, gain = i - limits.window, limits.longer, limits.right_gain
    for j in range(i, -1, -max(1, len(history) // MOST_LOOKS)):
        before, right_before = lengths[j], right[j]
        if before is None or right_before is None:
            continue
        if right_before > best:  # gains in between count, even if they were lost again
            best = right_before
        if j > latest or now < longer * before or best > right_before + gain:
            continue
        text = (
            f"answers grew from {before:.0f} to {now:.0f} tokens since step {step_of(history[j])},"
            f" right ones went from {right_before:.0%} to {right_now:.0%}"
        )
        return Finding("W22", step_of(history[i]), text, "read the longest samples: what does length earn?")
    return None


def kl_blow_up(history: History, limits: Limits) -> list[Finding]:
    """W32: the policy is far from where it started, and went there suddenly."""
    known = [(m, value) for m in history if (value := finite(m.get("kl"))) is not None]
    for i in range(3, len(known)):
        usual = percentile([value for _, value in known[:i]], 0.5) or 0.0
        metrics, now = known[i]
        if now > limits.kl_far and now > limits.kl_jump * usual:
            text = f"kl to the start is {now:.2g}, its median until then {usual:.2g}"
            hint = "go back to an earlier checkpoint with a lower `train.lr`"
            return [Finding("W32", step_of(metrics), text, hint)]
    return []


def broken_verifier(history: History, limits: Limits) -> list[Finding]:
    """W42: from one step to the next a verifier judges everything alike, and the completions did not change."""
    found = []
    for name in _verifiers(history):
        # right verdicts over the verdicts of each step
        counts = [[m.get(f"verify/{name}/{key}") or 0 for key in ("right", "calls", "error")] for m in history]
        shares = [right / (calls - failed) if calls > failed else None for right, calls, failed in counts]
        for i in range(limits.window, len(history) - limits.broken_steps + 1):
            before, after = shares[i - limits.window : i], shares[i : i + limits.broken_steps]
            known_before = [s for s in before if s is not None]
            if len(known_before) < limits.window // 2:
                continue
            usual = mean(known_before) or 0.0
            silent = all(s is None for s in after)
            known = [s for s in after if s is not None]
            all_wrong = len(known) == len(after) and max(known) <= 0.01 and usual >= limits.usual_share
            all_right = len(known) == len(after) and min(known) >= 0.99 and usual <= 1 - limits.usual_share
            jump = max(abs(usual - known[0]), 0.0) if known else 1.0
            # a policy that learns or collapses changes over several steps
            steady = abs((mean(known_before[-3:]) or 0.0) - usual) <= 0.3 * jump
            if not (silent or ((all_wrong or all_right) and steady)):
                continue
            long = median(history[i - limits.window : i], "length/mean")
            longer = median(history[i : i + limits.broken_steps], "length/mean")
            if not long or not longer or not 1 / limits.same_length < longer / long < limits.same_length:
                continue  # the completions changed
            what = "no verdict at all" if silent else "nothing right" if all_wrong else "everything right"
            text = f"`{name}` finds {what} from step {step_of(history[i])} on, {usual:.0%} right before; lengths are the same"
            hint = "score samples from before and after that step again"
            found.append(Finding("W42", step_of(history[i]), text, hint))
            break
    return found


def cancelling_verifiers(history: History, limits: Limits) -> list[Finding]:
    """W43: one part of the reward rises, another falls by as much, and the total stays."""
    width = limits.window
    if len(history) < 2 * width:
        return []
    parts = {name: two_ends(history, f"reward/{name}/mean", width) for name in _verifiers(history)}
    total = two_ends(history, "reward/total/mean", width)
    moves = {name: ends[1] - ends[0] for name, ends in parts.items() if ends is not None}
    if total is None or len(moves) < 2:
        return []
    up, down = max(moves, key=lambda n: moves[n]), min(moves, key=lambda n: moves[n])
    least = min(moves[up], -moves[down])
    if least < limits.drift * reward_scale(history) or abs(total[1] - total[0]) > 0.25 * least:
        return []
    text = (
        f"`{up}` rose by {moves[up]:.2f} and `{down}` fell by {-moves[down]:.2f}:"
        f" the total went from {total[0]:.2f} to {total[1]:.2f}"
    )
    hint = "make one a condition of the other (`combine`), or change weights"
    return [Finding("W43", step_of(history[-1]), text, hint)]


def rate_too_high(history: History, limits: Limits) -> list[Finding]:
    """W52: half of what was learned is lost again, and the policy shows why: gradients, clipping, entropy or KL."""
    right, best, at = smooth(history, "right", limits.window), 0.0, 0
    for i, now in enumerate(right):
        apart = right[i - limits.window] if i >= limits.window else None
        if apart is not None and apart >= best:
            best, at = apart, i - limits.window
        if now is None or i < 2 * limits.window:
            continue
        if best < limits.usual_share or now > limits.lost * best:
            continue
        signs = []
        for key, words, floor in POLICY_SIGNS:
            # the best step may come after the first bad update; the longer window before it is not affected
            looks = (median(history[: at + 1], key), median(history[max(0, at - limits.window + 1) : at + 1], key))
            before = min((look for look in looks if look is not None), default=None)
            after = median(history[i - limits.window + 1 : i + 1], key)
            if after is not None and before is not None and after > max(floor, limits.policy_growth * before):
                signs.append(f"{words} {before:.2g} → {after:.2g}")
        if signs:
            text = (
                f"right samples fell from {best:.0%} (step {step_of(history[at])}) to {now:.0%}, with"
                f" {' and '.join(signs)}"
            )
            hint = "lower `train.lr`, and start from the checkpoint before"
            return [Finding("W52", step_of(history[i]), text, hint)]
    return []


Rule = Callable[[History, Limits], list[Finding]]
RULES: tuple[Rule, ...] = (length_hack, kl_blow_up, broken_verifier, cancelling_verifiers, rate_too_high)


def _verifiers(history: History) -> list[str]:
    keys = dict.fromkeys(key for metrics in (*history[:1], *history[-1:]) for key in metrics)
    return [k[len("verify/") : -len("/calls")] for k in keys if k.startswith("verify/") and k.endswith("/calls")]
