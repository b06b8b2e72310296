"""Episodes of several rows in the update: their loss and gradient are those of the same turns in one row, and one row is untouched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_cli.algorithm.credit import Credit
from grpo_cli.data.rows import Row
from grpo_cli.reward.group import Group
from grpo_cli.rollout.engine import Branch, Completion
from grpo_cli.train.step import StepBatch
from grpo_cli.train.trl_batch import RankSamples, episode_weights, put_credit
from tests.builders.loss_bench import table_loss, trainer

NAN = float("nan")
# three episodes of 6, 4 and 2 tokens; the first in rows of 1, 3 and 2, the second of 2 and 2
WHOLE = [[-0.1, -0.5, -0.9, -0.2, -1.3, -0.7], [-0.3, -0.8, -0.4, -0.6], [-1.1, -0.2]]
PARTS = [(0, 0, 1), (0, 1, 4), (0, 4, 6), (1, 0, 2), (1, 2, 4), (2, 0, 2)]
ADVANTAGES = [0.7, -1.2, 0.4]
APART = 0.3


def padded(rows: list[list[float]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [NAN] * (width - len(row)) for row in rows], dtype=torch.float64)


def gradient(loss: str, rows: list[list[float]], episodes: list[int], **train: Any) -> tuple[float, list[float]]:
    """The loss, and its gradient at each token, with ratios of which some are clipped."""
    logps = padded(rows).requires_grad_()
    mask = ~logps.isnan()
    batch = {"completion_mask": mask.long()}
    A_PG = torch.tensor([ADVANTAGES], dtype=torch.float64)
    credit = Credit(A_PG, torch.ones(1, 3, dtype=torch.bool), torch.ones(1, dtype=torch.bool))
    put_credit(batch, credit, episodes, prunes=False, loss=loss)
    # at the precision of the test: the batch itself holds float32
    weights = episode_weights(mask.long(), torch.tensor(episodes), loss)
    advantages = A_PG[0][torch.tensor(episodes)] * (1.0 if weights is None else weights)
    assert torch.allclose(batch["advantages"].double(), advantages, rtol=1e-6)
    old = torch.where(mask, logps.detach() - APART * (logps.detach() < -0.8) - 0.05, 0.0)
    built = trainer(loss=loss, **train)
    found = table_loss(built, logps, advantages, old_per_token_logps=old)
    found.backward()
    assert logps.grad is not None
    return float(found.detach()), logps.grad[mask].tolist()


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "cispo", "bnpo", "sapo"])
@pytest.mark.parametrize("empty", [0, 2])
def test_turns_parted_into_rows_have_the_loss_and_gradient_of_one_row(loss: str, empty: int) -> None:
    whole, of_whole = gradient(loss, WHOLE, [0, 1, 2])
    rows = [WHOLE[e][a:b] for e, a, b in PARTS] + [[] for _ in range(empty)]
    parted, of_parts = gradient(loss, rows, [e for e, _, _ in PARTS] + [2] * empty)
    assert parted == pytest.approx(whole, abs=1e-12)
    assert of_parts == pytest.approx(of_whole, abs=1e-12)


def test_a_mean_over_rows_would_be_another_gradient() -> None:
    """What the weights are for: without them short rows would count as much as long ones."""
    _, of_whole = gradient("grpo", WHOLE, [0, 1, 2])
    rows = [WHOLE[e][a:b] for e, a, b in PARTS]
    logps = padded(rows).requires_grad_()
    mask = ~logps.isnan()
    advantages = torch.tensor([ADVANTAGES[e] for e, _, _ in PARTS], dtype=torch.float64)
    old = torch.where(mask, logps.detach() - APART * (logps.detach() < -0.8) - 0.05, 0.0)
    table_loss(trainer(loss="grpo"), logps, advantages, old_per_token_logps=old).backward()
    assert logps.grad is not None and logps.grad[mask].tolist() != pytest.approx(of_whole, abs=1e-3)


def a_group(*completions: Completion) -> StepBatch:
    group = Group(0, list(completions), ["t"] * len(completions), [], [0.0] * len(completions), [9, 9])
    return StepBatch(0, [group], [group], None)  # type: ignore[arg-type]


def test_rows_have_prompts_and_masks_of_their_own_and_a_batch_is_filled_up_with_rows_that_count_for_nothing() -> None:
    further = Completion([4, 5, 6], [-0.4, 0.0, -0.6], "stop", branch=Branch([7, 8], ((0, 1), (2, 3)), 0, 2, "history"))
    main = Completion([1, 2], [-0.1, -0.2], "stop", branch=Branch([3], ((0, 2),)), more=(further,))
    plain = Completion([2, 1], [-0.2, -0.1], "stop", branch=Branch([6], ((0, 2),)))
    rows = [Row("a", "p", None, {}, "x:1")]
    found = RankSamples.of(a_group(main, plain), rows, [[0, 1]], 0, lambda n: -(-n // 4) * 4)
    assert found.of_rows == [0, 0, 1, 0]
    prompts, ids, masks, *_ = found.generated(with_logps=False)
    assert [list(one) for one in prompts] == [[3], [7, 8], [6], [3]]
    assert [list(one) for one in ids] == [[1, 2], [4, 5, 6], [2, 1], [1]]
    assert masks == [[1, 1], [1, 0, 1], [1, 1], [0]]


def test_episodes_of_one_row_are_left_as_they_are() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    for loss in ("grpo", "dr_grpo", "dapo"):
        assert episode_weights(mask, torch.tensor([4, 5]), loss) is None
    done = [Completion([1, 2], [-0.1, -0.2], "stop"), Completion([3], [-0.1], "length")]
    found = RankSamples.of(a_group(*done), [Row("a", "p", None, {}, "x:1")], [[0, 1]], 0)
    prompts, _, masks, *_ = found.generated(with_logps=False)
    assert masks is None and prompts[0] is prompts[1] and found.of_rows == [0, 1]
