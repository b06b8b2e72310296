"""One definition of a group that teaches something, for every method: some advantage of it is not 0."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judge, Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.credit import Method
from grpo_verifiers.verdict import Outcome, Verdict

NAN = math.nan


def recipe(group: int, verify: dict[str, Any] | None = None, **more: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": verify or {"math": {}},
            "sample": {"prompts": 2, "group": group, "max_tokens": 8},
            **more,
            "train": {"steps": 1, "lr": 1e-3} | more.get("train", {}),
        }
    )


def verdict(score: float) -> Verdict:
    return Verdict(Outcome.ERROR, None) if math.isnan(score) else Verdict(Outcome.WRONG, score)


def group(row: int, rewards: list[float], scores: dict[str, list[float]] | None = None) -> Group:
    """Judged as these numbers say; NaN is a verifier that gave no verdict."""
    scores = scores or {"math": rewards}
    judged = [
        Judgement(
            {name: verdict(values[i]) for name, values in scores.items()},
            Outcome.ERROR if math.isnan(reward) else Outcome.WRONG,
            None if math.isnan(reward) else reward,
        )
        for i, reward in enumerate(rewards)
    ]
    n = len(rewards)
    return Group(row, [Completion([1], [0.0], "stop")] * n, ["x"] * n, judged, rewards)


def says(method: Method, groups: list[Group]) -> list[bool]:
    """What the method says of each group alone, after checking that the update of the whole batch agrees."""
    credit = method.credit(groups)
    alone = [method.has_signal(g) for g in groups]
    assert alone == credit.signal_P.tolist() == [bool(a.any()) for a in credit.A_PG]
    assert not credit.A_PG.isnan().any()
    return alone


def test_a_spread_below_the_floor_is_no_signal_though_the_range_is_above_it() -> None:
    method = Method.of(recipe(8, train={"std_floor": 0.1}))
    weak, strong = group(0, [0.0] * 7 + [0.12]), group(1, [0.0] * 7 + [1.0])
    assert says(method, [weak, strong]) == [False, True]


TWO = {"math": {"weight": 1.0}, "regex": {"pattern": "x", "weight": 1.0}}
PARTS = {"math": [1.0, 0.0, 1.0, 0.0], "regex": [0.0, 1.0, 0.0, 1.0]}
UNEVEN = {"math": [1.0, 0.0, 0.0, 0.0], "regex": [0.0, 1.0, 1.0, 1.0]}
NORMALISED = {"train": {"reward_combine": "normalise_then_sum"}}


def test_parts_that_differ_with_equal_sums_are_signal_where_parts_are_normalised() -> None:
    method = Method.of(recipe(4, {"math": {"weight": 1.0}, "regex": {"pattern": "x", "weight": 2.0}}, **NORMALISED))
    same_sum = group(0, [1.0] * 4, {"math": [1.0, 0.0, 1.0, 0.0], "regex": [0.0, 0.5, 0.0, 0.5]})
    assert says(method, [same_sum, group(1, [0.0] * 4, {"math": [0.0] * 4, "regex": [0.0] * 4})]) == [True, False]
    summed = Method.of(recipe(4, {"math": {"weight": 1.0}, "regex": {"pattern": "x", "weight": 2.0}}))
    assert not summed.has_signal(same_sum)


@pytest.mark.parametrize("parts", [PARTS, UNEVEN])
def test_parts_that_take_each_other_back_are_no_signal_beside_a_live_group(parts: dict[str, list[float]]) -> None:
    method = Method.of(recipe(4, TWO, **NORMALISED))
    live = group(1, [2.0, 0.0, 1.0, 0.0], {"math": [1.0, 0, 0.3, 0], "regex": [1.0, 0, 0.7, 0]})
    assert says(method, [group(0, [1.0] * 4, parts), live]) == [False, True]


def test_a_dead_group_is_not_moved_by_the_mean_of_its_batch() -> None:
    method = Method.of(recipe(4, TWO, **NORMALISED))
    dead = group(0, [1.0] * 4, {"math": [1.0] * 4, "regex": [0.0] * 4})
    # a sample without one of its verdicts leaves the sums of its group off centre
    live = group(1, [2.0, 0.0, NAN, 0.0], {"math": [1.0, 0, 1, 0], "regex": [1.0, 0, NAN, 0]})
    assert says(method, [dead, live]) == [False, True]
    assert method.credit([dead, live]).A_PG[1, 2] == 0.0


METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "leave one out": {"baseline": "leave_one_out", "scale": "none"},
    "none": {"scale": "none"},
    "batch": {"scale": "batch"},
    "small floor": {"std_floor": 1e-12},
    "floor": {"std_floor": 0.1},
    "ddof 0": {"std_ddof": 0},
    "pruned by variance": {"prune": {"keep": 2, "by": "variance"}},
    "pruned by advantage": {"prune": {"keep": 2, "by": "advantage"}},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_agrees_with_its_own_advantages(name: str) -> None:
    method = Method.of(recipe(5, train=METHODS[name]))
    groups = [
        group(0, [0.3] * 5),
        group(1, [1.0, 0.0, 0.0, 0.0, 0.0]),
        group(2, [NAN] * 5),
        group(3, [1.0, NAN, NAN, NAN, NAN]),
        group(4, [1.0, NAN, NAN, 0.0, NAN]),
        group(5, [0.1, 0.1, 0.1, 0.1, 0.1 + 1e-9]),
    ]
    # a spread of 4e-10 is one where the floor is lower, and no rounding takes it away before
    assert says(method, groups) == [False, True, False, False, True, name == "small floor"]


LARGE = [
    ([1000000.01, 1000000.02, 1000000.03, 1000000.05], [-1.0247, -0.4392, 0.1464, 1.3175]),
    ([2e7, 2e7 + 1, 2e7, 2e7 + 1], [-0.866025, 0.866025, -0.866025, 0.866025]),
    ([-3e14, -3e14 + 1, -3e14, -3e14 + 1], [-0.866025, 0.866025, -0.866025, 0.866025]),
    ([5e-6, 1.5e-5, 5e-6, 1.5e-5], [-0.866025, 0.866025, -0.866025, 0.866025]),
]


@pytest.mark.parametrize(("rewards", "wanted"), LARGE)
def test_what_rewards_differ_by_counts_however_far_from_0_they_are(rewards: list[float], wanted: list[float]) -> None:
    found = Method.of(recipe(4)).credit([group(0, rewards)])
    assert found.signal_P.tolist() == [True]
    assert found.A_PG[0].tolist() == pytest.approx(wanted, abs=1e-4)
    apart = Method.of(recipe(4, TWO, **NORMALISED)).credit([group(0, rewards, {"math": rewards, "regex": [0.0] * 4})])
    assert apart.A_PG[0].tolist() == pytest.approx(wanted, abs=1e-4)
    for train in ({"scale": "none"}, {"baseline": "leave_one_out", "scale": "none"}):
        made = Method.of(recipe(4, train=train)).credit([group(0, rewards)])
        assert (made.A_PG[0] / made.A_PG[0, 3]).tolist() == pytest.approx([a / wanted[3] for a in wanted], abs=1e-4)


@pytest.mark.parametrize("size", range(2, 17))
@pytest.mark.parametrize("reward", [0.3, 1e6 / 3, 1e9 / 7, 1e12 / 3, -1e17 / 3])
def test_equal_rewards_are_no_signal_in_whatever_unit(size: int, reward: float) -> None:
    method = Method.of(recipe(size))
    # 0.1 + 0.2 and 0.3 are one number to who wrote the weights
    for rewards in ([reward] * size, [reward * (0.1 + 0.2), *[reward * 0.3] * (size - 1)]):
        assert not method.has_signal(group(0, rewards)), rewards


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e6])
def test_the_most_varied_samples_are_kept_in_whatever_unit(unit: float) -> None:
    method = Method.of(recipe(5, train={"prune": {"keep": 2, "by": "variance"}, "std_floor": 1e-9}))
    found = method.credit([group(0, [unit * r for r in (0.5, 0.1, 0.9, 1.0, 0.4)])])
    assert found.kept_PG[0].tolist() == [False, True, False, True, False]


def test_pruning_is_asked_too() -> None:
    rewards = [0.0] * 6 + [0.15, 0.15]
    plain = Method.of(recipe(8, train={"std_floor": 0.08}))
    pruned = Method.of(recipe(8, train={"std_floor": 0.08, "prune": {"keep": 4, "by": "variance"}}))
    assert says(plain, [group(0, rewards)]) == [False]
    assert says(pruned, [group(0, rewards)]) == [True]


def test_a_penalty_moves_the_advantages_and_is_no_signal() -> None:
    method = Method.of(recipe(4))
    dead = group(0, [1.0] * 4)
    penalty = torch.tensor([[0.1, 0.0, 0.0, 0.0]])
    credit = method.credit([dead], penalty)
    assert credit.signal_P.tolist() == [False]
    assert not credit.A_PG.any()  # over its own spread the penalty would be as large at any beta
    unscaled = Method.of(recipe(4, train={"scale": "none"})).credit([dead], penalty)
    assert unscaled.A_PG[0].tolist() == pytest.approx([-0.075, 0.025, 0.025, 0.025])


def test_a_gate_that_pays_nobody_is_no_signal() -> None:
    gated = recipe(
        4, {"math": {}, "regex": {"pattern": "x"}}, combine={"method": "gate", "gate": {"regex": "needs_right"}}
    )
    scores = {"math": [0.0] * 4, "regex": [1.0, 0.0, 1.0, 0.0]}
    judge = Judge.of(gated)
    judged = [
        judge.combine({n: Verdict(Outcome.RIGHT if s[i] else Outcome.WRONG, s[i]) for n, s in scores.items()})
        for i in range(4)
    ]
    assert [j.reward for j in judged] == [0.0] * 4
    n = 4
    made = Group(0, [Completion([1], [0.0], "stop")] * n, ["x"] * n, judged, [j.reward or 0.0 for j in judged])
    assert says(Method.of(gated), [made]) == [False]
