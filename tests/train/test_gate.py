"""`train.alive_by`: what a method learns from groups whose outcomes are equal, and what is measured of that."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement
from grpo_cli.reward.pay import RewardRule
from grpo_cli.rollout.engine import Completion, Episode, Turn
from grpo_cli.train.credit import Method
from grpo_verifiers.verdict import Outcome, Verdict
from tests.builders.paid_groups import FORM, LENGTHS, PLAIN, group, recipe, verdict

NAN = math.nan


def wrong(said: Recipe) -> Group:
    return group(said, {"math": [0.0] * 4, "form": FORM})


def mixed(said: Recipe) -> Group:
    return group(said, {"math": [0.0, 0, 0, 1], "form": FORM}, 1)


def test_an_all_wrong_group_teaches_nothing_by_default_and_its_form_by_reward() -> None:
    said = recipe()
    assert said.train.alive_by == "outcome"
    credit = Method.of(said).credit([wrong(said), mixed(said)])
    assert credit.A_PG[0].tolist() == [0.0] * 4
    assert credit.A_PG[1].tolist() == pytest.approx([-0.361403, -0.496929, -0.632456, 1.490788], abs=2e-6)
    assert credit.signal_P.tolist() == [False, True]
    today = recipe(train={"alive_by": "reward"})
    credit = Method.of(today).credit([wrong(today), mixed(today)])
    assert credit.A_PG[0].tolist() == pytest.approx([1.161895, 0.387298, -0.387298, -1.161895], abs=1e-6)


def test_an_all_right_group_does_not_train_on_its_length() -> None:
    said = recipe({"math": {}}, shaping={"length": {"target": 16}})
    right = group(said, {"math": [1.0] * 4})
    assert len(set(right.rewards)) > 1
    assert not Method.of(said).has_signal(right)
    assert Method.of(recipe({"math": {}}, train={"alive_by": "reward"})).has_signal(right)


@pytest.mark.parametrize(
    ("train", "today"),
    [
        ({"scale": "none"}, [0.09, 0.03, -0.03, -0.09]),
        ({"scale": "none", "baseline": "leave_one_out"}, [0.12, 0.04, -0.04, -0.12]),
        ({"scale": "batch"}, [0.305883, 0.101961, -0.101961, -0.305883]),
    ],
)
def test_every_scale_is_gated(train: dict[str, Any], today: list[float]) -> None:
    was = recipe(train=train | {"alive_by": "reward"})
    assert Method.of(was).credit([wrong(was), mixed(was)]).A_PG[0].tolist() == pytest.approx(today, abs=2e-6)
    said = recipe(train=train)
    assert Method.of(said).credit([wrong(said), mixed(said)]).A_PG[0].tolist() == [0.0] * 4


def test_a_gated_group_adds_zeros_to_the_deviation_of_the_batch() -> None:
    for alive_by, deviation in (("outcome", 0.289828), ("reward", 0.294230)):
        said = recipe(train={"scale": "batch", "alive_by": alive_by})
        groups = [wrong(said), mixed(said)]
        A_PG = Method.of(said).credit(groups).A_PG
        mean = sum(groups[1].rewards) / 4
        assert (groups[1].rewards[3] - mean) / A_PG[1, 3].item() == pytest.approx(deviation, abs=2e-6)


def parts(alive_by: str) -> Recipe:
    verify = {"math": {}, "form": {"kind": "regex", "pattern": "x", "weight": 0.1}}
    return recipe(verify, train={"reward_combine": "normalise_then_sum", "alive_by": alive_by})


def test_normalised_parts_of_an_all_wrong_group_are_gated_too() -> None:
    was = parts("reward")
    beside = Method.of(was).credit([wrong(was), mixed(was)]).A_PG[0].tolist()
    assert beside == pytest.approx([0.190821, 0.063607, -0.063607, -0.190821], abs=2e-5)
    alone = Method.of(was).credit([wrong(was), wrong(was)]).A_PG[0].tolist()
    assert alone == pytest.approx([1.254990, 0.418330, -0.418330, -1.254990], abs=2e-5)
    said = parts("outcome")
    assert not Method.of(said).credit([wrong(said), wrong(said)]).A_PG.any()
    credit = Method.of(said).credit([wrong(said), mixed(said)])
    assert credit.A_PG[0].tolist() == [0.0] * 4
    assert credit.A_PG[1].all()


def test_a_missing_verdict_stays_missing_among_gated_parts() -> None:
    said = parts("outcome")
    broken = group(said, {"math": [0.0, 0, NAN, 0], "form": FORM})
    credit = Method.of(said).credit([broken, mixed(said)])
    assert credit.A_PG[0].tolist() == [0.0] * 4
    assert not credit.A_PG.isnan().any()


OVERLONG = {"verify": {"math": {}}, "train": {"overlong": 0.2}}
SHAPED: dict[str, dict[str, Any]] = {
    "a second verifier": {},
    "overlong of dapo": {"verify": {"math": {}}, "train": {"overlong": 0.9}},
    "overlong": {"verify": {"math": {}}, "shaping": {"overlong": {"cache": 0.9}}},
    "three verifiers": {"verify": PLAIN | {"other": {"kind": "regex", "pattern": "y", "weight": -0.2}}},
    "by the lowest": {"combine": "min"},
    "by a condition": {"combine": {"gate": {"form": "needs_right"}}},
}


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("score", [0.0, 1.0, 0.4])
def test_whatever_is_paid_beside_an_equal_outcome_teaches_nothing(name: str, score: float) -> None:
    said = recipe(**SHAPED[name])
    scores = {"math": [score] * 4, "form": FORM, "other": FORM[::-1]}
    equal = group(said, {name: scores[name] for name in said.verify})
    assert not Method.of(said).has_signal(equal)


def test_the_penalty_of_a_kl_still_moves_a_gated_group_where_it_is_not_divided() -> None:
    said = recipe(train={"scale": "none"})
    penalty = torch.tensor([[0.1, 0.0, 0.0, 0.0]])
    credit = Method.of(said).credit([wrong(said)], penalty)
    assert credit.A_PG[0].tolist() == pytest.approx([-0.075, 0.025, 0.025, 0.025])
    assert credit.signal_P.tolist() == [False]
    # what moves it is no shaping
    assert credit.metrics.get("shape/alone") is None


@pytest.mark.parametrize("by", ["variance", "advantage"])
def test_pruning_keeps_nothing_of_a_gated_group(by: str) -> None:
    said = recipe(train={"prune": {"keep": 2, "by": by}})
    credit = Method.of(said).credit([wrong(said), mixed(said)])
    assert credit.A_PG[0].tolist() == [0.0] * 4
    assert credit.signal_P.tolist() == [False, True]


# ---------------------------------------------------------------- what the outcome is


def test_a_list_lets_a_format_teach_while_everything_is_wrong() -> None:
    said = recipe(train={"alive_by": ["math", "form"]})
    assert Method.of(said).has_signal(wrong(said))
    equal = group(said, {"math": [0.0] * 4, "form": [0.4] * 4})
    assert not Method.of(said).has_signal(equal)


def test_named_verifiers_that_take_each_other_back_do_not_open_the_gate_to_a_third() -> None:
    verify = {
        "math": {},
        "form": {"kind": "regex", "pattern": "x"},
        "short": {"kind": "regex", "pattern": "y", "weight": 0.1},
    }
    said = recipe(verify, train={"alive_by": ["math", "form"]})
    back = group(said, {"math": [1.0, 0, 1, 0], "form": [0.0, 1, 0, 1], "short": FORM})
    assert not Method.of(said).has_signal(back)


def test_partial_credit_of_the_primary_verifier_is_a_spread() -> None:
    said = recipe()
    partly = group(said, {"math": [0.0, 0.1, 0.0, 0.0], "form": FORM})
    assert partly.right == 0
    assert Method.of(said).has_signal(partly)


def test_the_row_is_alive_by_the_verifier_that_judges_it() -> None:
    verify = {"math": {}, "code": {"kind": "regex", "pattern": "x"}}
    said = recipe(verify, combine={"by": "kind"}, train={"overlong": 0.9})
    alive = group(said, {"code": [0.0, 0, 0, 1]})
    assert Method.of(said).has_signal(alive)
    assert not Method.of(said).has_signal(group(said, {"code": [0.0] * 4}))
    # a list that names another verifier alone: the row's own is its outcome all the same
    named = recipe(verify, combine={"by": "kind"}, train={"overlong": 0.9, "alive_by": ["math"]})
    assert Method.of(named).has_signal(group(named, {"code": [0.0, 0, 0, 1]}))


def test_what_the_first_verifier_with_an_answer_pays_is_the_outcome() -> None:
    verify = {"boxed": {"kind": "math"}, "last": {"kind": "regex", "pattern": "x"}}
    said = recipe(verify, combine="first", shaping={"overlong": {"cache": 0.9}})
    nothing = Verdict(Outcome.NO_ANSWER, 0.0)
    for last, is_alive in (([0.0, 0, 0, 1], True), ([0.0] * 4, False)):
        judged = [Judgement({"boxed": nothing, "last": verdict(score)}, Outcome.NO_ANSWER, score) for score in last]
        paid = RewardRule(said).of(judged, ["x"] * 4, LENGTHS, "0/0/0")
        made = Group(
            0,
            [Completion([1] * n, [0.0] * n, "stop") for n in LENGTHS],
            ["x"] * 4,
            judged,
            paid.rewards,
            outcomes=paid.outcomes,
        )
        assert Method.of(said).has_signal(made) is is_alive


def test_an_answer_that_must_pass_a_bar_is_paid_no_outcome_below_it() -> None:
    said = recipe(combine={"gate": {"form": "must_pass"}})
    barred = group(said, {"math": [1.0] * 4, "form": [1.0, 0, 1, 0]})
    assert barred.outcomes == [1.0, 0.0, 1.0, 0.0]
    assert Method.of(said).has_signal(barred)
    assert not Method.of(said).has_signal(group(said, {"math": [0.0] * 4, "form": [1.0, 0, 1, 0]}))


def test_a_primary_verifier_without_weight_leaves_the_others_as_the_outcome() -> None:
    verify = {"math": {"primary": True, "weight": 0}, "form": {"kind": "regex", "pattern": "x"}}
    said = recipe(verify, shaping={"overlong": {"cache": 0.9}})
    assert Method.of(said).has_signal(wrong(said))
    assert not Method.of(said).has_signal(group(said, {"math": [1.0, 0, 0, 0], "form": [0.4] * 4}))


@pytest.mark.parametrize("control", ["random", "shuffled", "format_only"])
def test_a_placebo_is_not_gated_by_the_truth(control: str) -> None:
    said = recipe(train={"control": control})
    made = wrong(said)
    assert made.outcomes == made.rewards
    assert Method.of(said).has_signal(made) is (len(set(made.rewards)) > 1)


def test_a_score_without_verdict_has_no_outcome() -> None:
    said = recipe()
    made = group(said, {"math": [0.0, 1, 0, 0], "form": [0.1, 0.2, NAN, 0.4]})
    assert math.isnan(made.rewards[2])
    assert math.isnan(made.outcomes[2])


# ---------------------------------------------------------------- episodes and critics


def episode(*turns: tuple[str, float, bool], score: float, penalty: float = 0.1) -> Completion:
    """Of (state, what the step paid, whether the action was valid) a turn; the environment scores the whole of it."""
    made = [
        Turn(2 * i, 2 * i + 2, state=state, reward=pays - (0 if valid else penalty), valid=valid)
        for i, (state, pays, valid) in enumerate(turns)
    ]
    outcome = score - penalty * sum(not turn.valid for turn in made)
    n = made[-1].end
    return Completion([7] * n, [0.0] * n, "stop", episode=Episode(tuple(made), outcome))


def played(said: Recipe, *episodes: Completion) -> Group:
    """Judged by their environment."""
    judged = []
    for one in episodes:
        assert one.episode is not None and one.episode.outcome is not None
        found = verdict(one.episode.outcome)
        judged.append(Judgement({"environment": found}, found.outcome, said.verify["environment"].weight * found.score))
    tokens, invalid = [c.sampled_tokens for c in episodes], [c.invalid for c in episodes]
    paid = RewardRule(said).of(judged, ["x"] * len(episodes), tokens, "0/0/0", invalid)
    return Group(0, list(episodes), ["x"] * len(episodes), judged, paid.rewards, outcomes=paid.outcomes)


def world(group: int = 2, weight: float = 1.0, **train: Any) -> Recipe:
    return recipe(
        {"environment": {"kind": "environment", "weight": weight}},
        group=group,
        environment={"python": "environments:keydoor", "invalid_penalty": 0.1},
        train=train,
    )


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_a_penalty_for_invalid_actions_is_no_outcome(weight: float) -> None:
    said = world(weight=weight)
    lost = [episode(("a", 0.0, True), score=0.0), episode(("a", 0.0, False), ("b", 0.0, False), score=0.0)]
    made = played(said, *lost)
    assert made.rewards == pytest.approx([0.0, -0.2 * weight])
    assert made.outcomes == pytest.approx([0.0, 0.0])
    assert not Method.of(said).has_signal(made)
    assert Method.of(world(weight=weight, alive_by="reward")).has_signal(made)
    won = played(said, episode(("a", 0.0, True), score=1.0), lost[1])
    assert Method.of(said).credit([won]).A_PG[0].tolist() == pytest.approx([0.707107, -0.707107])


def test_the_part_of_the_turns_stays_where_the_episodes_own_is_gated() -> None:
    said = world(credit="gigpo", scale="none")
    one = episode(("a", 0.0, False), ("b", 0.0, True), score=0.0)
    other = episode(("a", 0.0, True), ("b", 0.0, True), score=0.0)
    credit = Method.of(said).credit([played(said, one, other)])
    assert credit.A_PGT is not None
    # only the invalid action is paid less; what follows it is worth what it is worth without it
    assert credit.A_PGT[0].tolist() == [
        pytest.approx([-0.05, -0.05, 0, 0], abs=1e-7),
        pytest.approx([0.05, 0.05, 0, 0], abs=1e-7),
    ]
    assert credit.signal_P.tolist() == [True]
    assert "shape/alone" not in credit.metrics  # the turns' part is no shaping


def test_no_shaping_comes_back_through_the_part_of_the_turns() -> None:
    said = recipe(
        {"environment": {"kind": "environment"}},
        group=2,
        environment={"python": "environments:keydoor"},
        shaping={"overlong": {"max_tokens": 4, "cache": 0.9}},
        train={"credit": {"method": "gigpo", "norm": "std"}},
    )
    short, long = (episode(*[("a", 0.0, True)] * n, score=0.0) for n in (1, 2))
    made = played(said, short, long)
    assert made.rewards[0] > made.rewards[1]
    credit = Method.of(said).credit([made])
    assert credit.A_PGT is not None and not credit.A_PGT.any()


def test_a_critic_compares_the_answers_of_a_whole_batch() -> None:
    more = {"train": {"algorithm": "ppo"}}
    said, was = recipe(**more), recipe(train={"algorithm": "ppo", "alive_by": "reward"})
    groups = [wrong(said), mixed(said)]
    every = [reward for made in groups for reward in made.rewards]
    # one right answer in the batch: its wrong ones are told apart by what they are paid
    assert Method.of(said).credit(groups).A_PG.flatten().tolist() == pytest.approx(every)
    assert not Method.of(said).credit([wrong(said), wrong(said)]).A_PG.any()
    assert Method.of(was).credit([wrong(was), wrong(was)]).A_PG.flatten().tolist() == pytest.approx(
        2 * [0.3 * form for form in FORM]
    )
    assert not Method.of(said).credit(groups).metrics


def test_a_critic_pays_an_invalid_action_at_its_turn_and_no_shaping_in_a_batch_of_failures() -> None:
    said = recipe(
        {"environment": {"kind": "environment", "weight": 2.0}},
        group=2,
        environment={"python": "environments:keydoor", "invalid_penalty": 0.1},
        shaping={"overlong": {"max_tokens": 4, "cache": 0.9}},
        train={"algorithm": "ppo"},
    )
    failed = [episode(("a", 0.0, False), ("b", 0.0, True), score=0.0), episode(("a", 0.0, True), score=0.0)]
    (made,) = Method.of(said).by_turn([played(said, *failed)])
    assert made.rewards == pytest.approx([-0.2, 0.0])
    won = played(said, failed[0], episode(("a", 0.0, True), score=1.0))
    assert Method.of(said).by_turn([won])[0].rewards == won.rewards


def test_a_critics_groups_of_one_are_not_gated_one_by_one() -> None:
    said = recipe(group=1, train={"algorithm": "ppo"})
    groups = [group(said, {"math": [right], "form": [0.5]}) for right in (1.0, 0.0)]
    assert Method.of(said).credit(groups).A_PG.flatten().tolist() == pytest.approx([1.15, 0.15])


# ---------------------------------------------------------------- nothing changes where nothing is shaped

METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "leave one out": {"baseline": "leave_one_out", "scale": "none"},
    "none": {"scale": "none"},
    "batch": {"scale": "batch"},
    "floor": {"std_floor": 0.1},
    "ddof 0": {"std_ddof": 0},
    "pruned by variance": {"prune": {"keep": 2, "by": "variance"}},
    "pruned by advantage": {"prune": {"keep": 2, "by": "advantage"}},
    "parts": {"reward_combine": "normalise_then_sum"},
}


def without_outcomes(made: Group) -> Group:
    """As groups were before outcomes were told from rewards: no gate is asked of it."""
    return Group(made.row, made.completions, made.texts, made.judgements, made.rewards)


def random_groups(said: Recipe, verifiers: dict[str, float]) -> list[Group]:
    torch.manual_seed(3)
    groups = []
    for row in range(24):
        scores = {
            name: [NAN if torch.rand(()) < 0.05 else float(torch.rand(()) < share) for _ in range(4)]
            for name, share in verifiers.items()
        }
        groups.append(group(said, scores, row))
    return groups


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weight", [1.0, 0.7])
def test_a_recipe_without_shaping_learns_the_same_to_the_last_bit(name: str, weight: float) -> None:
    said = recipe({"math": {"weight": weight}}, train=METHODS[name])
    groups = random_groups(said, {"math": 0.3})
    penalty = torch.rand(24, 4) if METHODS[name].get("reward_combine") is None else None
    for more in (None, penalty):
        new = Method.of(said).credit(groups, more)
        old = Method.of(said).credit([without_outcomes(g) for g in groups], more)
        assert torch.equal(new.A_PG, old.A_PG)
        assert torch.equal(new.kept_PG, old.kept_PG)
        assert torch.equal(new.signal_P, old.signal_P)


@pytest.mark.parametrize("name", METHODS)
def test_alive_by_reward_is_the_method_as_it_was_to_the_last_bit(name: str) -> None:
    said = recipe(train=METHODS[name] | {"alive_by": "reward"})
    groups = random_groups(said, {"math": 0.2, "form": 0.5})
    new = Method.of(said).credit(groups)
    old = Method.of(said).credit([without_outcomes(g) for g in groups])
    assert torch.equal(new.A_PG, old.A_PG)
    assert torch.equal(new.signal_P, old.signal_P)


# ---------------------------------------------------------------- what is measured of it


def measured(said: Recipe, *groups: Group) -> dict[str, float]:
    return dict(Method.of(said).credit(groups).metrics)


def test_the_share_learned_from_shaping_alone_is_measured() -> None:
    was = recipe(train={"alive_by": "reward"})
    found = measured(was, wrong(was), mixed(was))
    alone = sum(a * n for a, n in zip([1.161895, 0.387298, 0.387298, 1.161895], LENGTHS, strict=True))
    beside = sum(a * n for a, n in zip([0.361403, 0.496929, 0.632456, 1.490788], LENGTHS, strict=True))
    assert found["shape/alone"] == pytest.approx(alone / (alone + beside), abs=1e-6)
    assert measured(was, wrong(was))["shape/alone"] == 1.0
    said = recipe()
    assert measured(said, wrong(said), mixed(said))["shape/alone"] == 0.0
    assert "shape/alone" not in measured(said, wrong(said))  # nothing is learned: no share of it


def test_right_answers_paid_no_more_than_a_wrong_one_are_counted() -> None:
    said = recipe({"math": {}}, train={"overlong": 0.8})
    made = group(said, {"math": [0.0, 0, 0, 1]})
    assert made.rewards == pytest.approx([0.0, -0.25, -0.5, 0.25])
    assert measured(said, made)["group/inverted"] == 0.0
    whole = recipe({"math": {}}, shaping={"overlong": {"cache": 0.8, "weight": 2}})
    assert measured(whole, group(whole, {"math": [0.0, 0, 0, 1]}))["group/inverted"] == 1.0
    tied = recipe({"math": {}, "form": {"kind": "regex", "pattern": "x", "weight": 1}})
    made = group(tied, {"math": [0.0, 0, 1, 1], "form": [1.0, 0, 0, 1]})
    assert measured(tied, made)["group/inverted"] == 0.5
    # of all right samples, those of groups without a wrong one among them
    both = [made, group(tied, {"math": [1.0] * 4, "form": [1.0, 0, 0, 1]})]
    assert measured(tied, *both)["group/inverted"] == pytest.approx(1 / 6)


def test_a_placebo_inverts_nothing() -> None:
    said = recipe(train={"control": "random"})
    assert "group/inverted" not in measured(said, mixed(said))


def test_groups_whose_outcomes_nearly_tie_are_counted() -> None:
    said = recipe({"judge": {"kind": "regex", "pattern": "x"}}, train={"std_floor": 0.1})
    groups = [
        group(said, {"judge": [0.5, 0.52, 0.5, 0.5]}),
        group(said, {"judge": [0.5] * 4}),
        group(said, {"judge": [0.0, 0, 0, 1]}),
        group(said, {"judge": [0.3] * 4}),
    ]
    assert measured(said, *groups)["group/near_tie"] == 0.25
    assert measured(recipe({"judge": {"kind": "regex", "pattern": "x"}}), *groups)["group/near_tie"] == 0.0


# `reward_combine: split`: the reward is one part, what stands beside it another

PARTS = {"task": {"verifiers": ["math"]}, "consistency": {"verifiers": ["agrees"], "weight": 0.5}}
SPLIT = {"reward_combine": "split", "split": PARTS}
CONSISTENT = [0.9, 0.8, 0.2, 0.6]
RIGHT = [1.0, 0.0, 1.0, 0.0]


def apart(**train: Any) -> Recipe:
    return recipe({"math": {}, "agrees": {}}, train=SPLIT | train)


def worth(said: Recipe, right: list[float], consistent: list[float], step: int = 0) -> list[float]:
    found: list[float] = (
        Method.of(said, step).credit([group(said, {"math": right, "agrees": consistent})]).A_PG[0].tolist()
    )
    return found


def test_a_further_part_stands_beside_the_reward() -> None:
    said = apart()
    assert said.verify["agrees"].weight == 0  # in the reward
    assert group(said, {"math": RIGHT, "agrees": CONSISTENT}).rewards == RIGHT
    assert worth(said, RIGHT, CONSISTENT) == pytest.approx([1.31019, -0.583375, 0.179588, -0.906404], abs=1e-6)
    # a score that is missing leaves the reward as it is
    found = worth(said, RIGHT, [0.9, NAN, 0.2, 0.6])
    assert found == pytest.approx([1.340604, -0.866025, 0.343989, -0.818568], abs=1e-6)


def test_a_further_part_is_gated_by_the_outcome() -> None:
    for dead in ([0.0] * 4, [1.0] * 4):
        assert worth(apart(), dead, CONSISTENT) == [0.0] * 4
        assert not Method.of(apart()).has_signal(group(apart(), {"math": dead, "agrees": CONSISTENT}))
        today = worth(apart(alive_by="reward"), dead, CONSISTENT)
        assert today == pytest.approx([0.444165, 0.28265, -0.686437, -0.040379], abs=1e-6)


def test_a_sample_without_a_verdict_is_worth_nothing_however_consistent() -> None:
    found = worth(apart(), [1.0, NAN, 0.0, 0.0], CONSISTENT)
    assert found[1] == 0.0 and all(found[i] for i in (0, 2, 3))


def test_the_weight_of_a_part_follows_the_step() -> None:
    ramp = {"from": 0.1, "to": 0.5, "steps": 50}
    said = apart(split=PARTS | {"consistency": {"verifiers": ["agrees"], "weight": ramp}})
    part = said.train.split["consistency"]
    assert [part.at(step) for step in (0, 25, 50, 80)] == pytest.approx([0.1, 0.3, 0.5, 0.5])
    whole = worth(apart(), RIGHT, CONSISTENT)
    assert worth(said, RIGHT, CONSISTENT, 50) == pytest.approx(whole) != worth(said, RIGHT, CONSISTENT, 0)
    metrics = Method.of(said, 25).credit([group(said, {"math": RIGHT, "agrees": CONSISTENT})]).metrics
    assert metrics["split/consistency/weight"] == pytest.approx(0.3) and metrics["split/task/weight"] == 1.0


def test_without_weight_on_the_further_part_it_is_plain_grpo_bit_for_bit() -> None:
    said = apart(split=PARTS | {"consistency": {"verifiers": ["agrees"], "weight": 0}})
    assert worth(said, RIGHT, CONSISTENT) == worth(recipe({"math": {}, "agrees": {"weight": 0}}), RIGHT, CONSISTENT)


def test_right_answers_that_a_wrong_one_outweighs_are_counted() -> None:
    for weight, share in ((0.89, 0.0), (0.9, 0.5)):
        said = apart(split=PARTS | {"consistency": {"verifiers": ["agrees"], "weight": weight}})
        metrics = Method.of(said).credit([group(said, {"math": RIGHT, "agrees": CONSISTENT})]).metrics
        assert metrics["split/inverted"] == share
