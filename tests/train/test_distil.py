"""The teacher: worked numbers of its losses, what it may see, whose samples it teaches, and what it is refused beside."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_cli.algorithm.credit import Credit
from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.sections.recipe import Distil, Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.hints import Hints, dealt_anew, hints_of
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.credit import DistilMethod, Method
from grpo_cli.train.distil import Distillation, divergence, mixed
from grpo_verifiers.verdict import Outcome, Verdict

Z, TEACHER = [2.0, 1.0, 0.0], [1.0, 2.0, 0.0]


def logps(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log_softmax(0)


def slope(direction: str, z: list[float], teacher: list[float]) -> tuple[float, list[float]]:
    """The divergence of two whole distributions, and its gradient on the policy's logits."""
    own = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    found = divergence(own.log_softmax(0), logps(teacher), direction, whole=True)
    found.backward()
    assert own.grad is not None
    return found.item(), own.grad.tolist()


def test_the_divergences_and_their_gradients() -> None:
    value, grad = slope("reverse", Z, TEACHER)
    assert value == pytest.approx(0.420512, abs=1e-6) and grad == pytest.approx(
        [0.385499, -0.34764, -0.037859], abs=1e-6
    )
    value, grad = slope("forward", Z, TEACHER)
    assert value == pytest.approx(0.420512, abs=1e-6) and grad == pytest.approx([0.420512, -0.420512, 0], abs=1e-6)
    assert slope("jsd", Z, TEACHER)[0] == pytest.approx(0.100956, abs=2e-6)


def test_the_sampled_advantage_has_the_gradient_of_the_reverse_divergence() -> None:
    p, q = logps(Z), logps(TEACHER)
    whole = torch.zeros(3, dtype=torch.float64)
    for y in range(3):
        score = -p.exp()
        score[y] += 1  # of log p(y) on the logits; the loss is -A log p
        whole -= p[y].exp() * (q - p)[y] * score
    assert whole.tolist() == pytest.approx(slope("reverse", Z, TEACHER)[1], abs=1e-12)


def test_the_likeliest_tokens_with_one_for_the_rest_are_a_lower_bound() -> None:
    p, q = logps([3.0, 2, 1, 0, -1]), logps([2.0, 3, 0, 2, -1])
    found = [divergence(p[:k], q[:k], "reverse", whole=k == 5).item() for k in (1, 2, 3, 5)]
    assert found == pytest.approx([0.439317, 0.441615, 0.55122, 0.563061], abs=2e-6)
    assert found == sorted(found)
    # put to 1 again, what is left of two tokens is above that bound
    a, b = (x[:2] - x[:2].logsumexp(0) for x in (p, q))
    assert divergence(a, b, "reverse", whole=True).item() == pytest.approx(0.462117, abs=2e-6)


def test_what_a_token_loss_leaves_out_may_turn_its_sign() -> None:
    later = (torch.tensor([0.9, 0.1]) * (torch.tensor([0.9, 0.1]).log() - torch.tensor([0.1, 0.9]).log())).sum().item()
    assert later == pytest.approx(1.75778, abs=1e-5)
    by_token = slope("reverse", [0.0, 0.0], [math.log(0.4), math.log(0.6)])[1]
    assert by_token == pytest.approx([0.101366, -0.101366], abs=1e-6)
    z = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    p = z.log_softmax(0)
    (p.exp() * (p - logps([math.log(0.4), math.log(0.6)]) + torch.tensor([0.0, later]))).sum().backward()
    assert z.grad is not None and z.grad.tolist() == pytest.approx([-0.338079, 0.338079], abs=1e-6)


def test_the_half_life_of_the_average() -> None:
    for rate, steps in ((0.05, 13.513407), (0.01, 68.967563)):
        assert math.log(0.5) / math.log(1 - rate) == pytest.approx(steps, abs=1e-6)
    weights = SimpleNamespace(frozen=[torch.tensor([1.0])], trained=[torch.tensor([0.0])])
    teacher: Any = SimpleNamespace(weights=weights, spec=Distil(rate=0.05))
    for _ in range(14):
        Distillation.follow(teacher)
    assert weights.frozen[0].item() == pytest.approx(0.95**14) and 0.95**13 > 0.5 > 0.95**14


