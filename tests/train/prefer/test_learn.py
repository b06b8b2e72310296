"""A step of pairs in itself: what it measures, what it leaves as it was, and steps without any pair."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpo_cli.errors import TrainingError
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.prefer.learn import PairLearner
from grpo_cli.train.updates import NonFinite
from grpo_verifiers.verdict import Outcome, Verdict
from tests.loop.recipes import small_recipe

RIGHT, WRONG, ERROR = Outcome.RIGHT, Outcome.WRONG, Outcome.ERROR
Learning = tuple[PairLearner, Policy, list[str]]


def group(row: int, *outcomes: Outcome, cut: bool = False) -> Group:
    ids = [[40 + row, 50 + i, 60 + i] for i in range(len(outcomes))]
    completions = [Completion(one, [0.0] * 3, "length" if cut else "stop") for one in ids]
    scores = [None if o is ERROR else float(o is RIGHT) for o in outcomes]
    judged = [Judgement({"regex": Verdict(o, score)}, o, score) for o, score in zip(outcomes, scores, strict=True)]
    texts = [str(one) for one in ids]
    return Group(row, completions, texts, judged, [float(o is RIGHT) for o in outcomes], [30 + row])


def learning(tmp_path: Path, *sets: str) -> Learning:
    recipe: Recipe = load(str(small_recipe(tmp_path)), ["train.method=prefer", "prefer.batch=2", *sets])
    policy = load_model(recipe.model, device=torch.device("cpu"), seed=1)
    said: list[str] = []
    return PairLearner(recipe, policy, tmp_path / "out", NonFinite(True, said.append)), policy, said


@pytest.mark.parametrize("loss", ["dpo", "kto", "simpo"])
def test_a_step_learns_and_leaves_the_forward_pass_as_it_was(tmp_path: Path, loss: str) -> None:
    learner, policy, _ = learning(tmp_path, f"prefer.loss={loss}", "prefer.epochs=2")
    before = [p.detach().clone() for p in policy.model.parameters()]
    heard = list[tuple[int, int]]()
    groups = [group(0, RIGHT, WRONG), group(1, RIGHT, WRONG), group(2, WRONG, WRONG)]
    found = learner.learn(3, groups, lambda done, total: heard.append((done, total)))
    assert "forward" not in policy.model.__dict__
    updates = {"dpo": 2, "simpo": 2, "kto": 6}[loss]
    assert found["prefer/pairs"] == 2 and found["updates"] == updates and heard[-1] == (updates, updates)
    assert any(not torch.equal(p, q) for p, q in zip(before, policy.model.parameters(), strict=True))
    again, other, _ = learning(tmp_path, f"prefer.loss={loss}", "prefer.epochs=2")
    same = again.learn(3, groups, lambda done, total: None)
    assert same == found
    assert all(torch.equal(p, q) for p, q in zip(other.model.parameters(), policy.model.parameters(), strict=True))


@pytest.mark.parametrize("loss", ["dpo", "kto"])
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (group(0, RIGHT, RIGHT), "no wrong sample"),
        (group(0, WRONG, WRONG), "no right sample"),
        (group(0, RIGHT, WRONG, cut=True), "cut off only"),
        (group(0, ERROR, ERROR), "without a verdict only"),
    ],
)
def test_without_pairs_the_first_step_stops_the_run_and_a_later_one_learns_nothing(
    tmp_path: Path, loss: str, made: Group, why: str
) -> None:
    learner, policy, said = learning(tmp_path, f"prefer.loss={loss}")
    before = [p.detach().clone() for p in policy.model.parameters()]
    with pytest.raises(TrainingError, match=why) as stopped:
        learner.learn(0, [made], lambda done, total: None)
    assert int(stopped.value.code) == 5 and stopped.value.hint
    found = learner.learn(1, [made], lambda done, total: None)
    assert found["updates"] == 0 and found["prefer/pairs"] == 0 and "loss" not in found
    assert len(said) == 1 and said[0].startswith("step 2: no pair") and "nothing is learned" in said[0]
    assert all(torch.equal(p, q) for p, q in zip(before, policy.model.parameters(), strict=True))


def test_a_loss_that_is_not_finite_never_reaches_the_weights(tmp_path: Path) -> None:
    learner, policy, _ = learning(tmp_path)
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float("nan"))
    others = [p.detach().clone() for p in policy.model.parameters()][1:]
    with pytest.raises(TrainingError, match=r"step 4: .*not touched"):
        learner.learn(3, [group(0, RIGHT, WRONG), group(1, RIGHT, WRONG)], lambda done, total: None)
    assert all(torch.equal(p, q) for p, q in zip(others, list(policy.model.parameters())[1:], strict=True))
