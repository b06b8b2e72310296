"""Combines verdicts into one reward, in the same way for train, eval and verify.

An `error` of any verifier with a weight leaves the sample without a reward (None), never with a smaller one: a missing
term must not look like a bad completion. Shaping terms are added unchanged and never make a sample right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpo_verifiers.verdict import LARGEST, SKIPPED, Outcome, Verdict

Method = Literal["sum", "gate", "first", "min", "by", "normalise_then_sum"]


class RewardSpec(Protocol):
    """The settings of one verifier in the sum (`RewardTerm` here, `Verify` in a recipe)."""

    @property
    def weight(self) -> float: ...
    @property
    def primary(self) -> bool: ...
    @property
    def right_at(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """A plain `RewardSpec`."""

    weight: float = 1.0
    primary: bool = False
    right_at: float = 1.0


@dataclass(frozen=True, slots=True)
class CombineRule:
    """How verdicts become one reward.

    `sum` weighted sum of the scores · `gate` a sum in which a verifier named in `gate` counts only where the primary is
    right (`needs_right`), or takes the whole reward away where it is not right itself (`must_pass`) ·
    `first` the first verifier, in recipe order, that found an answer · `min` the lowest score, times the sum of the
    weights · `by` the verifier that the row names in column `by` · `normalise_then_sum` as `sum` for one sample; the
    method scales the scores of a group.
    """

    method: Method = "sum"
    gate: Mapping[str, str] = field(default_factory=dict)
    by: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    """For `by`: from values of the column to verifiers; empty where the column holds their names."""
    default: str | None = None
    """For `by`: the verifier of rows without the column, with null in it, or with a value that names none."""


SUM = CombineRule()


class NoVerifier(ValueError):
    """A row names a verifier that the recipe does not have."""


def judges_of(row: Mapping[str, Any], specs: Mapping[str, Any], rule: CombineRule = SUM) -> list[str]:
    """The verifiers that judge this row: all, or with `by` the one that its column names.

    Raises:
        NoVerifier: the row does not name one of `specs`; the message is for the row's place.
    """
    if rule.method != "by":
        return list(specs)
    assert rule.by is not None
    value = row.get(rule.by)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    meant = rule.values.get(text) if rule.values and text is not None else text
    name = meant if meant in specs else rule.default
    if name is not None and name in specs:
        return [name]
    if rule.by not in row:
        raise NoVerifier(f"no column `{rule.by}`, which names the row's verifier")
    known = f"in the map: {', '.join(rule.values)}" if rule.values else f"of the verifiers {', '.join(specs)}"
    raise NoVerifier(f"`{rule.by}` is {value!r}, which is none {known}")


def primary_of(specs: Mapping[str, RewardSpec]) -> str:
    """The name of the primary verifier: the one marked as primary, else the first."""
    return next((name for name, spec in specs.items() if spec.primary), next(iter(specs)))


def outcome(verdicts: Mapping[str, Verdict], specs: Mapping[str, RewardSpec]) -> Outcome | None:
    """The sample's outcome: that of the primary verifier, with `right_at` applied; None without any verdict.

    If the primary verifier does not judge the sample (`by`, or it skips the row), the first verifier that does decides.
    """
    name = primary_of(specs)
    if name not in verdicts:
        name = next(iter(verdicts), name)
    verdict = verdicts.get(name)
    return None if verdict is None else outcome_at(verdict, specs[name].right_at)


def without_skipped(group: Sequence[dict[str, Verdict]]) -> list[dict[str, Verdict]]:
    """The verdicts of all samples of one prompt, without those of verifiers that skip the whole prompt while another
    judges it.

    A verifier that skips only some samples has no verdict on those: without it their sums would be smaller than those
    of the others.
    """
    names = dict.fromkeys(name for verdicts in group for name in verdicts)
    gone = {name for name in names if all(name not in one or one[name].reason == SKIPPED for one in group)}
    if not gone or len(gone) == len(names):
        return list(group)
    return [{name: verdict for name, verdict in one.items() if name not in gone} for one in group]


def outcome_at(verdict: Verdict, right_at: float) -> Outcome:
    """The verdict's outcome when scores from `right_at` up count as right."""
    if verdict.score is None or verdict.outcome in (Outcome.OVER_LIMIT, Outcome.NO_ANSWER):
        return verdict.outcome
    if verdict.score >= right_at:
        return Outcome.RIGHT
    return Outcome.WRONG if verdict.outcome is Outcome.RIGHT else verdict.outcome