def test_the_mix_of_both_advantages() -> None:
    made = Credit(torch.tensor([[0.866025, -0.866025]]), torch.ones(1, 2, dtype=torch.bool), torch.tensor([True]))
    gap = (logps(TEACHER) - logps(Z)).tolist()
    found = mixed(made, [gap[:2], []], Distil(when="all", mix=0.1), 3, topk=False)
    assert found.A_PGT is not None
    assert found.A_PGT[0, 0, :2].tolist() == pytest.approx([0.679423, 0.879423], abs=1e-6)
    assert found.A_PGT[0, 1].tolist() == pytest.approx([-0.9 * 0.866025] * 3)  # as long as the longest sample


def test_rows_without_signal_or_teacher_leave_the_mean() -> None:
    kept = torch.ones(3, 2, dtype=torch.bool)
    made = Credit(torch.tensor([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]), kept, torch.tensor([True, False, False]))
    apart: list[list[float]] = [[], [], [0.5], [], [], []]
    found = mixed(made, apart, Distil(), 2, topk=False)
    assert found.kept_PG.tolist() == [[True, True], [True, False], [False, False]]
    assert found.signal_P.tolist() == [True, True, False]
    assert found.A_PG.tolist() == [[1, -1], [0.5, 0], [0, 0]]
    alone = mixed(made, apart, Distil(when="all"), 2, topk=False)  # the teacher alone
    assert alone.kept_PG.tolist() == [[False, False], [True, False], [False, False]]


class Verifier:
    def __init__(self, is_public: bool) -> None:
        self.reason_is_public = is_public

    def gold_text(self, row: dict[str, Any]) -> str:
        return "\\boxed{" + row["answer"] + "}"


def hints(spec: Distil, is_public: bool = True, **more: Any) -> Hints:
    judge: Any = SimpleNamespace(verifiers={"v": Verifier(is_public)}, primary="v")
    rows = [Row(str(i), f"question {i}", None, {"answer": gold}) for i, gold in enumerate(["12345", "67"])]
    return Hints(spec, rows, judge, **more)


def group(row: int, *samples: tuple[str, str, str, str], cut: int = -1) -> Group:
    """Samples as (text, outcome, reason, detail)."""
    judged = []
    for _, outcome, reason, detail in samples:
        score = None if outcome == "error" else float(outcome == "right")
        verdict = Verdict(Outcome(outcome), score, None, reason, detail=detail)
        judged.append(Judgement({"v": verdict}, verdict.outcome, score, "v"))
    done = [Completion([1], [0.0], "length" if i == cut else "stop") for i in range(len(samples))]
    rewards = [math.nan if j.reward is None else j.reward for j in judged]
    return Group(row, done, [text for text, *_ in samples], judged, rewards)


WRONG = ("so <think>x</think> 4", "wrong", "unequal", "got 4, it is too small")
RIGHT = ("<think>let me see</think>the answer is 5", "right", "equal", "")
LOST = ("?", "error", "lost", "")


def told(spec: Distil, groups: list[Group], **more: Any) -> list[list[str | None]]:
    found = hints(spec, **more).of(groups, [False] * len(groups))
    return [[None if hint is None else hint.text for hint in own] for own in found]


