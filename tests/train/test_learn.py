"""What the updates of a batch measured, put together: over optimizer steps, micro-batches, tokens and rows that count."""

from __future__ import annotations

import pytest
import torch

from grpo_cli.train.updates import UpdateMetrics


def micro(updates: UpdateMetrics, *sizes: tuple[int, int, int]) -> None:
    for size in sizes:
        updates.micro_batch(torch.tensor(size))


def test_what_is_measured_in_the_first_update_only_is_not_lost() -> None:
    updates = UpdateMetrics()
    micro(updates, (10, 4, 4))
    updates.optimizer_step({"loss": 1.0}, {"kl": [0.25], "entropy": [2.0]})
    micro(updates, (10, 4, 4))
    updates.optimizer_step({"loss": 3.0}, {"entropy": [4.0]})
    found = updates.end_of_batch(skipped_steps=0.0).metrics
    assert found == {"loss": 2.0, "kl": 0.25, "entropy": 3.0, "skipped_steps": 0.0}


def test_a_share_of_answers_leaves_out_those_that_do_not_count() -> None:
    updates = UpdateMetrics(by_row=True)
    # TRL counts 2 of 4 and 1 of 4 rows; one row of the first and three of the second micro-batch are masked
    micro(updates, (30, 4, 3), (5, 4, 1))
    updates.optimizer_step({"loss": 0.0}, {"clip_ratio/region_mean": [0.5, 0.25]})
    assert updates.end_of_batch().metrics["clip/total"] == pytest.approx(3 / 4)


def test_a_share_of_tokens_goes_by_tokens() -> None:
    updates = UpdateMetrics()
    micro(updates, (30, 4, 3), (10, 4, 1))
    updates.optimizer_step({"loss": 0.0}, {"clip_ratio/region_mean": [0.5, 0.1]})
    assert updates.end_of_batch().metrics["clip/total"] == pytest.approx(0.4)


def test_an_update_in_which_no_token_counts_is_in_no_mean() -> None:
    updates = UpdateMetrics()
    micro(updates, (30, 4, 3), (10, 4, 1))
    updates.optimizer_step({"loss": 1.0}, {"entropy": [2.0, 2.0]})
    micro(updates, (0, 4, 0), (0, 4, 0))
    updates.optimizer_step({"loss": 0.0}, {"entropy": [0.0, 0.0], "kl": [0.5]})
    assert updates.end_of_batch().metrics == {"loss": 0.5, "entropy": 2.0, "kl": 0.5}


def test_what_other_ranks_measured_is_put_beside_this_ones() -> None:
    mine, theirs = UpdateMetrics(), UpdateMetrics()
    micro(mine, (30, 4, 4), (10, 4, 4))
    micro(theirs, (0, 1, 0), (60, 4, 4))
    tables: list[torch.Tensor] = []

    def kept(table: torch.Tensor) -> torch.Tensor:
        tables.append(table)
        return table

    # a rank all of whose rows are dead goes through one of them, which no token counts in; `kl` is of all ranks already
    theirs.optimizer_step({"loss": 1.0}, {"entropy": [9.0, 1.0], "kl": [0.5]}, kept)
    mine.optimizer_step({"loss": 1.0}, {"entropy": [2.0, 4.0], "kl": [0.5]}, lambda own: torch.cat([own, tables[0]]))
    assert [tuple(table.shape) for table in tables] == [(1, 4, 2)]
    assert mine.end_of_batch().metrics == {"loss": 1.0, "entropy": (30 * 2 + 10 * 4 + 60 * 1) / 100, "kl": 0.5}
