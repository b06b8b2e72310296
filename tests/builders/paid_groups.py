"""Groups as the judge and the reward rule make them, of scores that are said; and simulated runs of such groups."""

from __future__ import annotations

import math
import random
from typing import Any

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement, rule_of
from grpo_cli.reward.pay import RewardRule
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.credit import Method
from grpo_verifiers.combine import combine, outcome
from grpo_verifiers.verdict import Outcome, Verdict
from tests.builders.simulated_runs import simulate

LENGTHS = [8, 16, 24, 32]
FORM = [1 - n / 40 for n in LENGTHS]
PLAIN = {"math": {}, "form": {"kind": "regex", "pattern": "x", "weight": 0.3}}


def recipe(verify: dict[str, Any] | None = None, *, group: int = 4, **more: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": verify or PLAIN,
            "sample": {"prompts": 2, "group": group, "max_tokens": 40},
            **more,
            "train": {"steps": 1, "lr": 1e-3} | more.get("train", {}),
        }
    )


def verdict(score: float) -> Verdict:
    if math.isnan(score):
        return Verdict(Outcome.ERROR, None)
    return Verdict(Outcome.RIGHT if score >= 1 else Outcome.WRONG, score)


def group(said: Recipe, scores: dict[str, list[float]], row: int = 0) -> Group:
    """As the judge and the reward rule make one of these scores."""
    n, judged = len(next(iter(scores.values()))), []
    for i in range(n):
        verdicts = {name: verdict(values[i]) for name, values in scores.items()}
        judged.append(
            Judgement(
                verdicts,
                outcome(verdicts, said.verify) or Outcome.ERROR,
                combine(verdicts, said.verify, rule=rule_of(said.combine)),
            )
        )
    tokens = [LENGTHS[i % len(LENGTHS)] for i in range(n)]
    completions = [Completion([1] * t, [0.0] * t, "stop") for t in tokens]
    paid = RewardRule(said).of(judged, ["x"] * n, tokens, "0/0/0")
    return Group(row, completions, ["x"] * n, judged, paid.rewards, outcomes=paid.outcomes)


def shaped_run(seed: int, steps: int, size: int = 4, **train: Any) -> list[dict[str, Any]]:
    """A simulated healthy run of 8 groups a step whose answers are paid for their form too: the metrics are the method's own."""
    said, rng = recipe(group=size, train=train), random.Random(seed)

    def shaped(step: int, metrics: dict[str, Any]) -> None:
        groups = []
        for row in range(8):
            p = rng.betavariate(3 * metrics["right"] + 0.01, 3 * (1 - metrics["right"]) + 0.01)
            right = [float(rng.random() < p) for _ in range(size)]
            groups.append(group(said, {"math": right, "form": [rng.random() for _ in right]}, row))
        metrics.update(Method.of(said).credit(groups).metrics)

    return simulate(steps, seed, change=shaped)