def test_each_kind_of_teacher_says_what_it_may() -> None:
    one = [group(0, WRONG, RIGHT, LOST, WRONG, cut=3)]
    assert told(Distil(teacher=["reason"]), one) == [
        ["An earlier answer to this was wrong: got 4, it is too small.", None, None, None]
    ]
    # the code alone where the verifier does not declare its reasons public
    assert (
        told(Distil(teacher=["reason"]), one, is_public=False)[0][0] == "An earlier answer to this was wrong: unequal."
    )
    assert told(Distil(teacher=["sibling"], when="all"), one)[0] == [
        "A right answer to this is:\nthe answer is 5", None, None, None,
    ]  # fmt: skip
    assert told(Distil(teacher=["gold"]), one)[0][0] == "The right result is 12345."
    assert told(Distil(teacher=["prompt"], when="all"), one)[0] == ["", "", None, None]
    assert told(Distil(teacher=["sibling", "reason"]), [group(0, WRONG, WRONG)])[0][0] == (
        "An earlier answer to this was wrong: got 4, it is too small."
    )
    assert told(Distil(teacher=["a/model"], when="all"), one)[0] == ["", "", "", None]


def test_a_reason_with_the_gold_is_replaced_by_its_code_and_counted() -> None:
    leaks = ("9", "wrong", "unequal", "expected 12345")
    short = ("9", "wrong", "unequal", "expected 67")
    found = hints(Distil(teacher=["reason"])).of([group(0, leaks), group(1, short)], [False, False])
    assert [(own[0].text, own[0].leaked) for own in found if own[0]] == [
        ("An earlier answer to this was wrong: unequal.", True),
        ("An earlier answer to this was wrong: expected 67.", False),  # fewer than 4 characters are chance
    ]
    code = ("9", "wrong", "not_12345", "")
    assert hints(Distil(teacher=["reason"])).of([group(0, code)], [False]) == [[None]]


def test_a_teacher_of_dead_groups_makes_signal_where_rewards_have_none() -> None:
    recipe = Recipe.model_validate(BASE)
    method = DistilMethod(Method.of(recipe), hints(Distil(teacher=["reason"])))
    assert method.has_signal(group(0, WRONG, WRONG)) and method.has_signal(group(0, WRONG, RIGHT))
    assert not method.has_signal(group(0, RIGHT, RIGHT)) and not method.has_signal(group(0, LOST, LOST))
    alive = hints(Distil(teacher=["reason"])).of([group(0, WRONG, RIGHT)], [True])
    assert alive == [[None, None]]


def test_rows_of_which_none_has_a_teacher_are_refused() -> None:
    judge: Any = SimpleNamespace(verifiers={"v": SimpleNamespace(gold_text=lambda row: None)}, primary="v")
    recipe = Recipe.model_validate(BASE | {"distil": {"teacher": "gold"}})
    with pytest.raises(DataError, match=r"no row has a teacher: `verify\.v` names no gold"):
        hints_of(recipe, [Row("a", "q", None, {})], judge)
    assert hints_of(Recipe.model_validate(BASE | {"train": {"steps": 1}}), [], judge) is None


def test_a_wrong_hint_has_the_form_of_the_right_one() -> None:
    groups = [group(0, WRONG, RIGHT, ("no", "wrong", "x", "")), group(1, WRONG)]
    (first, *_), (second,) = hints(Distil(teacher=["gold"], contrast=True)).of(groups, [False, False])
    assert first is not None and (first.text, first.wrong) == ("The right result is 12345.", "The right result is 67.")
    assert second is not None and second.wrong == "The right result is 12345."
    (first, *_), (second,) = hints(Distil(teacher=["sibling"], contrast=True)).of(groups, [False, False])
    assert first is not None and first.wrong == "A right answer to this is:\nno"
    assert second is None


def test_the_placebo_deals_hints_out_among_other_groups() -> None:
    groups = [group(0, WRONG, WRONG), group(1, ("a", "wrong", "z", ""), RIGHT)]
    own = hints(Distil(teacher=["gold"])).of(groups, [False, False])
    dealt = dealt_anew(own)
    assert sorted(h.text for row in dealt for h in row if h) == sorted(h.text for row in own for h in row if h)
    assert [[h is None for h in row] for row in dealt] == [[h is None for h in row] for row in own]
    assert dealt[1][0] == own[0][0] != own[1][0]
    placebo = hints(Distil(teacher=["gold"]), is_placebo=True).of(groups, [False, False])
    assert placebo == dealt


