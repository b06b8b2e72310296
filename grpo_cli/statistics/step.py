"""Statistics of one step's samples, as pure functions that do not depend on the order of the samples.

Note the denominators, which each mean names: samples whose verifier failed carry no score, so they are in no reward
mean and no group verdict, and are counted under `error`. None means not measured, never 0.

Groups: a sample whose primary verifier failed is not judged: it is neither right nor wrong, and a group without any
judged sample is of no kind. Signal is another matter: the method of a run decides it (some advantage is not 0), so it
is a value given here. Where only rewards are known, `would_have_signal` forecasts it.

Drawn: with `dead_groups: resample` and `select: screen` training scores are of groups that were kept for being mixed,
and show nothing of how well the policy does. So rules and displays use the numbers over all drawn groups (`as_drawn`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import episode_stats
from grpo_cli.statistics.estimate import pass_at_k
from grpo_verifiers.thinking import has_thought
from grpo_verifiers.verdict import Outcome

# Groups.

Kind = Literal["all_wrong", "mixed", "all_right", "no_verdict"]
KINDS: tuple[Kind, ...] = ("all_wrong", "mixed", "all_right", "no_verdict")

SPREAD, ROUNDING = 1e-9, 2**-51
"""Rewards closer than this, or than this share of the largest, are equal: weighted sums of the same scores may differ in the
last bits."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """One group: `judged` of its `size` samples have a primary verdict, `right` of them are right."""

    size: int
    judged: int
    right: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome | None]) -> GroupCounts:
        """The counts of a group's primary outcomes; None and `error` are no verdict."""
        counts = Counter(outcomes)
        size = counts.total()
        return cls(size, size - counts[None] - counts[Outcome.ERROR], counts[Outcome.RIGHT])

    @property
    def kind(self) -> Kind:
        """All wrong, mixed or all right by the judged samples."""
        return kind_of(self.judged, self.right)


def kind_of(judged: int, right: int) -> Kind:
    """The kind of a group with so many judged and right samples."""
    if judged == 0:
        return "no_verdict"
    return "all_wrong" if right == 0 else "all_right" if right == judged else "mixed"


