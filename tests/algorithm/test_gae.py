"""Advantages of a critic against numbers worked by hand, token by token."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_cli.algorithm.advantage import group_advantages
from grpo_cli.algorithm.gae import (
    Moments,
    ReturnUnit,
    adaptive_decay,
    advantages,
    explained_variance,
    token_rewards,
    value_loss,
    whitened,
)

V = [0.5, 0.6, 0.8]


@pytest.mark.parametrize(
    ("gamma", "decay", "want"),
    [
        (1, 0.95, [0.4705, 0.39, 0.2]),
        (1, 1, [0.5, 0.4, 0.2]),
        (1, 0, [0.1, 0.2, 0.2]),
        (0.9, 0.95, [0.288805, 0.291, 0.2]),
    ],
)
def test_a_reward_at_the_end(gamma: float, decay: float, want: list[float]) -> None:
    assert advantages([0, 0, 1], V, [1, 1, 1], gamma=gamma, decay=decay) == pytest.approx(want)


def test_an_answer_of_one_token_and_none() -> None:
    assert advantages([1.0], [0.3], [1]) == pytest.approx([0.7])
    assert advantages([], [], []) == [] and token_rewards(1.0, [0, 0]) == [0.0, 0.0]


def test_what_an_environment_said_is_as_if_it_were_not_there() -> None:
    found = advantages([0, 0, 0, 1], [0.5, 0.9, 0.6, 0.8], [1, 0, 1, 1])
    assert found == pytest.approx([0.4705, 0, 0.39, 0.2])
    paid = token_rewards(1.0, [1, 0, 1, 0])
    assert paid == [0, 0, 1.0, 0]  # at the model's last token, not at the last column


def test_kl_in_the_reward_then_whitening_over_two_rows() -> None:
    paid = token_rewards(1.0, [1, 1, 1], beta=0.1, logps=[-1, -2, -0.5], ref=[-1.2, -1.5, -0.5])
    assert paid == pytest.approx([-0.02, 0.05, 1])
    first = advantages(paid, V, [1, 1, 1])
    second = advantages(token_rewards(0.0, [1, 1, 0]), [0.4, 0.3, 9.0], [1, 1, 0])
    assert first == pytest.approx([0.498, 0.44, 0.2]) and second[:2] == pytest.approx([-0.385, -0.3])
    whole = Moments.joined([Moments.of(first), Moments.of(second[:2])])
    assert whitened(first, [1, 1, 1], whole) == pytest.approx([0.988972, 0.848176, 0.265571], abs=1e-6)
    assert whitened(second, [1, 1, 0], whole) == pytest.approx([-1.154529, -0.94819, 0], abs=1e-6)


def test_a_cut_answer_goes_on_with_the_value_behind_it() -> None:
    found = advantages([0, 0, 0], V, [1, 1, 1], after=0.7)
    assert found == pytest.approx([0.19975, 0.105, -0.1])


def test_rewards_of_turns_are_paid_where_they_end_and_sum_to_the_outcome() -> None:
    paid = token_rewards(1.0, [1, 1, 0, 1, 1], steps=[(2, 0.25), (5, 0.5)])
    assert paid == [0, 0.25, 0, 0, 0.75]


def test_moments_of_parts_are_those_of_the_whole() -> None:
    values = [0.1, -3.0, 2.5, 7.0, 0.1]
    whole, parts = (Moments.of(values), Moments.joined([Moments.of(values[:2]), Moments(), Moments.of(values[2:])]))
    assert (parts.n, parts.mean, parts.squares) == pytest.approx((whole.n, whole.mean, whole.squares))
    assert whole.std == pytest.approx(float(torch.tensor(values).std()))


def test_a_batch_without_spread_is_white_already() -> None:
    assert whitened([0.5, 0.5], [1, 1], Moments.of([0.5, 0.5])) == [0.0, 0.0]


def test_the_share_of_the_returns_that_values_explain() -> None:
    returns, values = [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9]
    errors = Moments.of([r - v for r, v in zip(returns, values, strict=True)])
    assert explained_variance(Moments.of(returns), errors) == pytest.approx(0.8525)
    assert explained_variance(Moments.of([0.0, 0.0]), Moments.of([0.1, 0.2])) is None


@pytest.mark.parametrize(("tokens", "want"), [(40, 0.5), (200, 0.9), (1000, 0.98), (10, 0.0)])
def test_long_answers_are_looked_at_further_ahead(tokens: int, want: float) -> None:
    assert adaptive_decay(tokens) == pytest.approx(want)


def test_no_critic_and_no_discount_is_reinforce() -> None:
    assert advantages(token_rewards(0.7, [1, 1, 0, 1]), [0.0] * 4, [1, 1, 0, 1], decay=1.0) == [0.7, 0.7, 0.0, 0.7]


def test_a_critic_that_says_the_mean_of_the_group_is_grpo_without_the_deviation() -> None:
    rewards, lengths = [1.0, 0.0, 0.25, 1.0], [3, 1, 4, 2]
    mean = sum(rewards) / 4
    (grpo,) = group_advantages(torch.tensor([rewards]), scale="none", ddof=1, floor=1e-6).tolist()
    logps = [torch.randn(n, dtype=torch.float64, requires_grad=True) for n in lengths]
    by_critic, by_group = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for reward, n, own, row in zip(rewards, lengths, grpo, logps, strict=True):
        found = advantages(token_rewards(reward, [1] * n), [mean] * n, [1] * n, decay=1.0)
        assert found == pytest.approx([own] * n)
        ratio = torch.exp(row - row.detach())
        by_critic = by_critic - (ratio * torch.tensor(found, dtype=torch.float64)).sum() / sum(lengths)
        by_group = by_group - own * ratio.sum() / sum(lengths)
    for one, other in zip(
        torch.autograd.grad(by_critic, logps, retain_graph=True), torch.autograd.grad(by_group, logps), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-7)


def test_a_critic_that_says_its_place_is_read_before_the_token() -> None:
    values = [t / 10 for t in range(3)]
    by_hand = [0.0, 0.0, 0.0]
    by_hand[2] = 1 - 0.2
    by_hand[1] = 0.2 - 0.1 + 0.95 * by_hand[2]
    by_hand[0] = 0.1 - 0.0 + 0.95 * by_hand[1]
    assert advantages([0, 0, 1], values, [1, 1, 1]) == pytest.approx(by_hand)


def test_the_value_loss_takes_the_worse_of_the_clipped_and_the_plain() -> None:
    values = torch.tensor([[0.9, 0.5, 5.0]], dtype=torch.float64, requires_grad=True)
    old, returns, mask = torch.tensor([[0.6] * 3]), torch.tensor([[1.0, 0.2, 0.0]]), torch.tensor([[1, 1, 0]])
    found = value_loss(values, old.double(), returns.double(), mask, 0.2)
    assert found.loss_BT.tolist()[0] == pytest.approx([0.02, 0.045, 0.0])
    assert found.clipped_BT.tolist() == [[True, False, False]]
    (gradient,) = torch.autograd.grad(found.loss_BT.sum(), values)
    assert gradient.tolist()[0] == pytest.approx([0.0, 0.3, 0.0]) and math.isfinite(float(gradient.sum()))


@pytest.mark.parametrize("gain", [0.3, 0.1 + 0.2, 1e6 / 3, -1e12 / 7])
def test_equal_gains_are_no_advantage_however_their_mean_rounds(gain: float) -> None:
    for tokens in range(2, 60):
        row = [gain] * tokens
        whole = Moments.joined([Moments.of(row), Moments.of(row[:1])])
        assert whitened(row, [1] * tokens, whole) == [0.0] * tokens, tokens


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-3])
def test_the_value_loss_in_deviations_does_not_know_the_unit_of_the_reward(unit: float) -> None:
    returns, values, old = [2.0, 1.0, 2.0, 4.0], [0.5, 1.4, 1.0, 2.0], [0.0, 1.0, 1.0, 2.0]
    own = ReturnUnit().after(Moments.of([unit * r for r in returns]))
    assert (own.mean, own.std) == pytest.approx((2.25 * unit, 1.258306 * unit), rel=1e-6)
    x, then, wanted = (own.of(torch.tensor([[unit * v for v in part]])) for part in (values, old, returns))
    found = value_loss(x, then, wanted, torch.ones(1, 4), 0.2)
    assert float(found.loss_BT.mean()) == pytest.approx(0.648686, abs=2e-6)
    assert found.clipped_BT.tolist() == [[True, False, False, False]]
    assert own.back(x).tolist()[0] == pytest.approx([unit * v for v in values], rel=1e-6)


def test_a_unit_is_set_by_the_first_batch_and_follows_slowly() -> None:
    first = ReturnUnit().after(Moments.of([0.0, 2.0]))
    assert (first.mean, first.std) == pytest.approx((1.0, 2**0.5))
    second = first.after(Moments.of([4.0, 4.0 + 3 * 2**0.5]))
    assert (second.mean, second.std) == pytest.approx((0.9 + 0.4 + 0.15 * 2**0.5, 0.9 * 2**0.5 + 0.3))
    for alike in ([], [5.0], [0.3] * 7):
        assert ReturnUnit().after(Moments.of(alike)) == ReturnUnit() and first.after(Moments.of(alike)) == first
    assert ReturnUnit().after(Moments.of([0.0, 1e-9])).std == 1e-6
    # parts of a batch on several ranks are one batch
    parts = [Moments.of([0.0, 2.0, 7.0]), Moments.of([1.0]), Moments.of([])]
    assert ReturnUnit().after(Moments.joined(parts)).std == pytest.approx(Moments.of([0.0, 2.0, 7.0, 1.0]).std)