def test_a_hint_stands_in_the_last_message_and_braces_are_text() -> None:
    plain, chat = (
        Row("a", "{x}?", None, {}),
        Row("a", "q", [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], {}),
    )
    made = hints(Distil(template="[{hint}] {prompt} [{hint}]"))
    assert made.row(plain, "{prompt}").prompt == "[{prompt}] {x}? [{prompt}]"
    assert made.row(chat, "h").messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "[h] q [h]"},
    ]
    assert made.row(chat, "") is chat


def test_the_average_is_saved_and_comes_back(tmp_path: Path) -> None:
    saved: Any = SimpleNamespace(spec=Distil(), weights=SimpleNamespace(frozen=[torch.tensor([1.0, 2.0])]))
    Distillation.save(saved, tmp_path)
    back: Any = SimpleNamespace(spec=Distil(), weights=SimpleNamespace(frozen=[torch.zeros(2)]))
    Distillation.load(back, tmp_path)
    assert back.weights.frozen[0].tolist() == [1.0, 2.0]


BASE: dict[str, Any] = {
    "model": "builtin:tiny",
    "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
    "verify": {"math": {}},
    "sample": {"prompts": 2, "group": 4, "max_tokens": 8},
    "train": {"steps": 1, "method": "distil"},
}


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"train": {"steps": 1}, "distil": {}}, "distil", "no effect with `train.method: rl`"),
        ({"distil": {"teacher": ["reason", "a/model"]}}, "distil.teacher", "`a/model` teaches all samples"),
        ({"distil": {"teacher": ["prompt", "gold"]}}, "distil.teacher", "never asked"),
        ({"distil": {"teacher": ["gold", "gold"]}}, "distil.teacher", "stands twice"),
        ({"distil": {"teacher": "prompt", "weights": "live"}}, "distil.weights", "what it does already"),
        ({"distil": {"teacher": "sibling"}}, "distil.teacher", "no right sibling"),
        ({"distil": {"contrast": True}}, "distil.contrast", "which `teacher: reason` has not"),
        ({"distil": {"direction": "jsd"}}, "distil.direction", "goes with `loss: topk`"),
        ({"distil": {"template": "{prompt}"}}, "distil.template", "shows no `{hint}`"),
        ({"distil": {"template": "{hint}"}}, "distil.template", "has no `{prompt}`"),
        ({"train": {"algorithm": "ppo"}}, "train.baseline", "an advantage of its own"),
        ({"train": {"loss": "grpo"}}, "train.loss", "a mean over answers"),
        ({"train": {"kl": {"beta": 0.1}, "dead_groups": "keep"}}, "train.kl.beta", "are the anchor"),
        ({"train": {"prune": {"keep": 2}}}, "train.prune", "before the teacher is asked"),
        ({"train": {"control": "random"}}, "train.control", "hints are made of verdicts"),
        ({"environment": "environments:keydoor"}, "environment", "no place in an episode"),
        ({"launch": {"strategy": "fsdp2", "cpu_ranks": 2}}, "launch.strategy", "not tried"),
    ],
)
def test_what_a_teacher_does_not_go_with_is_refused(changes: dict[str, Any], place: str, words: str) -> None:
    train = (
        BASE["train"] | changes.get("train", {})
        if "distil" not in changes or "train" not in changes
        else changes["train"]
    )
    recipe = Recipe.model_validate({**BASE, **changes, "train": train})
    found = [(".".join(map(str, f.path)), f.message) for f in check_rules(recipe, lambda path: False)]
    assert any(at == place and words in said for at, said in found), found


def test_the_plain_recipe_is_taken_and_off_is_off() -> None:
    assert check_rules(Recipe.model_validate(BASE), lambda path: False) == []
    assert Recipe.model_validate(BASE | {"train": {"steps": 1}}).distil is None
