"""The numbers are the hand-computable ones of the algorithms page and of the source article."""

import math

import pytest
import torch

from grpo_cli.algorithm.advantage import group_advantages, inverted, leave_one_out, normalise_then_sum, normalised_apart


def advantages(rewards: list[float], **options: object) -> list[float]:
    return group_advantages(torch.tensor([rewards], dtype=torch.float32), **options)[0].tolist()  # type: ignore[arg-type]


def test_worked_example_with_ddof_1() -> None:
    assert advantages([1, 0, 1, 0]) == pytest.approx([0.866025, -0.866025, 0.866025, -0.866025], abs=1e-6)


def test_worked_example_with_ddof_0() -> None:
    assert advantages([1, 0, 1, 0], ddof=0) == pytest.approx([1, -1, 1, -1], abs=1e-6)


def test_one_right_of_four() -> None:
    assert advantages([1, 0, 0, 0]) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-6)
    assert advantages([1, 0, 0, 0], ddof=0) == pytest.approx([1.732051, -0.57735, -0.57735, -0.57735], abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1e-8, -7.5])
def test_equal_rewards_give_exactly_zero(value: float) -> None:
    assert advantages([value] * 8) == [0.0] * 8


def test_dr_grpo_only_centres() -> None:
    assert advantages([1, 0, 1, 0], scale="none") == [0.5, -0.5, 0.5, -0.5]


def test_batch_scale_is_reinforce_plus_plus_baseline() -> None:
    got = group_advantages(torch.tensor([[1.0, 0, 1, 0], [1, 1, 1, 0]]), scale="batch")
    assert got[0].tolist() == pytest.approx([1, -1, 1, -1])
    assert got[1].tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5])


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    assert leave_one_out(torch.tensor([[1.0, 0, 1, 0]]))[0].tolist() == pytest.approx([2 / 3, -2 / 3, 2 / 3, -2 / 3])


def test_a_sample_without_a_verdict_leaves_the_baseline_and_gets_zero() -> None:
    nan = float("nan")
    got = advantages([1.0, 0.0, nan, 1.0, 0.0])
    assert got[2] == 0.0
    assert [got[i] for i in (0, 1, 3, 4)] == pytest.approx([0.866025, -0.866025, 0.866025, -0.866025], abs=1e-6)


def test_a_group_with_one_verdict_carries_no_signal() -> None:
    nan = float("nan")
    assert advantages([1.0, nan, nan, nan]) == [0.0] * 4
    assert advantages([nan] * 4) == [0.0] * 4


