"""What all preference trainers share: a loss or gradient that is not finite never reaches the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Trainer

from grpo_cli.train.nonfinite import NonFinite, Norm

Inputs = dict[str, Any]


class GuardedTrainer(Trainer):  # type: ignore[misc]
    """Whatever the loss: one that is not finite never reaches the weights. `at` is the step of the run, for messages."""

    guard: NonFinite
    at: int

    def compute_loss(self, model: nn.Module, inputs: Inputs, *more: object, **named: object) -> torch.Tensor:
        """TRL's loss, a scalar, looked at before anybody differentiates it."""
        loss: torch.Tensor = super().compute_loss(model, inputs, *more, **named)
        self.guard.loss(loss.detach(), lambda: ["of this update"])
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Norm = None) -> Norm:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        kept = self.guard.gradient(norm, self.at, model)
        if kept is None and norm is not None:
            # a NaN would stay in the running sum for good
            self._tr_loss = self._tr_loss.new_zeros(())  # type: ignore[has-type]
        return kept
