"""Torch-facing calls of the kernels of the packed update."""

from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from grpo_cli.rollout.fused.launch import block_of, warps_of
from grpo_cli.train.packed import kernels

BLOCK, WARPS = 2048, 8


def take(x: Tensor, places: Tensor) -> Tensor:
    """x[places], whole rows: [tokens, ...] whose last dimension lies together, and [n] int64, to [n, ...]."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = torch.empty((len(places), *x.shape[1:]), dtype=x.dtype, device=x.device)
    size = math.prod(x.shape[1:])
    block = block_of(size)
    kernels.take_kernel[(len(places),)](
        x, places, out, x.stride(0), x.stride(-2) if x.dim() == 3 else size, size,
        WIDTH=x.shape[-1], BLOCK=block, num_warps=warps_of(block),
    )  # fmt: skip
    return out


def sum_copies(grad: Tensor, order: Tensor, starts: Tensor) -> Tensor:
    """The sum of each token's copies, in float32 and in the order of the list.

    Args:
        grad: [places, ...], rows of one or two dimensions.
        order: [places] int64, places by token.
        starts: [tokens + 1] int64, where each token's begin in `order`.

    Returns:
        [tokens, ...] in the type of `grad`.
    """
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    tokens = len(starts) - 1
    out = torch.empty((tokens, *grad.shape[1:]), dtype=grad.dtype, device=grad.device)
    size = math.prod(grad.shape[1:])
    block = block_of(size)
    kernels.sum_copies_kernel[(tokens,)](
        grad, order, starts, out, grad.stride(0), grad.stride(-2) if grad.dim() == 3 else size, size,
        WIDTH=grad.shape[-1], BLOCK=block, num_warps=warps_of(block),
    )  # fmt: skip
    return out


def fold(logits: Tensor, labels: Tensor, start: int, stats: Tensor, temperature: float) -> None:
    """One stretch of the vocabulary into the running numbers of each row, in place.

    Args:
        logits: [N, columns] of the words from `start` on.
        labels: [N] int64, words of the whole vocabulary.
        stats: [4, N] float32: peak, sum of e^(z - peak), sum of z e^(z - peak), the label's z; z = logits / temperature.
    """
    n, columns = logits.shape
    kernels.fold_kernel[(n,)](
        logits, labels, stats, logits.stride(0), n, start, columns, 1 / temperature, BLOCK=BLOCK, num_warps=WARPS
    )  # fmt: skip


def turn(
    logits: Tensor,
    labels: Tensor,
    start: int,
    log_z: Tensor,
    entropies: Tensor,
    grads: tuple[Tensor | None, Tensor | None],
    temperature: float,
) -> None:
    """One stretch of logits [N, columns] into its gradient, in place.

    With p the softmax and H its entropy: d log p(label) / dz = [label] - p, and dH / dz = -p (log p + H).

    Args:
        labels: [N] int64.
        log_z: [N] float32, log of the sum over the whole vocabulary.
        entropies: [N] float32.
        grads: of log-probs and of entropies, [N] float32 each; None where nobody asks.
    """
    n, columns = logits.shape
    of_logps, of_entropies = grads
    kernels.turn_kernel[(n, triton.cdiv(columns, BLOCK))](
        logits, labels, log_z, entropies,
        log_z if of_logps is None else of_logps, log_z if of_entropies is None else of_entropies,
        logits.stride(0), start, columns, 1 / temperature,
        LOGPS=of_logps is not None, ENTROPIES=of_entropies is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
