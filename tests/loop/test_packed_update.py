"""The packed update, without graphs and on a CPU, against the update that a CPU makes: the same weights come of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.train import trainer as seam
from grpo_cli.train.log_probs import TrlLogProbs
from grpo_cli.train.packed import recompute
from grpo_cli.train.packed.score import ScoreNumerics
from grpo_cli.train.packed.source import PackedSource
from tests.loop.test_batches import trained, warm_model, weights

__all__ = ["warm_model"]

METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"loss": "grpo"},
    "dapo-epochs": {"loss": "dapo", "inner_epochs": 2},
    "dr_grpo-all-rows": {"loss": "dr_grpo", "dead_groups": "keep"},
    "bnpo": {"loss": "bnpo"},
    "gspo-token": {"ratio": "sequence_token", "inner_epochs": 2},
    "kl-k3": {"kl": {"beta": 0.1}},
    "kl-k2": {"kl": {"beta": 0.1, "estimator": "k2"}},
    "pruned": {"loss": "dr_grpo", "prune": {"keep": 2}},
    "turns": {"loss": "dapo"},
}


def turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of episodes: every third token is the environment's, and each has an advantage of its own, later ones larger ones."""
    put = seam.put_credit

    def put_turns(out: dict[str, Any], *args: Any, **named: Any) -> None:
        put(out, *args, **named)
        mask_BT = out["completion_mask"]
        width, device = mask_BT.shape[1], mask_BT.device
        own_T = torch.arange(width, device=device) % 3 != 1
        out["tool_mask"] = own_T.to(mask_BT).expand_as(mask_BT).contiguous()
        out["advantages"] = out["advantages"][:, None] * torch.linspace(0.5, 2.0, width, device=device)
        out["num_items_in_batch"] = (mask_BT * out["tool_mask"]).sum()

    monkeypatch.setattr(seam, "put_credit", put_turns)


@pytest.mark.parametrize("method", METHODS)
def test_a_packed_update_leaves_the_same_weights(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "turns":
        turned(monkeypatch)
    usual, measured = trained(tmp_path, "usual", **METHODS[method])
    monkeypatch.setattr(seam, "packed_source", packed_on_cpu)
    ours, again = trained(tmp_path, "packed", **METHODS[method])
    assert usual.packed is None and isinstance(ours.source, PackedSource)
    # Adam's first step moves every weight by the rate in the direction of its gradient
    moved = (weights(ours) - weights(usual)).abs()
    assert float((moved > 1e-5).float().mean()) < 1e-3
    for key in ("loss", "grad_norm", "entropy", "kl"):
        if key in measured[0]:
            assert again[0][key] == pytest.approx(measured[0][key], rel=1e-3, abs=1e-5), key
    assert torch.isfinite(weights(ours)).all()


@pytest.mark.parametrize(
    "said", [{"recompute": "selective"}, {"recompute": "full"}, {"trl": {"gradient_checkpointing": True}}]
)
@pytest.mark.parametrize("packs", [False, True])
def test_layers_that_are_made_again_leave_the_same_weights(
    said: dict[str, Any], packs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    if packs:
        monkeypatch.setattr(seam, "packed_source", packed_on_cpu)
    usual, _ = trained(tmp_path, "usual")
    own = recompute._made_again
    monkeypatch.setattr(recompute, "_made_again", lambda *args: calls.append(1) or own(*args))  # type: ignore[func-returns-value]
    ours, _ = trained(tmp_path, "again", **said)
    assert calls and not ours.args.gradient_checkpointing and (ours.packed is not None) == packs
    moved = (weights(ours) - weights(usual)).abs()  # padded rows go through another pass, which shares prompts
    assert float((moved > 1e-5).float().mean()) < (1e-9 if packs else 1e-3)


def packed_on_cpu(
    loop: Any, model: Any, args: Any, fused: Any, keeping: Any, flat: Any, asked: Any, *, absolute: bool
) -> PackedSource:
    """The packed update as a device makes it, without graphs."""
    numbers = ScoreNumerics(None, args.temperature, keeping=keeping)
    return PackedSource(model, numbers, lambda _: None, TrlLogProbs(absolute), captures=False)
