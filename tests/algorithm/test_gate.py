"""The outcome gate by hand: R is T where T does not spread, and nothing else changes."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_cli.algorithm.advantage import gate, group_advantages, told_apart

NAN = math.nan
LENGTHS = [8, 16, 24, 32]
S = torch.tensor([0.3 * (1 - n / 40) for n in LENGTHS], dtype=torch.float64)


def T(*outcomes: float) -> torch.Tensor:
    return torch.tensor([outcomes], dtype=torch.float64)


def paid(outcomes: torch.Tensor, beside: torch.Tensor = S) -> list[float]:
    return gate(outcomes, outcomes + beside)[0][0].tolist()


def advantages(outcomes: torch.Tensor, beside: torch.Tensor = S) -> list[float]:
    return group_advantages(gate(outcomes, outcomes + beside)[0])[0].tolist()


@pytest.mark.parametrize("outcome", [0.0, 1.0, 0.3, -2.5])
def test_a_group_of_equal_outcomes_is_paid_the_outcome_alone(outcome: float) -> None:
    assert paid(T(*[outcome] * 4)) == [outcome] * 4
    assert advantages(T(*[outcome] * 4)) == [0.0] * 4


def test_a_mixed_group_keeps_what_is_paid_beside_the_outcome() -> None:
    assert advantages(T(0, 0, 0, 1)) == pytest.approx([-0.361403, -0.496929, -0.632456, 1.490788], abs=2e-6)


def test_without_the_gate_shaping_has_full_size_at_any_weight() -> None:
    for weight in (0.001, 0.1, 0.3, 1.0):
        shaped = torch.tensor([[weight * (1 - n / 40) for n in LENGTHS]], dtype=torch.float64)
        own = group_advantages(shaped)[0].tolist()
        assert own == pytest.approx([1.161895, 0.387298, -0.387298, -1.161895], abs=1e-6)
        assert group_advantages(gate(torch.zeros_like(shaped), shaped)[0])[0].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("weight", "mixed"),
    [
        (0.001, [-0.5, -0.5, -0.5, 1.5]),
        (0.1, [-0.46, -0.5, -0.54, 1.5]),
        (0.3, [-0.36, -0.5, -0.63, 1.49]),
        (1.0, [0.15, -0.44, -1.02, 1.32]),
    ],
)
def test_in_a_mixed_group_the_weight_is_a_weight(weight: float, mixed: list[float]) -> None:
    """The table of docs/shaping.md."""
    assert advantages(T(0, 0, 0, 1), weight / 0.3 * S) == pytest.approx(mixed, abs=6e-3)


def test_a_soft_overlong_penalty_on_four_wrong_answers_is_gated() -> None:
    penalties = T(0, 0, -0.5, -1.0)
    assert group_advantages(penalties)[0].tolist() == pytest.approx(
        [0.783349, 0.783349, -0.261116, -1.305582], abs=1e-6
    )
    assert advantages(T(0, 0, 0, 0), penalties[0]) == [0.0] * 4


def test_a_sample_without_a_verdict_stays_without_a_reward() -> None:
    assert paid(T(0, 0, NAN, 1)) == pytest.approx([0.24, 0.18, NAN, 1.06], nan_ok=True)
    assert paid(T(0, 0, NAN, 0)) == pytest.approx([0, 0, NAN, 0], nan_ok=True)
    assert advantages(T(0, 0, NAN, 0)) == [0.0] * 4
    assert advantages(T(0, NAN, NAN, 1)) == pytest.approx([-0.707107, 0, 0, 0.707107], abs=1e-6)


def test_outcomes_count_where_the_reward_is_known() -> None:
    # the outcome of the last is known, its reward is not: of the others no two differ
    rewards = torch.tensor([[0.1, 0.2, 0.3, NAN]], dtype=torch.float64)
    behind, alive = gate(T(0, 0, 0, 1), rewards)
    assert not alive.item()
    assert behind[0].tolist() == pytest.approx([0, 0, 0, NAN], nan_ok=True)


def test_a_single_known_outcome_is_compared_with_nothing() -> None:
    assert paid(T(1, NAN, NAN, NAN)) == pytest.approx([1, NAN, NAN, NAN], nan_ok=True)


def test_partial_credit_is_a_spread() -> None:
    outcomes = T(0, 0.1, 0, 0)
    assert paid(outcomes) == (outcomes + S)[0].tolist()


def test_a_spread_of_the_last_bits_is_none() -> None:
    outcomes = T(0.3, 0.1 + 0.2, 0.3, 0.3)
    assert len(set(outcomes[0].tolist())) > 1
    assert advantages(outcomes) == [0.0] * 4
    assert not told_apart(outcomes).item()


def test_the_floor_is_the_recipes() -> None:
    outcomes = T(0, 0, 0, 0.1)
    assert gate(outcomes, outcomes + S, floor=0.2)[1].tolist() == [False]
    assert gate(outcomes, outcomes + S, floor=0.04)[1].tolist() == [True]


def test_large_units_do_not_hide_a_spread() -> None:
    outcomes = T(2e7, 2e7 + 1, 2e7, 2e7)
    assert gate(outcomes, outcomes + S)[1].tolist() == [True]


def test_where_nothing_is_paid_beside_the_outcome_the_gate_changes_no_bit() -> None:
    torch.manual_seed(0)
    rewards = torch.randint(0, 3, (64, 8)).double() * 0.37
    rewards[torch.rand(64, 8) < 0.1] = NAN
    behind, _ = gate(rewards, rewards)
    assert torch.equal(behind.nan_to_num(-1.0), rewards.nan_to_num(-1.0))
