"""A loss or gradient that is not finite never reaches the weights: the run stops, or the step is skipped and counted.

TRL shows a NaN loss as 0 and lets the optimizer step on it. Here the gradient is looked at before the optimizer;
a skipped step throws its gradients away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from grpo_cli.errors import TrainingError

Norm = Tensor | float | None
"""A gradient's norm as the trainer or its engine gives it; None where there was none."""


@dataclass
class NonFinite:
    """Guards the steps of one run. `stops` is whether the recipe's `stop.on` names `non_finite`."""

    stops: bool
    say: Callable[[str], None]
    skipped: int = 0
    _culprits: str = ""

    def loss(self, loss: torch.Tensor, rows: Callable[[], Sequence[str]]) -> None:
        """Note whose scalar loss is not finite; the gradient it makes is refused below, on all ranks alike."""
        if not torch.isfinite(loss):
            self._culprits = f"the loss is {loss.item()} on rows {', '.join(list(rows())[:4])}"

    def gradient(self, norm: Norm, step: int, model: nn.Module) -> Norm:
        """The norm of a gradient that may be applied; None after a refused one was thrown away.

        Raises:
            TrainingError: it is not finite, and that stops the run.
        """
        if norm is None or math.isfinite(float(norm)):
            return norm
        text = f"step {step}: {self._culprits or f'the gradient norm is {float(norm)}'}"
        self._culprits = ""
        if self.stops:
            raise TrainingError(
                f"{text}; the weights were not touched",
                hint="lower `train.lr`, or look at the samples of this step",
            )
        self.skipped += 1
        self.say(f"{text}; the step is skipped")
        if not hasattr(
            model, "zero_optimization"
        ):  # DeepSpeed has passed over the step and its gradients itself
            model.zero_grad(set_to_none=True)  # an optimizer passes over parameters without a gradient
        return None
