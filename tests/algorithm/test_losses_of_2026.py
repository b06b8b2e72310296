"""The worked numbers of the losses of 2026, each through the trainer's own loss or the function that makes its advantages."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from grpo_cli.algorithm.advantage import best_of_k, group_advantages, length_weighted, token_baseline
from grpo_cli.algorithm.loss import moved_too_far
from grpo_cli.errors import RecipeError, TrainingError
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.train.credit import Method, energies
from tests.builders.loss_bench import table_loss, trainer
from tests.train.test_credit import group, recipe

NAN = math.nan


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_max_rl_divides_by_the_mean_of_the_group() -> None:
    found = group_advantages(rows([1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]), scale="mean")
    assert found.tolist() == [[3, -1, -1, -1], [1, -1, 1, -1], [0] * 4, [0] * 4]
    # the same part in all rewards is no constant here: 11, 10, 10, 10 have the mean 10.25
    assert group_advantages(rows([11, 10, 10, 10]), scale="mean")[0, 0].item() == pytest.approx(0.75 / 10.25)
    missing = group_advantages(rows([1, 0, NAN, 0]), scale="mean")
    assert missing[0].tolist() == pytest.approx([2, -1, 0, -1])


def test_the_gradient_of_max_rl_is_of_order_g_less_1() -> None:
    p, G = 0.2, 4
    whole = 0.0
    for bits in product((0.0, 1.0), repeat=G):
        chance = math.prod(p if bit else 1 - p for bit in bits)
        A = group_advantages(rows(list(bits)), scale="mean")[0].tolist()
        whole += chance * sum(a * (bit - p) for a, bit in zip(A, bits, strict=True)) / G
    assert whole / (p * (1 - p)) == pytest.approx(2.44) == pytest.approx(sum((1 - p) ** k for k in range(G - 1)))


def test_max_rl_refuses_a_reward_below_0() -> None:
    method = Method.of(recipe(4, train={"algorithm": "max_rl", "alive_by": "reward"}))
    with pytest.raises(TrainingError, match=r"one reward is -0\.5") as told:
        method.credit([group(0, [1.0, 0.0, -0.5, NAN])])
    assert told.value.hint == "pay no less than 0, or say another `scale`"


def test_the_best_of_k_is_averaged_over_all_subsets() -> None:
    two = best_of_k(rows([1, 1, 0, 0, 0, 0, 0, 0]), 4)[0].tolist()
    assert two == pytest.approx([0.522233] * 2 + [-0.174078] * 6, abs=1e-6)
    assert sum(two) == pytest.approx(0, abs=1e-12)
    assert best_of_k(rows([1, 1, 1, 1, 1, 0, 0, 0]), 4).tolist() == [[0.0] * 8]  # no subset fails
    assert best_of_k(rows([0, 1] * 4), 1).tolist() == [[-1, 1] * 4]
    # a sample without a verdict is in no subset; too few samples make none
    assert best_of_k(rows([1, NAN, 0, 0]), 2)[0].tolist() == pytest.approx(
        [0.707107, 0, -0.353553, -0.353553], abs=1e-6
    )
    assert best_of_k(rows([1, NAN, NAN, 0]), 3).tolist() == [[0.0] * 4]


def test_opo_weighs_its_baseline_by_length() -> None:
    found = length_weighted(rows([0, 0, 0, 1]), rows([10, 10, 10, 70]))
    assert found[0].tolist() == pytest.approx([-0.7, -0.7, -0.7, 0.3])
    method = Method.of(recipe(4, train={"algorithm": "opo"}))
    assert method.credit([group(0, [0.0, 0.0, 0.0, 1.0])]).A_PG[0].tolist() == [-0.25, -0.25, -0.25, 0.75]


def test_the_token_baseline_weighs_by_the_gradient_so_far() -> None:
    energy = torch.tensor([[[0.02, 0.5], [1.0, 0.5]]])
    found = token_baseline(rows([1, 0]), energy, torch.ones(1, 2, 2))
    baselines = [0.019608, 0.257426]
    assert found[0, 0].tolist() == pytest.approx([1 - b for b in baselines], abs=1e-6)
    assert found[0, 1].tolist() == pytest.approx([-b for b in baselines], abs=1e-6)
    ended = token_baseline(rows([1, 0]), energy, torch.tensor([[[1, 1], [1, 0]]]))
    assert ended[0, :, 1].tolist() == [0, 0]  # nothing goes on beside it
    assert not token_baseline(rows([1, NAN]), energy, torch.ones(1, 2, 2)).any()


def test_the_energy_of_a_token_is_one_less_twice_its_chance_plus_the_sum_of_squares() -> None:
    class Scorer:
        def distributions(self, *_: Any) -> Any:
            for place, p in ((1, [0.2, 0.6, 0.2]), (0, [0.9, 0.1, 0.0])):
                yield place, torch.tensor([p, [0.5, 0.5, 0.0]]).log()

    found = energies(Scorer(), [([1], [0, 0]), ([1], [0, 1])], 1.0)  # type: ignore[arg-type]
    assert found[0] == pytest.approx([0.02, 0.5]) and found[1] == pytest.approx([1 - 0.4 + 0.44, 0.5])


# one answer of one token: the probability before, now, the advantage, whether it is kept, and by the clip
MOVES = [
    (0.01, 0.05, 1.0, True, False),
    (0.5, 0.62, 1.0, True, True),
    (0.7, 0.95, 1.0, False, False),
    (0.9, 0.73, -1.0, True, True),
    (0.9, 0.6, -1.0, False, False),
    (0.01, 0.0001, -1.0, True, False),
]


def one_token(name: str, before: float, now: float, A: float, **more: Any) -> tuple[float, float]:
    """The loss, and its gradient on the log-prob."""
    built = trainer(algorithm=name, inner_epochs=2, **more)
    lp = torch.tensor([[now]]).log().requires_grad_()
    batch = {"old_per_token_logps": torch.tensor([[before]]).log(), "num_items_in_batch": torch.tensor(1)}
    loss = table_loss(built, torch.cat([lp, torch.full((1, 1), NAN)], dim=1), torch.tensor([A]), **batch)
    loss.backward()
    assert lp.grad is not None
    return loss.item(), lp.grad.item()


@pytest.mark.parametrize(("before", "now", "A", "kept", "clip_keeps"), MOVES)
def test_dppo_masks_by_how_far_the_probability_moved(
    before: float, now: float, A: float, kept: bool, clip_keeps: bool
) -> None:
    ratio, log = now / before, math.log(now / before)
    loss, slope = one_token("dppo", before, now, A)
    assert loss == pytest.approx(-kept * A * ratio + 1e-3 * log**2, abs=2e-6)
    assert slope == pytest.approx(-kept * A * ratio + 2e-3 * log, abs=2e-6)
    clipped = one_token("default", before, now, A)[1]
    assert (clipped != 0) is clip_keeps


def test_the_numbers_of_dppo() -> None:
    assert one_token("dppo", 0.01, 0.05, 1.0)[0] == pytest.approx(-4.99741, abs=1e-5)
    assert one_token("dppo", 0.7, 0.95, 1.0)[0] == pytest.approx(9.3e-5, abs=1e-6)
    now, old, A = torch.tensor([[0.05, 0.6]]).log(), torch.tensor([[0.01, 0.9]]).log(), torch.tensor([[1.0, -1.0]])
    for delta, masked in ((0.0247, [True, True]), (0.0248, [False, True]), (0.2263, [False, False])):
        assert moved_too_far(now, old, A, "kl", delta).tolist() == [masked]
    assert not moved_too_far(now, old, -A, "kl", 0.0).any()  # moved against their advantage


def test_gmpo_cuts_on_the_side_that_the_advantage_pushes_to() -> None:
    logs = torch.tensor([[0.1, -0.6, 0.9]])
    for A, size in ((1.0, 0.967216), (-1.0, 1.221403)):
        lp = (logs - 1.0).requires_grad_()
        built = trainer(algorithm="gmpo")
        loss = table_loss(built, lp, torch.tensor([A]), old_per_token_logps=torch.full((1, 3), -1.0))
        assert loss.item() == pytest.approx(-A * size, abs=2e-6)
        loss.backward()
        assert lp.grad is not None
        cut = [False, False, True] if A > 0 else [False, True, False]
        assert lp.grad[0].tolist() == pytest.approx([0.0 if out else -A * size / 3 for out in cut], abs=2e-6)
        shown = built._metrics["train"]["clip_ratio/region_mean"][-1]
        assert shown == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("A", "w", "phi"), [(1, 0.5, 1.120422), (1, 1, 1), (1, 2, 0.199148), (-1, 0.5, 0.339785), (-1, 2, 1.082682)]
)
def test_vespo_weighs_the_whole_answer(A: float, w: float, phi: float) -> None:
    loss, slope = one_token("vespo", 0.2, 0.2 * w, A)
    assert slope == pytest.approx(-A * phi, abs=2e-6)
    assert loss == pytest.approx(-A * phi * math.log(0.2 * w), abs=4e-6)


def test_luspo_adds_up_what_gspo_averages() -> None:
    lp, old = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, NAN, NAN]]), torch.full((2, 3), -1.0001)
    losses = [
        table_loss(trainer(algorithm=name), lp, torch.tensor([1.0, 0.5]), old_per_token_logps=old).item()
        for name in ("gspo", "luspo")
    ]
    s = math.exp(1e-4)
    assert losses == [pytest.approx(-s * (1 + 0.5) / 2, abs=2e-6), pytest.approx(-s * (3 + 0.5) / 2, abs=2e-6)]


def test_gdpo_is_normalise_then_sum_behind_the_gate() -> None:
    verify = {"math": {"primary": True}, "regex": {"pattern": "x", "weight": 0.1}}
    groups = [
        group(0, [0.1, 0.2, 0.3, 1.4], {"math": [0, 0, 0, 1.0], "regex": [1, 2, 3, 4.0]}),
        group(1, [0.1, 0.2, 0.3, 0.4], {"math": [0, 0, 0, 0.0], "regex": [1, 2, 3, 4.0]}),
    ]
    named = Method.of(recipe(4, verify, train={"algorithm": "gdpo"})).credit(groups)
    said = {"algorithm": "grpo", "std_ddof": 1, "kl": {"beta": 0}, "reward_combine": "normalise_then_sum"}
    assert torch.equal(named.A_PG, Method.of(recipe(4, verify, train=said)).credit(groups).A_PG)


def refusals(**train: Any) -> list[tuple[str, str]]:
    data = recipe(4, train=train).model_dump(by_alias=True)
    return [(".".join(map(str, f.path)), f.message) for f in check_rules(Recipe.model_validate(data), lambda p: False)]


@pytest.mark.parametrize(
    ("train", "place", "words"),
    [
        ({"baseline": "pass_k"}, "train.baseline", "does not say of how many"),
        ({"algorithm": "pass_k", "pass_k": 5}, "train.pass_k", "a group has 4 samples"),
        ({"pass_k": 2}, "train.pass_k", "no effect with `baseline: mean`"),
        ({"baseline": "length"}, "train.scale", "goes with `scale: none`"),
        ({"algorithm": "max_rl", "overlong": 0.2}, "train.scale", "`train.overlong` may take it below 0"),
        ({"algorithm": "max_rl", "kl": {"beta": 0.1, "estimator": "k1_reward"}}, "train.kl.estimator", "no divisor"),
        ({"algorithm": "otb", "prune": {"keep": 2}}, "train.baseline", "was not made for `prune`"),
        ({"algorithm": "otb", "credit": {"method": "rredcot"}}, "train.credit", "parts of another unit"),
        ({"clip": {"delta": 0.1}}, "train.clip.delta", "no effect with `ratio_clip: ratio`"),
        ({"algorithm": "dppo", "loss": "cispo", "clip": {"cap": 5}}, "train.ratio_clip", "which `loss: cispo` has not"),
        ({"algorithm": "dppo", "dead_groups": "drop"}, "train.dead_groups", "`clip.pull` of dropped answers"),
        ({"loss": "gmpo"}, "train.ratio", "needs `ratio: sequence`"),
        ({"loss": "luspo"}, "train.ratio", "needs `ratio: sequence`"),
    ],
)
def test_what_does_not_go_together_is_refused(train: dict[str, Any], place: str, words: str) -> None:
    found = refusals(**train)
    assert any(words in said for _, said in found), found
    assert any(words in said and (at == place or place == "train.ratio") for at, said in found), found


def test_an_unknown_method_names_what_is_there() -> None:
    with pytest.raises((RecipeError, ValueError)):
        recipe(4, train={"algorithm": "gdp"})