def count_kinds(counts: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Groups of each kind, of how often each (judged, right) occurs."""
    out: dict[str, int] = dict.fromkeys(KINDS, 0)
    for (judged, right), times in counts.items():
        out[kind_of(judged, right)] += times
    return out


def mean_pass_at_k(counts: Mapping[tuple[int, int], int], k: int) -> float | None:
    """Mean of pass@k over the groups with at least k judged samples; None where there is none.

    `counts` holds how often each (judged, right) occurs. The sum is exact, so that neither order nor repetition shows in it.
    """
    values = [(Fraction(pass_at_k(n, c, k)), times) for (n, c), times in counts.items() if n >= k]
    total = sum(times for _, times in values)
    return float(sum(value * times for value, times in values)) / total if total else None


def would_have_signal(rewards: Sequence[float]) -> bool:
    """A forecast of signal for samples that no training step has seen: whether two of these rewards differ.

    It holds for methods that centre the reward in its group; `train.std_floor` and `normalise_then_sum` may decide otherwise.
    """
    return len(rewards) > 1 and are_apart(min(rewards), max(rewards))


def are_apart(one: float, other: float) -> bool:
    """Whether two rewards differ by more than rounding."""
    return abs(one - other) > max(SPREAD, ROUNDING * max(abs(one), abs(other)))


def has_signal(samples: Sequence[SampleRecord]) -> bool:
    """Whether a group has signal: by its advantages where a training step gave some, else by the forecast."""
    advantages = [s.advantage for s in samples if s.advantage is not None]
    if advantages:
        return any(advantages) or any(turn.get("advantage") for s in samples for turn in s.turns)
    return would_have_signal([s.reward for s in samples if s.reward is not None])


def group_samples(samples: Iterable[SampleRecord]) -> dict[tuple[int, str], list[SampleRecord]]:
    """Samples by step and group id: the same row drawn twice in a step makes two groups."""
    groups: dict[tuple[int, str], list[SampleRecord]] = defaultdict(list)
    for sample in samples:
        groups[sample.step, str(sample.group)].append(sample)
    return groups


Stats = dict[str, float | int | None]

MOST_REASONS = 8
"""Reason codes kept by name for each verifier in one step; the rest is summed under `other`."""


def step_stats(
    samples: Sequence[SampleRecord], group_size: int, ks: Sequence[int] = (1,), signal: Sequence[bool] | None = None
) -> Stats:
    """All metrics of one batch of groups; keys are paths such as `group/mixed` or `length/p95`.

    `signal` holds of each group, in the order of the samples, whether the method learns from it; by default the records
    decide. `unique_answers` is the mean over groups of the distinct answers over the samples with an answer. Of each
    verifier: counts by outcome, shares of its reasons over its calls, latency over its calls. Lengths are tokens over
    all samples; `right` and `wrong` over the judged ones, so errors are in neither; `terminated` leaves the truncated
    samples out, `truncated` is their share of all. `env_tokens/mean`, of episodes only, are what environments put
    between the model's own, which alone count in the lengths.
    """
    groups = group_samples(samples)
    out: Stats = {"samples": len(samples), "tokens": sum(s.tokens for s in samples)}
    out |= reward_stats(samples)
    out |= group_stats(list(groups.values()), group_size, ks, signal)
    answers = ([s.answer for s in group if s.answer] for group in groups.values())
    out["unique_answers"] = mean([len(set(found)) / len(found) for found in answers if found])
    out["group/distinct"], out["group/one_text"] = likeness(list(groups.values()))
    out |= outcome_stats(samples)
    for name in _verifier_names(samples):
        verdicts = [s.verdicts[name] for s in samples if name in s.verdicts]
        counts, seconds = Counter(v.outcome for v in verdicts), [v.seconds for v in verdicts]
        out[f"verify/{name}/calls"] = len(verdicts)
        out |= {f"verify/{name}/{outcome.value}": counts[outcome] for outcome in Outcome}
        out[f"verify/{name}/mean_s"] = mean(seconds)
        out[f"verify/{name}/p95_s"] = percentile(seconds, 0.95)
        reasons = sorted(Counter(v.reason for v in verdicts if v.reason).items(), key=lambda item: (-item[1], item[0]))
        for reason, count in reasons[:MOST_REASONS]:
            out[f"verify/{name}/reason/{reason}"] = count / len(verdicts)
        if len(reasons) > MOST_REASONS:
            out[f"verify/{name}/reason/other"] = sum(count for _, count in reasons[MOST_REASONS:]) / len(verdicts)
    if any(s.turns for s in samples):
        out["env_tokens/mean"] = mean([float(s.env_tokens) for s in samples if s.turns])
    lengths = [s.tokens for s in samples]
    out |= {
        "length/mean": mean(lengths),
        "length/p95": percentile(lengths, 0.95),
        "length/max": max(lengths, default=None),
        "length/right": mean([s.tokens for s in samples if s.is_right]),
        "length/wrong": mean([s.tokens for s in samples if s.is_judged and not s.is_right]),
        "length/terminated": mean([s.tokens for s in samples if not s.truncated]),
        "truncated": mean([float(s.truncated) for s in samples]),
    }
    out |= episode_stats(samples)
    out["repetition"] = mean([repetition(s.completion) for s in samples])
    out["think"] = mean([float(has_thought(s.completion)) for s in samples])
    return out


def right_inconsistent(samples: Sequence[SampleRecord], names: Sequence[str]) -> float | None:
    """The share of right samples of which one of these verifiers does not call answer and thinking consistent; a sample without
    their verdict does not count."""
    judged = [[s.verdicts[name] for name in names if name in s.verdicts] for s in samples if s.is_right]
    known = [one for one in judged if one and all(v.score is not None for v in one)]
    return mean([float(any(v.outcome is not Outcome.RIGHT for v in one)) for one in known])


def likeness(groups: Sequence[Sequence[SampleRecord]]) -> tuple[float | None, float | None]:
    """How many different texts a group has, mean over those of two samples and more; the share of them that are one text.

    A group that is all right is not among the second: a policy may be sure of what is right.
    """
    some = [group for group in groups if len(group) > 1]
    texts = [len({(s.completion, *(turn.get("text") for turn in s.turns)) for s in group}) for group in some]
    alike = [n == 1 and not all(s.is_right for s in group) for n, group in zip(texts, some, strict=True)]
    return mean(texts), mean([float(one) for one in alike])


def group_stats(
    groups: Sequence[Sequence[SampleRecord]], group_size: int, ks: Sequence[int], signal: Sequence[bool] | None = None
) -> Stats:
    """Counts of groups, the k-of-G histogram and pass@k.

    `group/no_verdict` groups have no primary verdict at all and are in none of the three kinds; a group with some
    verdicts missing (`group/partial`) is judged, and put into the histogram, by those it has.
    `group/signal` is a share of all groups; `pass@k` a mean over the groups with at least k verdicts.
    """
    counts = [GroupCounts.of(s.outcome for s in group) for group in groups]
    pairs = Counter((c.judged, c.right) for c in counts)
    kinds = count_kinds(pairs)
    with_signal = sum(signal if signal is not None else map(has_signal, groups))
    out: Stats = {
        "group/count": len(groups),
        "group/size": group_size,
        "group/all_wrong": kinds["all_wrong"],
        "group/mixed": kinds["mixed"],
        "group/all_right": kinds["all_right"],
        "group/no_verdict": kinds["no_verdict"],
        "group/partial": sum(0 < c.judged < c.size for c in counts),
        "group/with_signal": with_signal,
        "group/signal": with_signal / len(groups) if groups else None,
    }
    rights = Counter(c.right for c in counts if c.judged)
    for k in range(max([group_size, *rights]) + 1):
        out[f"group/hist/{k}"] = rights[k]
    for k in sorted(set(ks)):
        out[f"pass@{k}"] = mean_pass_at_k(pairs, k)
    return out


def reward_stats(samples: Sequence[SampleRecord]) -> Stats:
    """Rewards over the samples that have one; each verifier's score over the samples it gave one.

    `reward/std` and, of one verifier's scores, `reward/NAME/std` are over the batch (n - 1); `reward/std_in_group` is
    the mean over groups with two rewards or more of the standard deviation inside the group (n - 1). The first can be
    large while every group is flat.
    """
    rewards = [s.reward for s in samples if s.reward is not None]
    inside = [
        deviation
        for group in group_samples(samples).values()
        if (deviation := std([s.reward for s in group if s.reward is not None])) is not None
    ]
    out: Stats = {
        "reward/total/mean": mean(rewards),
        "reward/total/min": min(rewards, default=None),
        "reward/total/max": max(rewards, default=None),
        "reward/std": std(rewards),
        "reward/std_in_group": mean(inside),
    }
    for name in _verifier_names(samples):
        scores = [v.score for s in samples if (v := s.verdicts.get(name)) is not None and v.score is not None]
        out[f"reward/{name}/mean"], out[f"reward/{name}/std"] = mean(scores), std(scores)
    return out


def outcome_stats(samples: Sequence[SampleRecord]) -> Stats:
    """Primary outcomes as shares: right, wrong, no_answer and over_limit of the judged samples; `error` is the share of
    all samples on which some verifier failed."""
    counts = Counter(s.outcome for s in samples if s.outcome is not None)
    judged = sum(counts.values()) - counts[Outcome.ERROR]
    failed = sum(s.is_failed for s in samples)
    out: Stats = {
        key.value: counts[key] / judged if judged else None
        for key in (Outcome.RIGHT, Outcome.WRONG, Outcome.NO_ANSWER, Outcome.OVER_LIMIT)
    }
    out["error"] = failed / len(samples) if samples else None
    out["no_reward"] = sum(s.reward is None for s in samples)
    return out


def timing_stats(
    seconds: Mapping[str, float], tokens: int, *, step_s: float, recent_s: Sequence[float], steps_left: int
) -> Stats:
    """`time/<phase>`, `time/step`, `time/other`, `tokens_per_s` (completion tokens over the generate phase) and `eta_s`.

    `eta_s` takes the median of the recent steps, this one among them, so that one slow step does not move it.
    """
    out: Stats = {f"time/{phase}": value for phase, value in seconds.items()}
    out["time/step"] = step_s
    out["time/other"] = max(0.0, step_s - math.fsum(seconds.values()))
    generate = seconds.get("generate", 0.0)
    out["tokens_per_s"] = tokens / generate if generate > 0 else None
    out["eta_s"] = (percentile([*recent_s, step_s], 0.5) or 0.0) * steps_left
    return out


def repetition(completion: str, most: int = 512) -> float:
    """Share of the four-word runs at the end of a completion that stand there more than once; 0 where there are none."""
    words = completion[-16 * most :].split()[-most:]
    runs = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def mean(values: Sequence[float]) -> float | None:
    """The mean, exact to the last bit in any order; None without values."""
    try:
        return math.fsum(values) / len(values) if values else None
    except OverflowError:  # in files of other programs: rewards of a run are bounded
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float | None:
    """The standard deviation with n - 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    try:
        centre = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))
    except OverflowError:
        most = max(map(abs, values))
        return most * (std([value / most for value in values]) or 0.0)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The percentile with linear interpolation between ranks; None without values."""
    if not values:
        return None
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def _verifier_names(samples: Sequence[SampleRecord]) -> list[str]:
    return list(dict.fromkeys(name for sample in samples for name in sample.verdicts))


# What was drawn.

PREFIX = "drawn/"
TOTAL = "reward/total/mean"
GROUPS = ("count", "all_wrong", "mixed", "all_right", "no_verdict", "with_signal", "signal")


def drawn_stats(samples: Sequence[SampleRecord], group_size: int, signal: Sequence[bool]) -> Stats:
    """`drawn/right` (share of the judged), `drawn/reward/mean`, `drawn/reward/NAME/mean` and `drawn/group/…`.

    `samples` are all that were drawn, `signal` holds of each of their groups whether the method learns from it.
    """
    rewards = reward_stats(samples)
    found: Stats = {"right": outcome_stats(samples)["right"], "reward/mean": rewards[TOTAL]}
    found |= {key: value for key, value in rewards.items() if key.endswith("/mean") and key != TOTAL}
    groups = group_stats(list(group_samples(samples).values()), group_size, (), signal)
    found |= {f"group/{name}": groups[f"group/{name}"] for name in GROUPS}
    return {f"{PREFIX}{key}": value for key, value in found.items()}


def as_drawn(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line of metrics with the numbers of all that was drawn in place of those of what was trained on.

    Lines of older runs, and of evaluations, stay as they are.
    """
    drawn = {
        key.removeprefix(PREFIX): value
        for key, value in metrics.items()
        if key.startswith(PREFIX) and value is not None
    }
    if not drawn:
        return metrics
    if "reward/mean" in drawn:
        drawn[TOTAL] = drawn.pop("reward/mean")
    return {**metrics, **drawn}
