"""Triton kernels of the packed update: copies of keys and states, and the two passes over logits.

How this works. `take` and `sum_copies` copy rows of keys, values or states to where a sequence needs them, and add up the gradients of
the copies. `fold` reads one stretch of the vocabulary's logits into running sums of each row, `turn` makes the logits of a
stretch into their gradient, in place. Each is the torch-facing call of the kernel of its name.
"""

from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from grpo_cli.rollout.fused.launch import block_of, warps_of

# Triton reads these functions' source: annotations other than tl.constexpr would change their meaning.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"


@triton.jit
def take_kernel(x, places, out, x_row, x_head, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """A place's token, `size` numbers in heads of `WIDTH`, to a row of its own."""
    place = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < size
    # heads may lie apart: a slice of a product that holds queries, keys and values
    source = tl.load(places + place) * x_row
    values = tl.load(x + source + at // WIDTH * x_head + at % WIDTH, mask=inside, other=0.0)
    tl.store(out + place * size + at, values, mask=inside)


@triton.jit
def sum_copies_kernel(grad, order, starts, out, grad_row, grad_head, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over the places of one token, in their order and in float32."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < size
    inner = at // WIDTH * grad_head + at % WIDTH
    total = tl.zeros((BLOCK,), tl.float32)
    # copies in their order and not by atomics: a sum of floats in any order would differ from run to run
    first = tl.load(starts + token)
    last = tl.load(starts + token + 1)
    for copy in range(first, last):
        place = tl.load(order + copy)
        total += tl.load(grad + place * grad_row + inner, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * size + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def fold_kernel(
    logits, labels, stats, stride, n, start, columns, cold, BLOCK: tl.constexpr
):  # fmt: skip
    """Folds a row of one stretch of the vocabulary into peak, sum of e^(z - peak), of z e^(z - peak), and the label's z."""
    row = tl.program_id(0).to(tl.int64)
    peak, total, weighted = tl.load(stats + row), tl.load(stats + n + row), tl.load(stats + 2 * n + row)
    line = logits + row * stride
    # one running triple a lane, merged at the end: no reduction across the block in the loop
    peaks = tl.full((BLOCK,), -float("inf"), tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        places = at + tl.arange(0, BLOCK)
        inside = places < columns
        x = tl.load(line + places, mask=inside, other=0.0).to(tl.float32)
        z = tl.where(inside, x * cold, -float("inf"))
        higher = tl.maximum(peaks, z)
        # a lane that has seen nothing yet: -inf - -inf would be NaN
        shrink = tl.where(peaks == -float("inf"), 0.0, tl.exp(peaks - higher))
        e = tl.where(inside, tl.exp(z - higher), 0.0)
        totals = totals * shrink + e
        sums = sums * shrink + tl.where(inside, e * z, 0.0)
        peaks = higher
    higher = tl.maximum(peak, tl.max(peaks, axis=0))
    part = tl.where(peaks == -float("inf"), 0.0, tl.exp(peaks - higher))
    shrink = tl.exp(peak - higher)
    tl.store(stats + row, higher)
    tl.store(stats + n + row, total * shrink + tl.sum(totals * part, axis=0))
    tl.store(stats + 2 * n + row, weighted * shrink + tl.sum(sums * part, axis=0))
    # the label lies in one stretch only; the others leave its number as it is
    place = tl.load(labels + row) - start
    if (place >= 0) & (place < columns):
        tl.store(stats + 3 * n + row, tl.load(line + place).to(tl.float32) * cold)


@triton.jit
def turn_kernel(
    logits, labels, log_z, entropies, of_logps, of_entropies, stride, start, columns, cold,
    LOGPS: tl.constexpr, ENTROPIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Logits to their gradient, in place."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < columns
    at = logits + row * stride + places
    # from the kept logits and log Z: the softmax is never stored
    log_p = tl.load(at, mask=inside, other=0.0).to(tl.float32) * cold - tl.load(log_z + row)
    p = tl.exp(log_p)
    grad = tl.zeros((BLOCK,), tl.float32)
    if LOGPS:
        chosen = (places + start) == tl.load(labels + row)
        grad += tl.load(of_logps + row) * (chosen.to(tl.float32) - p)
    if ENTROPIES:
        grad -= tl.load(of_entropies + row) * p * (log_p + tl.load(entropies + row))
    # z = cold * logits: the chain rule's factor
    tl.store(at, (grad * cold).to(logits.dtype.element_ty), mask=inside)


# Torch-facing calls of the kernels of the packed update.

BLOCK, WARPS = 2048, 8


def take(x: Tensor, places: Tensor) -> Tensor:
    """x[places], whole rows: [tokens, ...] whose last dimension lies together, and [n] int64, to [n, ...]."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = torch.empty((len(places), *x.shape[1:]), dtype=x.dtype, device=x.device)
    size = math.prod(x.shape[1:])
    block = block_of(size)
    take_kernel[(len(places),)](
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
    sum_copies_kernel[(tokens,)](
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
    fold_kernel[(n,)](
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
        grads: of log-probs and of entropies, [N] float32 each; None where nobody needs them.
    """
    n, columns = logits.shape
    of_logps, of_entropies = grads
    turn_kernel[(n, triton.cdiv(columns, BLOCK))](
        logits, labels, log_z, entropies,
        log_z if of_logps is None else of_logps, log_z if of_entropies is None else of_entropies,
        logits.stride(0), start, columns, 1 / temperature,
        LOGPS=of_logps is not None, ENTROPIES=of_entropies is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
