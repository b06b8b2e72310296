"""What credit for turns cannot go with, and where it would quietly add nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.checking.episodes import CREDITS
from tests.recipe.checking.test_episodes import BASE, read

ONE_TURN = BASE.replace("environment: env.py:Grid\n", "verify: {math: {}}\n")


def test_a_name_is_the_method(tmp_path: Path) -> None:
    credit = read(tmp_path, "train.credit=gigpo").train.credit
    assert credit is not None and (credit.method, credit.weight, credit.gamma) == ("gigpo", 1.0, None)
    credit = read(tmp_path, "train.credit={method: milestones, gamma: 0.8, order: [key, goal]}").train.credit
    assert credit is not None and credit.order == ["key", "goal"]
    assert read(tmp_path).train.credit is None


REFUSED = [
    (["train.credit=gigpo", "train.algorithm=gspo"], "would be averaged away"),
    (["train.credit=gigpo", "train.scale=batch"], "of the whole batch"),
    (["train.credit={method: gigpo, norm: mean}"], "the unit of the reward"),
    (["train.credit={method: planner, norm: std}", "train.scale=none"], "`scale: none`"),
    (["train.algorithm=gigpo", "train.credit={norm: std}"], "with `norm: std` and `scale: none`"),
    (["train.credit={method: gigpo, reward: 2}"], "has no effect with `method: gigpo`"),
    (["train.credit={method: milestones, norm: std}"], "has no effect with `method: milestones`"),
    (["train.credit={method: planner, gamma: 0.9}"], "has no effect with `method: planner`"),
    (["train.credit={method: gigpo, weight: 0}"], "nothing is credited"),
    (["train.credit={method: gigpo, over: steps}", "train.algorithm=rloo"], "`over: steps` weighs"),
    (["train.credit={method: milestones, order: [a, a]}"], "each counts once"),
    (["train.credit={method: milestones, patterns: {a: x}}"], "the environment names the milestones"),
    (["train.credit=milestones", "train.control=random"], "a placebo's `milestones`"),
    (["train.credit=gigpo", "environment.max_turns=1"], "an episode of one turn"),
    (["train.credit={method: gigpo, segments: 4}"], "has no effect with `method: gigpo`"),
    (["train.credit=rredcot"], "an episode has no one answer"),
    (["sample.mix={}"], "was not made for episodes"),
    (["train.credit=gigpoo"], "gigpo"),
    (["train.credit={method: gigpo, gamma: 1.5}"], "gamma"),
]


@pytest.mark.parametrize(("sets", "part"), REFUSED)
def test_what_cannot_help_is_refused(tmp_path: Path, sets: list[str], part: str) -> None:
    with pytest.raises(RecipeError) as err:
        read(tmp_path, *sets)
    assert part in str(err.value)


ANSWERS = [
    (["train.credit=gigpo"], "an answer is one turn"),
    (["train.credit=planner"], "an answer is one turn"),
    (["train.credit={method: rredcot, gamma: 0.9}"], "has no effect with `method: rredcot`"),
    (["train.credit={method: rredcot, weight: 0.5}"], "has no effect with `method: rredcot`"),
    (["train.credit={method: rredcot, segments: 0}"], "segments"),
    (
        ["train.credit={method: rredcot, use: value}", "train.dead_groups=resample"],
        "before the values of cuts are known",
    ),
    (["train.credit=rredcot", "train.ratio=sequence", "train.loss=grpo"], "would be averaged away"),
    (["train.credit=rredcot", "train.algorithm=ppo"], "compares the samples of a group, a critic does not"),
    (["train.credit=rredcot", "train.control=random"], "a placebo's `rredcot`"),
    (["train.credit=rredcot", "launch.strategy=fsdp2", "launch.gpus=2"], "was not tried with"),
    (["train.credit=rredcot", "verify.code.primary=true"], "the gold of `verify.code` (`code`) is none"),
    (["train.credit=rredcot", "verify.format.primary=true"], "the gold of `verify.format` (`format`) is none"),
    (["train.credit=milestones"], "nothing says where a milestone is reached"),
    (["train.credit={method: milestones, patterns: {a: '('}}"], "no regular expression"),
    (["train.credit={method: milestones, patterns: {a: 'x*'}}"], "finds the empty text"),
]


@pytest.mark.parametrize(("sets", "part"), ANSWERS)
def test_an_answer_of_one_turn_has_only_milestones_in_its_text(tmp_path: Path, sets: list[str], part: str) -> None:
    with pytest.raises(RecipeError) as err:
        read(tmp_path, *sets, text=ONE_TURN)
    assert part in str(err.value)


def test_the_sequence_ratio_of_tokens_and_a_placebo_of_outcomes_are_allowed(tmp_path: Path) -> None:
    assert read(tmp_path, "train.credit=gigpo", "train.algorithm=gspo_token").train.credit is not None
    assert read(tmp_path, "train.credit=gigpo", "train.control=random").train.credit is not None
    allowed = read(tmp_path, "train.credit={method: milestones, patterns: {sum: '= [0-9]+'}}", text=ONE_TURN)
    assert allowed.train.credit is not None


def test_each_method_is_explained() -> None:
    from grpo_cli.jobs.explain.subjects import find

    for name in CREDITS:
        subject = find(name)[0]
        assert subject.title == "credit" and f"train.credit: {name}" in subject.render(subject.describe(name))
