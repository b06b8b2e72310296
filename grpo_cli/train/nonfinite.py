"""A loss or gradient that is not finite never reaches the weights: the run stops, or the step is skipped and counted.

TRL shows a NaN loss as 0 and lets the optimizer step on it. Here the loss is looked at before the backward pass and
the gradient before the optimizer; a skipped step throws its gradients away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grpo_cli.errors import TrainingError


@dataclass
class NonFinite:
    """Guards the steps of one run. `stops` is whether the recipe's `stop.on` names `non_finite`."""

    stops: bool
    say: Callable[[str], None]
    skipped: int = 0
    _is_skipping: bool = False

    def loss(self, loss: torch.Tensor, step: int, rows: Callable[[], Sequence[str]]) -> torch.Tensor:
        """The loss to differentiate: itself where it is finite.

        Raises:
            TrainingError: it is not finite, and that stops the run.
        """
        if torch.isfinite(loss):
            return loss
        self._refuse(f"step {step}: the loss is {loss.item()} on rows {', '.join(list(rows())[:4])}")
        return loss.new_zeros((), requires_grad=True)

    def gradient(self, norm: Any, step: int, model: Any) -> Any:
        """The norm of a gradient that may be applied; None after a refused one was thrown away.

        Raises:
            TrainingError: it is not finite, and that stops the run.
        """
        if norm is not None and not math.isfinite(float(norm)):
            self._refuse(f"step {step}: the gradient norm is {float(norm)}")
        if not self._is_skipping:
            return norm
        model.zero_grad(set_to_none=True)  # an optimizer passes over parameters without a gradient
        self._is_skipping = False
        return None

    def _refuse(self, text: str) -> None:
        if self.stops:
            raise TrainingError(
                f"{text}; the weights were not touched",
                hint="lower `train.lr`, or look at the samples of this step",
            )
        if not self._is_skipping:
            self.skipped += 1
            self._is_skipping = True
            self.say(f"{text}; the step is skipped")
