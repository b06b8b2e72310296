"""Several optimizer steps on parts of a batch: what they add up to, what is dealt anew, and updates that nothing asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from grpo_cli.train import trainer as seam
from tests.loop.test_batches import trained, warm_model, weights

__all__ = ["warm_model"]


@pytest.fixture
def gradients() -> Iterator[list[torch.Tensor]]:
    """Of each optimizer step, all parameters in one row."""
    seen: list[torch.Tensor] = []

    def note(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        seen.append(
            torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
        )

    handle = register_optimizer_step_pre_hook(note)
    yield seen
    handle.remove()


STILL = {"lr": 1e-30, "max_grad_norm": 1e9, "dead_groups": "keep"}


@pytest.mark.parametrize("loss", ["dapo", "dr_grpo", "cispo", "grpo", "sapo"])
def test_at_a_rate_of_nothing_the_parts_add_up_to_the_whole(
    loss: str, tmp_path: Path, gradients: list[torch.Tensor]
) -> None:
    clip = {"clip": {"cap": 5.0}} if loss == "cispo" else {}
    trained(tmp_path, "whole", loss=loss, **STILL, **clip)
    whole = gradients[-1]
    _, (metrics,) = trained(tmp_path, "parts", loss=loss, mini_batches=4, **STILL, **clip)
    parts = gradients[-4:]
    assert whole.norm() > 0 and not torch.equal(parts[0], parts[1])
    assert (sum(parts[1:], parts[0]) / 4 - whole).norm() < 1e-6 * whole.norm() + 1e-9
    assert metrics.get("clip/total", 0.0) == 0.0 and metrics["updates/empty"] == 0


def test_from_the_second_on_mini_batches_are_off_policy(tmp_path: Path) -> None:
    _, (whole,) = trained(tmp_path, "whole", dead_groups="keep", lr=3e-3)
    _, (parts,) = trained(tmp_path, "parts", mini_batches=4, dead_groups="keep", lr=3e-3)
    assert whole["clip/total"] == 0.0 and parts["clip/total"] > 0.0


def test_each_pass_deals_the_rows_out_anew_and_each_row_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    compute = seam.hooked_loss

    def noted(trainer: Any, inner: Any, model: Any, inputs: dict[str, Any], largest: Any) -> Any:
        seen.append(sorted(inputs["sample"].tolist()))
        return compute(trainer, inner, model, inputs, largest)

    monkeypatch.setattr(seam, "hooked_loss", noted)
    ours, metrics = trained(tmp_path, "run", mini_batches=4, inner_epochs=2, steps=2)
    assert len(seen) == 16 and ours.state.global_step == 16 and len(metrics) == 2
    passes = [seen[at : at + 4] for at in range(0, 16, 4)]
    assert all(sorted(row for batch in one for row in batch) == list(range(16)) for one in passes)
    assert sorted(passes[0]) != sorted(passes[1]) and sorted(passes[1]) != sorted(passes[3])


def test_a_mini_batch_that_teaches_nothing_makes_no_update(
    tmp_path: Path, gradients: list[torch.Tensor]
) -> None:
    method = {"steps": 3, "mini_batches": 2, "std_floor": 10.0}
    ours, metrics = trained(tmp_path, "dead", **method)
    assert [m["updates/empty"] for m in metrics] == [2, 2, 2]
    assert not torch.stack(gradients[-6:]).any() and not ours.optimizer.state  # not even a momentum
    assert [m["lr"] for m in metrics] == sorted((m["lr"] for m in metrics), reverse=True)
    still, _ = trained(tmp_path, "start", steps=1, mini_batches=2, std_floor=10.0)
    assert torch.equal(weights(ours), weights(still))
