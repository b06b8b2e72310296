"""The reference against numbers worked by hand, so that what the trainer is compared with is right itself."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.reference.formulas import (
    Answer,
    Method,
    group_advantages,
    is_clipped,
    kept_places,
    kl,
    normalise_then_sum,
    overlong,
    token_losses,
    weight,
)

NAN = math.nan


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def loss(logs: list[float], advantage: float, method: Method) -> tuple[list[float], list[float]]:
    """Token losses of an answer with these log-ratios, and the gradient of their mean."""
    lps = [number(-1.0 + log) for log in logs]
    answer = Answer(lps, [-1.0] * len(logs), [-1.5] * len(logs), [advantage] * len(logs))
    terms = token_losses(answer, method)
    whole = torch.stack([*terms, 0.0 * torch.stack(lps).sum()]).sum() / len(terms)
    gradients = torch.autograd.grad(whole, lps, allow_unused=True)
    return [float(t.detach()) for t in terms], [0.0 if g is None else float(g) for g in gradients]


@pytest.mark.parametrize(
    ("rewards", "method", "want"),
    [
        ([1, 0, 1, 0], Method(ddof=1), [0.866025, -0.866025, 0.866025, -0.866025]),
        ([1, 0, 0, 0], Method(ddof=0), [1.732051, -0.57735, -0.57735, -0.57735]),
        ([1, 0, 1, 0], Method(scale="none"), [0.5, -0.5, 0.5, -0.5]),
        ([1, 0, 1, 0], Method(baseline="leave_one_out", scale="none"), [0.666667, -0.666667, 0.666667, -0.666667]),
        ([0.3, 0.3, 0.3], Method(), [0, 0, 0]),
        ([1, 0, NAN], Method(ddof=0), [1, -1, 0]),
        ([1, NAN, NAN], Method(), [0, 0, 0]),
    ],
)  # fmt: skip
def test_advantages_of_one_group(rewards: list[float], method: Method, want: list[float]) -> None:
    assert group_advantages([rewards], method)[0] == pytest.approx(want, abs=1e-6)


def test_the_batch_scale_is_one_for_all_groups() -> None:
    found = group_advantages([[1, 0, 1, 0], [1, 1, 1, 0]], Method(scale="batch", ddof=0))
    spread = math.sqrt((4 * 0.25 + 3 * 0.0625 + 0.5625) / 8)
    assert found[0] == pytest.approx([0.5 / spread, -0.5 / spread] * 2)
    assert found[1] == pytest.approx([0.25 / spread] * 3 + [-0.75 / spread])


def test_parts_normalised_one_by_one_leave_a_sample_without_a_part_out_of_all() -> None:
    lost = [[1, 1], [0, 0], [NAN, 1], [NAN, 1]]
    found = normalise_then_sum([lost, [[1, 1]] * 4, [[0, 0]] * 4], [1.0, 1.0], Method())
    assert found[0][:2] == pytest.approx([-found[0][1], found[0][1]]) and found[0][2:] == [0.0, 0.0]
    assert found[1] == found[2] == [0.0] * 4


@pytest.mark.parametrize(("tokens", "want"), [(16384, 0), (18432, -0.5), (20480, -1), (20481, -1)])
def test_the_penalty_for_long_answers(tokens: int, want: float) -> None:
    assert overlong(tokens, 20480, 0.2) == pytest.approx(want)


@pytest.mark.parametrize(
    ("advantage", "ratio", "value", "slope"),
    [(1, 0.5, -0.5, -0.5), (1, 1.5, -1.2, 0), (-1, 0.5, 0.8, 0), (-1, 1.5, 1.5, 1.5), (1, 1, -1, -1)],
)
def test_the_clip_keeps_the_pessimistic_side(advantage: float, ratio: float, value: float, slope: float) -> None:
    terms, gradients = loss([math.log(ratio)], advantage, Method())
    assert terms == pytest.approx([value]) and gradients == pytest.approx([slope])


def test_a_ratio_of_the_whole_answer_and_its_clip() -> None:
    logs, wide = [0.1, 0.1, -0.05, 0.05], Method(loss="grpo", ratio="sequence", clip_low=1.0, clip_high=1.0)
    terms, gradients = loss(logs, 1.0, wide)
    assert terms == pytest.approx([-1.051271] * 4, abs=1e-6)
    assert gradients == pytest.approx([-0.262818] * 4, abs=1e-6)
    token = loss(logs, 1.0, Method(loss="grpo", ratio="sequence_token", clip_low=1.0, clip_high=1.0))
    assert token[1] == pytest.approx(gradients)
    terms, gradients = loss(logs, 1.0, Method(loss="grpo", ratio="sequence", clip_low=3e-4, clip_high=4e-4))
    assert terms == pytest.approx([-1.0004] * 4) and gradients == [0.0] * 4


def test_capped_weights_lose_no_token() -> None:
    for ratio, want in ((0.5, -0.5), (1.0, -1.0), (8.0, -5.0)):
        assert loss([math.log(ratio)], 1.0, Method(loss="cispo", cap=5.0))[1] == pytest.approx([want])


@pytest.mark.parametrize(("advantage", "slope"), [(1.0, -0.940015 * 1.5), (-1.0, 0.934140 * 1.5)])
def test_the_soft_gate_decays_smoothly(advantage: float, slope: float) -> None:
    assert loss([math.log(1.5)], advantage, Method(loss="sapo"))[1] == pytest.approx([slope], abs=1e-5)


@pytest.mark.parametrize(("advantage", "slope"), [(1.0, -(1.2**2) * math.exp(-0.6)), (-1.0, 1.2**3 * math.exp(-0.4))])
def test_the_soft_weight_is_of_the_whole_answer(advantage: float, slope: float) -> None:
    _, gradients = loss([math.log(2.0), math.log(0.6)], advantage, Method(loss="vespo"))
    assert gradients == pytest.approx([slope / 2] * 2)


def test_pruning_keeps_the_largest_advantages_or_the_most_varied_rewards() -> None:
    assert kept_places([0.5, -0.5, 1.0, -1.0], 2, "advantage") == {2, 3}
    assert kept_places([0.0, 0.0, 0.0, 0.0], 2, "advantage") == {0, 1}
    assert kept_places([0.2, 1.0, 0.6, 0.0], 2, "variance") == {1, 3}
    assert kept_places([NAN, 1.0, NAN, NAN], 2, "variance") == {0, 1}


@pytest.mark.parametrize(
    ("estimator", "value", "slope"), [("k1_loss", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", 0.106531, 0.393469)]
)
def test_kl_of_one_token(estimator: str, value: float, slope: float) -> None:
    lp = number(-1.0)
    found = kl(estimator, lp, -1.5, 1.0)
    assert float(found.detach()) == pytest.approx(value, abs=1e-6)
    assert float(torch.autograd.grad(found, lp)[0]) == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "want"), [("grpo", (0.25, 0.125)), ("dapo", (1 / 6, 1 / 6)), ("dr_grpo", (0.0625, 0.0625))]
)
def test_what_a_token_of_a_short_and_of_a_long_answer_weighs(name: str, want: tuple[float, float]) -> None:
    short, long = (Answer([number(-1.0)] * n, [-1.0] * n, [-1.0] * n, [1.0] * n) for n in (2, 4))
    method = Method(loss=name, max_tokens=8)
    assert [weight(a, [short, long], [short, long], 1, method) for a in (short, long)] == pytest.approx(want)


def test_clipped_tokens_are_those_without_a_gradient() -> None:
    logs = [-0.5, 0.0, 0.5]
    answer = Answer([number(-1.0 + log) for log in logs], [-1.0] * 3, [-1.0] * 3, [1.0] * 3)
    assert is_clipped(answer, Method()) == [False, False, True]
    answer.advantage = [-1.0] * 3
    assert is_clipped(answer, Method()) == [True, False, False]
