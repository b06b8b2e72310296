"""Scoring with shared prompts gives TRL's numbers and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from trl.trainer.utils import add_fused_lm_head

from grpo_cli.rollout import logprobs as scoring
from grpo_cli.rollout.logprobs import can_share, score_shared
from tests.builders.rollout_models import FAMILIES, tiny

T = 0.8


def batch(prompts: int = 3, group: int = 12, new: int = 9, masked: int | None = None) -> tuple[Tensor, Tensor, int]:
    """Ids and mask of shuffled samples: prompts of differing lengths left-padded, completions right-padded."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.zeros(prompts * group, 6 + new, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row in range(prompts * group):
        asked = torch.randint(1, 60, (3 + row // group,), generator=torch.Generator().manual_seed(row // group))
        length = int(torch.randint(1, new + 1, (1,), generator=draw))
        said = torch.randint(1, 60, (length,), generator=draw)
        ids[row, 6 - len(asked) : 6], ids[row, 6 : 6 + length] = asked, said
        mask[row, 6 - len(asked) : 6 + length] = 1
    if masked is not None:
        mask[masked, 6:] = 0
    order = torch.randperm(len(ids), generator=draw)
    return ids[order], mask[order], new


def by_trl(model: Any, ids: Tensor, mask: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    add_fused_lm_head(base, temperature=T, outputs=("log_probs", "entropy"))
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    out = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return out.log_probs[:, -keep:], out.entropy[:, -keep:]


def gradients(model: Any, logps: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, logps.numel()).view_as(logps)
    model.zero_grad()
    (logps.exp() * weights).sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def agree(model: Any, ids: Tensor, mask: Tensor, keep: int) -> None:
    mine = score_shared(model, ids, mask, keep, T)
    own = gradients(model, mine.logps_BT)
    logps, entropies = by_trl(model, ids, mask, keep)
    torch.testing.assert_close(mine.logps_BT, logps, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(mine.entropies_BT, entropies, atol=2e-5, rtol=1e-5)
    theirs = gradients(model, logps)
    assert len(own) == len(theirs) > 0
    for a, b in zip(own, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5 * max(1.0, float(b.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"Granite", "Gemma2"}))
def test_scores_and_gradients_equal_trls(family: str) -> None:
    model = tiny(family)
    assert can_share(model)
    agree(model, *batch())


def test_a_row_without_counted_tokens_scores_zero_and_changes_nothing() -> None:
    agree(tiny(), *batch(masked=4))


def test_one_row_is_scored() -> None:
    agree(tiny(), *batch(prompts=1, group=1))


def test_gradients_of_an_adapter_equal_trls() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny(), LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    assert can_share(model)
    agree(model, *batch())


def test_logits_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "HEAD_NUMBERS", 67 * 20)
    agree(tiny(), *batch())


def test_dropout_and_scaled_logits_are_left_to_trl() -> None:
    from peft import LoraConfig, get_peft_model

    assert not can_share(get_peft_model(tiny(), LoraConfig(r=2, lora_dropout=0.1, target_modules="all-linear")))
    assert not can_share(tiny(attention_dropout=0.1))
    assert not can_share(tiny("Granite"))
