"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): momentum whose matrices are made orthogonal before a step.

torch's own Muon always computes in bfloat16. On a CPU without bfloat16 instructions this takes 25 times as long as
float32, and with them it is no faster for the small matrices of a small model. Here the dtype is chosen by what is
faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from grpo_cli.policy.cpu_bf16 import cpu_bf16_pays

# a, b, c of p(s) = a s + b s^3 + c s^5, which takes singular values to about 1 fastest (Jordan 2024): it does not converge
# to 1 but stays between .7 and 1.2, which is as good for a step
COEFFICIENTS = 3.4445, -4.7750, 2.0315
ROUNDS = 5
LEAST = 1e-7

LARGE = 512
"""Smallest number of rows and columns for which a CPU may use bfloat16, if it measured faster."""


class Muon(torch.optim.Optimizer):
    """Muon for matrices. Updates are scaled to AdamW's RMS, so `lr` means the same for both (arXiv 2502.16982, section
    2.2)."""

    def __init__(
        self,
        matrices: Iterable[Tensor],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype`: the dtype of the orthogonalisation; if None, `orthogonal_dtype` chooses one."""
        self.dtype = dtype
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step; parameters without a gradient stay as they are."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                mean = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                # m <- beta m + (1 - beta) g, so that the scale of a step does not depend on beta
                mean.lerp_(matrix.grad, 1 - momentum)
                ahead = matrix.grad.lerp(mean, momentum)  # Nesterov's
                matrix.mul_(1 - lr * group["weight_decay"])
                step = orthogonal(ahead, self.dtype or orthogonal_dtype(matrix))
                # an orthogonal step has an RMS of 1 / sqrt(max side); AdamW's is about .2
                matrix.add_(step, alpha=-lr * 0.2 * math.sqrt(max(matrix.shape)))
        return loss


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest matrix with all singular values about 1, by Newton-Schulz rounds of degree five.

    With the singular value decomposition U S V^T of the input, the result is U S' V^T, S' between about .7 and 1.2
    (K. Jordan et al., "Muon", 2024).

    Args:
        matrix: [rows, columns], any shape; the result does not depend on its scale.
        dtype: the dtype of all products.

    Returns:
        [rows, columns] in `dtype`.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype, copy=True)
    # the products below are of the shorter side
    x = x.T if is_tall else x
    # divide by the Frobenius norm: singular values of at most 1 keep the polynomial from diverging
    x.div_(x.norm().clamp(min=LEAST))
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def orthogonal_dtype(matrix: Tensor) -> torch.dtype:
    """The dtype for `orthogonal` of this [rows, columns] matrix: bfloat16 on a GPU, and on a CPU for large matrices if
    it measured faster; else float32.
    """
    if matrix.device.type != "cpu" or (min(matrix.shape) >= LARGE and cpu_bf16_pays()):
        return torch.bfloat16
    return torch.float32
