"""Environment tokens: rows whose loss mask has holes, advantages of (B, T), and that nothing multiplies masks elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from grpo_cli.algorithm.loss import drop_dead_rows, loss_mask, spread, trim
from tests.architecture.source import ROOT
from tests.builders.loss_bench import table_loss, trainer

NAN = float("nan")
A_BT = torch.tensor([[0.4705, 0.0, 0.39, 0.2], [1.0, 1.0, -1.0, 0.0]], dtype=torch.float64)
TOOL_BT = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])
LOGPS_BT = torch.tensor([[-1.0, -9.0, -0.5, -0.2], [-0.7, -1.1, -0.3, NAN]], dtype=torch.float64)
WANT_BT = -A_BT * TOOL_BT / 6


def inputs(**more: Any) -> dict[str, torch.Tensor]:
    return {"tool_mask": TOOL_BT, "num_items_in_batch": torch.tensor(6), **more}


@pytest.mark.parametrize("loss", ["dapo", "grpo", "bnpo"])
def test_the_loss_and_its_gradient_stand_on_the_tokens_of_the_model(loss: str) -> None:
    logps = LOGPS_BT.clone().requires_grad_()
    got = table_loss(trainer(loss=loss, dead_groups="drop"), logps, A_BT, **inputs())
    assert float(got.detach()) == pytest.approx(-2.0605 / 6)  # both rows have three tokens of the model's
    got.backward()
    assert logps.grad is not None
    assert torch.allclose(logps.grad.nan_to_num(), WANT_BT, atol=1e-9)


@pytest.mark.parametrize("loss", ["dapo", "grpo", "bnpo", "dr_grpo", "sapo"])
def test_a_dead_row_may_be_kept_or_dropped(loss: str) -> None:
    dead = torch.tensor([[-0.1, -0.2, -0.3, NAN]], dtype=torch.float64)
    logps = torch.cat([LOGPS_BT, dead])
    A = torch.cat([A_BT, torch.zeros(1, 4, dtype=torch.float64)])
    holes = torch.cat([TOOL_BT, torch.tensor([[1, 0, 1, 1]])])
    more = {"tool_mask": holes, "num_items_in_batch": torch.tensor(8)}
    found = []
    for dead_groups in ("keep", "drop"):
        free = logps.clone().requires_grad_()
        built = trainer(loss=loss, dead_groups=dead_groups)
        loss_ = table_loss(built, free, A, old_per_token_logps=(logps - 0.05).nan_to_num(), **more)
        loss_.backward()
        assert free.grad is not None
        found.append((float(loss_.detach()), free.grad.nan_to_num()))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-12) and found[0][1][0, 1] == 0


def test_what_is_kept_of_a_mean_over_tokens_counts_the_model_s_own() -> None:
    rows = {
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1]]),
        "advantages": torch.tensor([[1.0, 0, 0, 0], [0.0, 0, 0, 0]]),
    }
    assert drop_dead_rows(rows, "bnpo")[1] == pytest.approx(2 / 4)


def test_advantages_of_tokens_are_cut_with_the_padding() -> None:
    rows = {
        "prompt_ids": torch.ones(2, 3, dtype=torch.long),
        "prompt_mask": torch.tensor([[0, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.ones(2, 6, dtype=torch.long),
        "completion_mask": torch.tensor([[1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]),
        "tool_mask": torch.ones(2, 6, dtype=torch.long),
        "advantages": torch.ones(2, 6),
    }
    cut = trim(rows)
    assert {name: cut[name].shape[1] for name in ("tool_mask", "advantages", "completion_ids")} == {
        "tool_mask": 4,
        "advantages": 4,
        "completion_ids": 4,
    }


def test_without_an_environment_the_mask_is_the_completion_s_own() -> None:
    mask = torch.ones(2, 3)
    assert loss_mask({"completion_mask": mask}) is mask


def test_spans_become_tokens() -> None:
    assert spread([[(0, 2, 1.5), (4, 5, -1.0)], []], 6).tolist() == [[1.5, 1.5, 0, 0, -1, 0], [0.0] * 6]


ATTENDED = {
    "algorithm/loss.py": "the product itself, and the widest row of a micro-batch",
    "train/critic/critic.py": "what is attended to",
    "train/cuts.py": "what is attended to",
    "train/kl.py": "which tokens TRL took out of the masks",
    "train/log_probs.py": "what is attended to, and a batch as TRL pads it",
    "train/packed/source.py": "what is attended to",
    "train/trl_batch.py": "which rows are left out of the loss",
    "train/updates.py": "what a row costs, environment tokens too",
}
"""Where `completion_mask` is read: places that ask for what stands in a row, not for what counts in its loss."""


def test_no_other_place_makes_a_mask_of_what_counts() -> None:
    reads, products = set(), []
    for path in sorted((ROOT / "grpo_cli").rglob("*.py")):
        name, text = str(path.relative_to(ROOT / "grpo_cli")), path.read_text()
        code = re.sub(r'"""[\s\S]*?"""', "", text)
        if re.search(r'\["completion_mask"\]|"completion_mask":', code):
            reads.add(name)
        products += [
            f"{name}: {line.strip()}" for line in code.splitlines() if re.search(r"tool_mask.*\*|\*.*tool_mask", line)
        ]
    assert products == ['algorithm/loss.py: return mask * batch["tool_mask"] if "tool_mask" in batch else mask']
    assert reads == set(ATTENDED)
