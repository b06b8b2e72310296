"""Rows dealt out to micro-batches by length, and the rollout's log-probs as old ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_cli.algorithm.loss import trim
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.log_probs import are_exact, padded
from grpo_cli.train.updates import by_length, may_sort
from tests.builders.rollout_models import tiny


def batch(lengths: list[int], first: int) -> dict[str, Any]:
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    ids = torch.arange(first, first + len(lengths))
    return {
        "prompt_ids": ids[:, None].repeat(1, 4),
        "prompt_mask": torch.tensor([[0, 0, 1, 1]] * len(lengths)),
        "completion_ids": ids[:, None] * mask,
        "completion_mask": mask.long(),
        "advantages": ids.float(),
        "num_items_in_batch": torch.tensor(17),
        "images": [f"image {i}" for i in ids.tolist()],
        "ref": None,
    }


def test_each_window_keeps_its_rows_and_each_row_its_own() -> None:
    batches = [batch([2, 9, 1], 1), batch([5, 3, 8], 4), batch([4, 4, 1], 7), batch([9, 2, 6], 10)]
    dealt = by_length(batches, 2)
    assert [b["completion_mask"].sum(dim=1).tolist() for b in dealt] == [[9, 8, 5], [3, 2, 1], [9, 6, 4], [4, 2, 1]]
    rows = [row for b in dealt for row in b["advantages"].int().tolist()]
    assert rows == [2, 6, 4, 5, 1, 3, 10, 12, 7, 8, 11, 9]
    for b in dealt:
        ids = b["advantages"].long()
        assert torch.equal(b["prompt_ids"][:, 0], ids) and torch.equal(b["completion_ids"][:, 0], ids)
        assert b["images"] == [f"image {i}" for i in ids.tolist()]
        assert b["num_items_in_batch"] == 17 and b["ref"] is None


def test_a_trimmed_batch_is_as_wide_as_its_longest_row() -> None:
    trimmed = trim(batch([3, 1, 5], 1))
    assert trimmed["completion_mask"].shape == (3, 5) and trimmed["prompt_mask"].shape == (3, 2)
    assert trimmed["completion_mask"].sum(dim=1).tolist() == [3, 1, 5]


@pytest.mark.parametrize("lengths", [[0, 0], [1, 0]])
def test_a_trimmed_batch_has_two_columns_at_least(lengths: list[int]) -> None:
    assert trim(batch(lengths, 1))["completion_mask"].shape == (2, 2)


@pytest.mark.parametrize(
    ("loss", "extras", "may"),
    [("dapo", [], True), ("grpo", [], True), ("bnpo", [], False), ("grpo", ["entropy_coef"], False)],
)
def test_a_mean_over_the_tokens_of_a_micro_batch_forbids_it(loss: str, extras: list[str], may: bool) -> None:
    assert may_sort(loss, extras) == may


def test_log_probs_stand_for_training_only_in_its_own_numbers() -> None:
    graph: Any = SimpleNamespace(kind=ENGINES["graph"])
    plain: Any = SimpleNamespace(kind=ENGINES["transformers"])
    whole: Any = SimpleNamespace(bf16=False, fp16=False, tf32=None)
    assert are_exact(graph, tiny(), whole)
    assert not are_exact(plain, tiny(), whole)
    for kind in ("bf16", "fp16", "tf32"):
        assert not are_exact(graph, tiny(), SimpleNamespace(**{**vars(whole), kind: True}))
    assert not are_exact(graph, tiny().to(torch.bfloat16), whole)
    assert not are_exact(graph, tiny(attention_dropout=0.1), whole)


def test_log_probs_are_padded_behind_the_end() -> None:
    done = [Completion([4, 5], [-1.0, -2.0], "stop"), Completion([4], [-3.0], "stop")]
    assert padded(done, 3, torch.device("cpu")).tolist() == [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0]]