def combine(
    verdicts: Mapping[str, Verdict],
    specs: Mapping[str, RewardSpec],
    shaping: Mapping[str, float] | None = None,
    rule: CombineRule = SUM,
) -> float | None:
    """The reward of one sample, or None where there is no verdict.

    `shaping` holds weighted terms (weight times score), added to the reward.

    Raises:
        ValueError: the reward is not finite; the message names the term.
    """
    counted = {name: verdict for name, verdict in verdicts.items() if specs[name].weight != 0.0}
    if not verdicts or any(verdict.score is None for verdict in counted.values()):
        return None
    terms = {name: specs[name].weight * (verdict.score or 0.0) for name, verdict in counted.items()}
    if rule.method == "gate":
        barred = [
            name
            for name, condition in rule.gate.items()
            if condition == "must_pass"
            and name in verdicts
            and outcome_at(verdicts[name], specs[name].right_at) is not Outcome.RIGHT
        ]
        is_right = outcome(verdicts, specs) is Outcome.RIGHT
        if barred:
            # never more than the score of a wrong answer that passes the threshold
            reward = min(0.0, sum(terms.values()))
        else:
            reward = sum(v for name, v in terms.items() if is_right or rule.gate.get(name) != "needs_right")
    elif rule.method == "first":
        answered = [value for name, value in terms.items() if verdicts[name].outcome is not Outcome.NO_ANSWER]
        reward = answered[0] if answered else min([0.0, *terms.values()])
    elif rule.method == "min":
        lowest = min((verdicts[name].score or 0.0 for name in terms), default=0.0)
        reward = lowest * sum(specs[name].weight for name in terms)
    else:
        reward = sum(terms.values())
    for name, value in {**terms, **(shaping or {})}.items():
        if not math.isfinite(value):
            raise ValueError(f"the reward of `{name}` is {value}")
    return reward + sum((shaping or {}).values())


def check_rule(rule: CombineRule, specs: Mapping[str, RewardSpec]) -> list[str]:
    """Mistakes of a rule and its weights, in words; empty where there are none."""
    out = []
    for name, condition in rule.gate.items():
        if name not in specs:
            out.append(f"`gate` names `{name}`, which is none of the verifiers {', '.join(specs)}")
        if condition not in ("needs_right", "must_pass"):
            out.append(f"`gate` of `{name}` is `{condition}`; known: needs_right, must_pass")
    if rule.method == "gate" and not rule.gate:
        out.append("`gate` names no verifier")
    if rule.method == "by" and not rule.by:
        out.append("`by` names no column")
    weights = [spec.weight for spec in specs.values()]
    if not all(abs(weight) <= LARGEST for weight in weights):
        out.append(f"a weight is not finite, or beyond {LARGEST:g}")
    elif all(weight == 0.0 for weight in weights):
        out.append("all weights are 0: every reward would be 0")
    elif abs(sum(weights)) < 1e-12:
        out.append("the weights sum to 0: a completion that passes everything earns nothing")
    if sum(spec.primary for spec in specs.values()) > 1:
        out.append("more than one verifier is `primary`")
    return out


@dataclass(slots=True)
class PairSums:
    """Running sums over samples on which two verifiers both gave a score, from which `cancelling` finds their correlation."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        """Count one sample's two scores."""
        self.n += 1
        self.x, self.y = self.x + x, self.y + y
        self.xx, self.yy, self.xy = self.xx + x * x, self.yy + y * y, self.xy + x * y

    def merge(self, other: PairSums) -> None:
        """Add another's sums."""
        self.n += other.n
        self.x, self.y = self.x + other.x, self.y + other.y
        self.xx, self.yy, self.xy = self.xx + other.xx, self.yy + other.yy, self.xy + other.xy


def count_pairs(sums: dict[tuple[str, str], PairSums], verdicts: Mapping[str, Verdict]) -> None:
    """Add one sample's verdicts to the sums of every pair of verifiers."""
    names = [name for name, verdict in verdicts.items() if verdict.score is not None]
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            pair = sums.setdefault((one, other), PairSums())
            pair.add(verdicts[one].score or 0.0, verdicts[other].score or 0.0)


def cancelling(sums: Mapping[tuple[str, str], PairSums], specs: Mapping[str, RewardSpec]) -> list[str]:
    """Pairs of verifiers that cancel each other, in words.

    Both scores vary, their weighted scores correlate below -0.5, and the sum varies less than half as much as the
    larger one.
    """
    out = []
    for (one, other), pair in sums.items():
        if pair.n < 8:
            continue
        x, y = specs[one].weight, specs[other].weight
        vx = x**2 * (pair.xx / pair.n - (pair.x / pair.n) ** 2)
        vy = y**2 * (pair.yy / pair.n - (pair.y / pair.n) ** 2)
        covariance = x * y * (pair.xy / pair.n - pair.x * pair.y / pair.n**2)
        is_small = vx + vy + 2 * covariance < 0.25 * max(vx, vy)
        if min(vx, vy) > 1e-9 and covariance / math.sqrt(vx * vy) < -0.5 and is_small:
            out.append(f"`{one}` and `{other}` cancel: where one pays, the other does not ({pair.n} samples)")
    return out
