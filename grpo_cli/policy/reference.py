"""The model the run started from, for KL terms and the KL monitor.

Kept as a copy of the trained parameters alone (all of them, or a LoRA adapter's few) and swapped in for a forward
pass: no second model, and an adapter that was warmed up is compared with its warmed-up self.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from grpo_cli.algorithm.loss import kl_per_token
from grpo_cli.policy.modes import evaluating


class Reference:
    """A frozen copy of a model's trainable parameters; `offload` keeps it in main memory between uses."""

    def __init__(self, model: Any, *, offload: bool = False) -> None:
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.frozen = [p.detach().to("cpu" if offload else p.device, copy=True) for p in self.trained]

    @property
    def megabytes(self) -> float:
        """What the copy takes."""
        return sum(float(f.numel() * f.element_size()) for f in self.frozen) / 2**20

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The model is the reference inside; afterwards it has its own tensors back, at the same addresses."""
        own = [p.data for p in self.trained]
        try:
            for p, f in zip(self.trained, self.frozen, strict=True):
                p.data = f.to(p.device, p.dtype)
            yield
        finally:
            for p, data in zip(self.trained, own, strict=True):
                p.data = data


@torch.no_grad()
def score(trainer: Any, out: dict[str, Any], rows: int | None = None) -> Tensor:
    """(B, T) log-probs of the generated tokens under the weights the model has now; `rows` takes the first ones."""
    keep = slice(rows)
    ids = torch.cat([out["prompt_ids"][keep], out["completion_ids"][keep]], dim=1)
    attention = torch.cat([out["prompt_mask"][keep], out["completion_mask"][keep]], dim=1)
    with evaluating(trainer.whole), trainer.accelerator.autocast():  # no dropout, and no chance used up
        logps: Tensor = trainer._get_per_token_logps_and_entropies(
            trainer.whole,
            ids,
            attention,
            out["completion_ids"].shape[1],
            batch_size=trainer.args.per_device_train_batch_size,
        )[0]
    return logps


def answer_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,) k1 of whole answers: the sum of log-ratios over their tokens."""
    return (kl_per_token(logps_BT, ref_BT, "k1_reward") * mask_BT).sum(dim=1)


def token_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> float:
    """k3 averaged over all tokens: what is shown as `kl`."""
    total = (kl_per_token(logps_BT, ref_BT, "k3") * mask_BT).sum() / mask_BT.sum().clamp(min=1)
    return float(total)