def test_advantages_of_a_group_sum_to_zero() -> None:
    rewards = torch.rand(50, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for scale in ("group", "batch", "none"):
        assert group_advantages(rewards, scale=scale).sum(dim=1).abs().max() < 1e-9  # type: ignore[arg-type]


def test_normalise_then_sum_weighs_scaled_rewards() -> None:
    rewards = torch.tensor([[[1.0, 0.1], [0.0, 0.0], [1.0, 0.0], [0.0, 0.1]]])
    got = normalise_then_sum(rewards, torch.tensor([1.0, 1.0]))[0]
    assert got.tolist() == pytest.approx([1.224745, -1.224745, 0.0, 0.0], abs=1e-5)


def test_a_floor_keeps_the_exact_value_that_an_epsilon_moves() -> None:
    std = torch.tensor([1.0, 0, 1, 0]).std().item()
    assert 0.5 / (std + 1e-4) == pytest.approx(0.865875, abs=1e-6)  # TRL
    assert 0.5 / (std + 1e-6) == pytest.approx(0.866024, abs=1e-6)  # verl
    assert advantages([1, 0, 1, 0])[0] == pytest.approx(0.866025, abs=1e-6)


def test_an_epsilon_alone_would_invent_a_signal_in_equal_float32_rewards() -> None:
    rewards = torch.full((8,), 0.3)
    invented = ((rewards - rewards.sum() / 8) / (rewards.std() + 1e-6)).abs().max().item()
    assert 0.0 < invented < 0.1
    assert advantages([0.3] * 8) == [0.0] * 8


@pytest.mark.parametrize("right", [1, 2, 4, 7])
def test_binary_rewards_follow_the_pass_rate(right: int) -> None:
    p = right / 8
    got = advantages([1.0] * right + [0.0] * (8 - right), ddof=0)
    assert got[0] == pytest.approx(((1 - p) / p) ** 0.5, abs=1e-5)
    assert got[-1] == pytest.approx(-((p / (1 - p)) ** 0.5), abs=1e-5)
    assert sum(map(abs, got)) / 8 == pytest.approx(2 * (p * (1 - p)) ** 0.5, abs=1e-5)


def test_ddof_differs_by_the_root_of_g_over_g_minus_1() -> None:
    for size, percent in ((4, 15), (8, 7)):
        one, zero = (advantages([1.0] + [0.0] * (size - 1), ddof=ddof)[0] for ddof in (1, 0))
        assert round(100 * (zero / one - 1)) == percent


def test_a_sample_without_one_part_leaves_the_means_of_all_parts() -> None:
    lost = [[1.0, 1.0], [0.0, 0.0], [float("nan"), 1.0], [float("nan"), 1.0]]
    rewards = torch.tensor([lost, [[1.0, 1.0]] * 4, [[0.0, 0.0]] * 4])
    found = normalise_then_sum(rewards, torch.tensor([1.0, 1.0]))
    assert not found[1:].any()
    assert found[0, 0] == -found[0, 1] > 0 and not found[0, 2:].any()
    assert float(found[0].sum()) == 0.0


# Parts apart (`split`, HRAS): worked numbers

TASK = torch.tensor([[1.1, 0.1, 1.1, 0.1]], dtype=torch.float64)
CONSISTENT = torch.tensor([[0.9, 0.8, 0.2, 0.6]], dtype=torch.float64)


def in_parts(task: torch.Tensor, consistent: torch.Tensor, beta: float) -> list[float]:
    found: list[float] = normalised_apart(task, consistent[..., None], [1.0, beta])[0].tolist()
    return found


def test_parts_are_scaled_apart_and_weighed() -> None:
    assert in_parts(TASK, 0 * CONSISTENT, 0.5) == pytest.approx([0.866025, -0.866025, 0.866025, -0.866025], abs=1e-6)
    alone = normalised_apart(TASK, CONSISTENT[..., None], [0.0, 1.0])[0].tolist()
    assert alone == pytest.approx([0.88833, 0.565301, -1.372874, -0.080757], abs=1e-6)
    wanted = [1.31019, -0.583375, 0.179588, -0.906404]
    assert in_parts(TASK, CONSISTENT, 0.5) == pytest.approx(wanted, abs=1e-6)
    # a scale of the scores cancels
    assert in_parts(TASK, 10 * CONSISTENT, 0.5) == pytest.approx(wanted, abs=1e-6)
    # summed first, the same scale pays a wrong answer
    assert group_advantages(TASK + 10 * CONSISTENT)[0, 1].item() == pytest.approx(0.418609, abs=1e-6)


def test_a_score_that_is_missing_leaves_its_part_and_the_reward_stays() -> None:
    missing = CONSISTENT.clone()
    missing[0, 1] = math.nan
    assert in_parts(TASK, missing, 0.5) == pytest.approx([1.340604, -0.866025, 0.343989, -0.818568], abs=1e-6)
    lost = TASK.clone()
    lost[0, 1] = math.nan
    found = in_parts(lost, CONSISTENT, 0.5)
    assert found[1] == 0.0
    # nor does it count in the mean of the other part
    kept = normalised_apart(lost[:, [0, 2, 3]], CONSISTENT[:, [0, 2, 3], None], [1.0, 0.5])[0].tolist()
    assert [found[i] for i in (0, 2, 3)] == pytest.approx(kept, abs=1e-12)


def test_a_weight_of_0_is_the_reward_alone_bit_for_bit() -> None:
    torch.manual_seed(0)
    rewards, parts = torch.randn(20, 8, dtype=torch.float64), torch.randn(20, 8, 2, dtype=torch.float64)
    rewards[3, 2] = parts[5, 1, 0] = math.nan
    assert torch.equal(normalised_apart(rewards, parts, [1.0, 0.0, 0.0]), group_advantages(rewards))


def test_right_stays_above_wrong_up_to_a_weight_and_not_beyond() -> None:
    right = [True, False, True, False]
    assert inverted(in_parts(TASK, CONSISTENT, 0.8936), right) == [False, False]
    assert inverted(in_parts(TASK, CONSISTENT, 0.8937), right) == [False, True]
    assert inverted([1.0, 1.0, 0.5], [True, False, None]) == [True]
