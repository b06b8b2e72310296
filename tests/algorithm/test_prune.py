"""PODS and CPPO: which samples stay, and that the loss is the plain loss of those that stayed."""

from __future__ import annotations

import itertools
import math
from statistics import pvariance

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_cli.algorithm.advantage import kept_mask, largest, most_varied
from tests.builders.loss_bench import slow_loss, table_loss, trainer

NAN = math.nan


def test_pods_worked_example() -> None:
    rewards = [0, 0, 0, 0, 0, 1, 1, 0.5]
    assert sorted(rewards[i] for i in most_varied(rewards, 4)) == [0, 0, 1, 1]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5]), min_size=2, max_size=8), st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_no_other_subset_varies_more(rewards: list[float], keep: int) -> None:
    keep = min(keep, len(rewards))
    got = pvariance([rewards[i] for i in most_varied(rewards, keep)])
    best = max(pvariance(subset) for subset in itertools.combinations(rewards, keep))
    assert got == pytest.approx(best)


def test_samples_without_a_reward_are_kept_last() -> None:
    assert most_varied([NAN, 1.0, 0.0, NAN], 2) == [1, 2]
    assert most_varied([NAN, 1.0, NAN, NAN], 2) == [0, 1]
    assert most_varied([NAN, NAN], 2) == [0, 1]


def test_cppo_keeps_the_largest_advantages() -> None:
    assert largest([0.1, -2.0, 0.5, 1.0], 2) == [1, 3]
    assert largest([0.0, 0.0, 0.0], 2) == [0, 1]


def test_every_group_keeps_as_many() -> None:
    values = torch.tensor([[0.0, 0, 0, 0], [1, 0, 1, 0], [NAN, 1, 0, NAN]])
    for by in ("variance", "advantage"):
        assert kept_mask(values.nan_to_num(), 2, by).sum(dim=1).tolist() == [2, 2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "sapo"])
def test_the_loss_is_that_of_the_samples_that_stayed(loss: str) -> None:
    built = trainer(loss=loss, group=4, prune={"keep": 2})
    logps = torch.tensor(
        [[-1.0, -2.0, NAN], [-0.5, NAN, NAN], [-1.5, -1.0, -0.2], [-0.7, -0.3, NAN]], dtype=torch.float64
    )
    old = logps - 0.1 * torch.arange(4, dtype=torch.float64).unsqueeze(1)
    A = [1.0, 0.0, -0.8, 0.0]  # the second and the fourth were pruned
    got = table_loss(
        built,
        logps,
        torch.tensor(A, dtype=torch.float64),
        old_per_token_logps=old.nan_to_num(),
        num_items_in_batch=torch.tensor(5),  # tokens of the two that stayed, as the trainer counts them
    )

    def rows(table: torch.Tensor) -> list[list[float]]:
        return [[x for x in row if not math.isnan(x)] for row in table[[0, 2]].tolist()]

    want = slow_loss(built.loop.recipe.train, rows(logps), rows(old), rows(old), [1.0, -0.8])
    assert got.item() == pytest.approx(want, abs=1e-6)
