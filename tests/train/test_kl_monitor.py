"""The KL monitor against an analytic KL on a tiny model whose weights are moved by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_cli.recipe.sections.course import KlMonitor
from grpo_cli.train.kl import KlWatch, Reference
from tests.builders.loss_bench import trainer


def batch() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "prompt_ids": torch.randint(5, 200, (4, 3), generator=draw),
        "prompt_mask": torch.ones(4, 3, dtype=torch.long),
        "completion_ids": torch.randint(5, 200, (4, 6), generator=draw),
        "completion_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 6, [1] * 2 + [0] * 4]),
    }


def logps(built: Any, out: dict[str, torch.Tensor]) -> torch.Tensor:
    ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
    mask = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
    logits = built.model(input_ids=ids, attention_mask=mask).logits / built.temperature
    return torch.log_softmax(logits[:, 2:-1].double(), -1).gather(2, ids[:, 3:].unsqueeze(2)).squeeze(2)


def moved(model: Any, by: float) -> None:
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p += by * torch.randn(p.shape, generator=draw)


def test_kl_is_k3_over_the_tokens_of_the_samples_it_takes() -> None:
    built, out = trainer(), batch()
    watch = KlWatch(KlMonitor(rows=3), built.model)
    before = logps(built, out)
    moved(built.model, 0.05)
    apart = (logps(built, out) - before)[:3]
    mask = out["completion_mask"][:3]
    want = (((-apart).exp() + apart - 1) * mask).sum() / mask.sum()
    found = watch.measure(built, out)
    assert found["kl"] == pytest.approx(want.item(), rel=1e-3)
    assert found["kl"] > 1e-4
    assert found["kl/samples"] == 3
    moved(built.model, -0.05)


def test_an_unmoved_model_has_no_kl() -> None:
    built = trainer()
    assert KlWatch(KlMonitor(), built.model).measure(built, batch())["kl"] == 0.0


def test_dropout_has_no_part_in_the_kl_and_no_chance_is_used_up() -> None:
    built = trainer()
    layers = [module for module in built.model.modules() if hasattr(module, "attention_dropout")]
    before = torch.get_rng_state()
    try:
        for layer in layers:
            layer.attention_dropout = 0.5
        assert KlWatch(KlMonitor(), built.model).measure(built, batch())["kl"] == 0.0
    finally:
        for layer in layers:
            layer.attention_dropout = 0.0
    assert layers
    assert torch.equal(before, torch.get_rng_state())
    assert built.model.training


def test_the_model_has_its_own_weights_back_at_the_same_addresses() -> None:
    model = trainer().model
    reference = Reference(model)
    moved(model, 0.01)
    own, addresses = [p.clone() for p in model.parameters()], [p.data_ptr() for p in model.parameters()]
    with pytest.raises(RuntimeError, match="inside"), reference.swapped_in():
        assert not torch.equal(own[0], next(model.parameters()))
        raise RuntimeError("inside")
    assert all(torch.equal(a, b) for a, b in zip(own, model.parameters(), strict=True))
    assert addresses == [p.data_ptr() for p in model.parameters()]
    moved(model, -0.01)


def test_it_measures_every_nth_step_and_not_beside_a_penalty() -> None:
    watch = KlWatch(KlMonitor(every=10), trainer().model)
    assert [g for g in range(1, 31) if watch.is_due(g)] == [10, 20, 30]
    assert trainer(algorithm="grpo").kl_watch is None
    assert trainer().kl_watch is not None
