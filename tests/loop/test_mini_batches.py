"""Several optimizer steps on parts of a batch: what they add up to, what is dealt anew, and updates that nothing asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from grpo_cli.train import trainer as seam
from tests.loop.test_batches import trained, warm_model, weights

__all__ = ["warm_model"]


@pytest.fixture
def gradients() -> Iterator[list[torch.Tensor]]:
    """Of each optimizer step, all parameters in one row."""
    seen: list[torch.Tensor] = []

    def note(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        seen.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]))

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

    def noted(trainer: Any, inner: Any, model: Any, inputs: dict[str, Any]) -> Any:
        seen.append(sorted(inputs["sample"].tolist()))
        return compute(trainer, inner, model, inputs)

    monkeypatch.setattr(seam, "hooked_loss", noted)
    ours, metrics = trained(tmp_path, "run", mini_batches=4, inner_epochs=2, steps=2)
    assert len(seen) == 16 and ours.state.global_step == 16 and len(metrics) == 2
    passes = [seen[at : at + 4] for at in range(0, 16, 4)]
    assert all(sorted(row for batch in one for row in batch) == list(range(16)) for one in passes)
    assert sorted(passes[0]) != sorted(passes[1]) and sorted(passes[1]) != sorted(passes[3])


def test_a_mini_batch_that_teaches_nothing_makes_no_update(tmp_path: Path, gradients: list[torch.Tensor]) -> None:
    method = {"steps": 3, "mini_batches": 2, "std_floor": 10.0}
    ours, metrics = trained(tmp_path, "dead", **method)
    assert [m["updates/empty"] for m in metrics] == [2, 2, 2]
    assert not torch.stack(gradients[-6:]).any() and not ours.optimizer.state  # not even a momentum
    assert [m["lr"] for m in metrics] == sorted((m["lr"] for m in metrics), reverse=True)
    still, _ = trained(tmp_path, "start", steps=1, mini_batches=2, std_floor=10.0)
    assert torch.equal(weights(ours), weights(still))


def quiet_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """No sample of any further batch is worth anything."""
    put, seen = seam.put_credit, [0]

    def put_nothing(out: dict[str, Any], *args: Any, **named: Any) -> Any:
        put(out, *args, **named)
        seen[0] += 1
        if seen[0] > batches:
            out["advantages"] = torch.zeros_like(out["advantages"])
        return out

    monkeypatch.setattr(seam, "put_credit", put_nothing)


@pytest.fixture
def states() -> Iterator[list[list[torch.Tensor]]]:
    """After each optimizer step, all parameters and what the optimizer keeps of them."""
    seen: list[list[torch.Tensor]] = []

    def note(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        kept = [v for p in parameters for v in optimizer.state[p].values()] if optimizer.state else []
        seen.append([t.detach().clone() for t in (*parameters, *kept)])

    handle = register_optimizer_step_post_hook(note)
    yield seen
    handle.remove()


def are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    "method",
    [
        {},
        {"dead_groups": "keep", "trl": {"weight_decay": 0.1}},
        {"loss": "grpo", "inner_epochs": 2, "dead_groups": "keep"},
        {"scale": "none", "kl": {"beta": 0.1, "estimator": "k1_reward"}},
        {"mini_batches": 2},
    ],
)
def test_a_batch_without_signal_leaves_weights_and_optimizer_bit_for_bit(
    method: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[list[torch.Tensor]]
) -> None:
    quiet_after(monkeypatch, 1)
    ours, metrics = trained(tmp_path, "run", steps=3, **method)
    each = ours.loop.recipe.train.updates
    learned, first, second = states[-3 * each :][each - 1 :: each]
    assert len(learned) > len(list(ours.model.parameters()))  # Adam's moments among them
    assert are_equal(learned, first) and are_equal(learned, second)
    assert [m["updates/empty"] for m in metrics] == [0, each, each]
    assert [m["lr"] for m in metrics] == sorted({m["lr"] for m in metrics}, reverse=True)


@pytest.mark.parametrize(
    "method", [{"kl": {"beta": 0.1, "estimator": "k2"}}, {"kl": {"beta": 0.1}}, {"trl": {"entropy_coef": 0.01}}]
)
def test_what_acts_on_every_row_acts_on_a_batch_without_signal(
    method: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[list[torch.Tensor]]
) -> None:
    quiet_after(monkeypatch, 1)
    _, metrics = trained(tmp_path, "run", steps=2, dead_groups="keep", **method)
    assert not are_equal(states[-2], states[-1])
    assert [m["updates/empty"] for m in metrics] == [0, 0]


def test_cut_answers_that_the_loss_leaves_out_move_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[list[torch.Tensor]]
) -> None:
    def all_cut(out: dict[str, Any], completions: Any, accelerator: Any) -> None:
        out["completion_mask"] = torch.zeros_like(out["completion_mask"])

    monkeypatch.setattr(seam, "leave_out_cut", all_cut)
    ours, metrics = trained(tmp_path, "run", steps=1, mask_truncated=True)
    assert metrics[0]["group/with_signal"] > 0 and metrics[0]["updates/empty"] == 1
    assert len(states[-1]) == len(list(ours.model.parameters()))  # no moment was made
