"""Log-probs and entropies of chosen tokens from hidden states, in float32 without float32 logits.

The vocabulary goes by in stretches, each folded into a running logsumexp. Where the logits of a micro-batch fit `KEPT`
bytes they are made once, and turned into their gradient in place; else each stretch is made again in the backward
pass. The gradient of the head is written once, without a float32 copy of it. Nothing waits for the device, and sizes do
not depend on values: a CUDA graph holds both passes. N tokens, V words, H the width of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from grpo_cli.policy.modes import numerics
from grpo_cli.rollout.graph.caches import free_bytes
from grpo_cli.train.packed.attention import packed_into, shared
from grpo_cli.train.packed.layout import Packed
from grpo_cli.train.packed.recompute import Keeping

STRETCH = 1 << 27
"""Logits made at once."""
KEPT = 3 << 30
"""Most bytes of logits that are kept for the backward pass. Recomputing them would add a fourth to the head's
products."""
KEPT_SHARE = 4
"""More than `KEPT` is kept where it is at most this part of the memory that is free."""


def selected_logps(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    labels_N: Tensor,
    counts_N: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    in_float32: bool = False,
    width: int | None = None,
    spares: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs of labels and entropies of the whole distribution, both with gradients.

    The product runs in the type of an autocast, as that of `nn.Linear`.

    Args:
        hidden_NH: states, one a target.
        weight_VH: of the head.
        labels_N: int64.
        counts_N: bool; False is padding.
        bias_V: of the head.
        temperature: what logits are divided by.
        in_float32: TRL's `cast_lm_head_to_fp32`.
        width: words of a stretch; as memory allows where None.
        spares: logits over `KEPT` are made again, whatever is free.

    Returns:
        [N] each, float32 (float64 of a float64 model), 0 where `counts_N` is False.
    """
    # TRL's fp32 head promotes; else the head runs as `nn.Linear` would under this autocast
    device = hidden_NH.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_NH.dtype
    if in_float32:
        kind = torch.promote_types(hidden_NH.dtype, torch.float32)
    if width is None:
        size, width = len(hidden_NH) * len(weight_VH) * kind.itemsize, len(weight_VH)
        if size > KEPT and (spares or not _is_room(size, hidden_NH.device)):
            # as many words as fit `STRETCH`, in equal parts, a multiple of 128 for the matrix units
            parts = -(-width // max(128, STRETCH // max(1, len(hidden_NH)) // 128 * 128))
            width = min(width, -(-width // parts // 128) * 128)
    found = _Selected.apply(hidden_NH, weight_VH, bias_V, labels_N, temperature, kind, width)  # type: ignore[no-untyped-call]
    # `where`, not a product: what sits in a row that does not count may be anything, and 0 * inf is NaN
    zero = found[0].new_zeros(())
    return torch.where(counts_N, found[0], zero), torch.where(counts_N, found[1], zero)


def _is_room(size: int, device: torch.device) -> bool:
    # a graph holds its logits for good, and the host may not ask for memory while it is captured
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    return size * KEPT_SHARE <= (free_bytes(device) or 0)


class _Selected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        temperature: float,
        kind: torch.dtype,
        width: int,
    ) -> Any:
        ctx.set_materialize_grads(False)  # entropies are mostly only logged
        # with z the logits, m their maximum and s = sum e^(z - m): log p(label) = z_label - m - log s, and the entropy
        # is H = m + log s - sum z e^(z - m) / s. All three sums are running ones, over stretches of the vocabulary
        states, device, n = hidden.to(kind), hidden.device, len(hidden)
        exact = torch.float64 if kind == torch.float64 else torch.float32
        stats = torch.zeros((4, n), device=device, dtype=exact)  # max, sum, sum of z e^z, z of the label
        stats[0].fill_(-torch.inf)
        logits = torch.empty((n, width), device=device, dtype=kind)
        for start in range(0, len(weight), width):
            _fold(_product(states, weight, bias, start, logits), labels, start, stats, temperature)
        peak, total, weighted, chosen = stats
        log_z = peak + total.log()
        entropies = log_z - weighted / total
        ctx.save_for_backward(hidden, weight, bias, labels, log_z, entropies)
        # used up by the backward pass, which is what saved tensors may not be
        ctx.logits = logits if width >= len(weight) and any(ctx.needs_input_grad) else None
        ctx.settings = temperature, kind, width
        return chosen - log_z, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        hidden, weight, bias, labels, log_z, entropies = ctx.saved_tensors
        temperature, kind, width = ctx.settings
        states, exact = hidden.to(kind), log_z.dtype
        of_logps, of_entropies = (None if g is None else g.to(exact).contiguous() for g in grads)
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        whole = width >= len(weight)
        into_hidden = torch.zeros(hidden.shape, device=hidden.device, dtype=kind if whole else exact)
        into_weight = torch.empty_like(weight) if wants_weight else None
        into_bias = torch.empty_like(bias) if wants_bias else None
        kept, ctx.logits = ctx.logits, None
        buffer = torch.empty((len(hidden), width), device=hidden.device, dtype=kind) if kept is None else kept
        for start in range(0, len(weight), width):
            stop = min(start + width, len(weight))
            logits = _product(states, weight, bias, start, buffer) if kept is None else kept
            _turn(logits, labels, start, log_z, entropies, (of_logps, of_entropies), temperature)
            if wants_hidden:
                _add_product(into_hidden, logits, weight[start:stop].to(kind))
            if into_weight is not None:
                _write_product(into_weight[start:stop], logits.t(), states)
            if into_bias is not None:
                into_bias[start:stop] = logits.sum(dim=0, dtype=exact)
        grad_hidden = into_hidden.to(hidden.dtype) if wants_hidden else None
        return grad_hidden, into_weight, into_bias, None, None, None, None


def _product(states: Tensor, weight: Tensor, bias: Tensor | None, start: int, buffer: Tensor) -> Tensor:
    """(N, words) logits of one stretch of the vocabulary, in `buffer`."""
    words = min(buffer.shape[1], len(weight) - start)
    logits = buffer[:, :words]  # rows of the buffer's own length: a narrower last stretch stays aligned
    with torch.autocast(states.device.type, enabled=False):
        torch.mm(states, weight[start : start + words].to(states.dtype).t(), out=logits)
    if bias is not None:
        logits += bias[start : start + words].to(states.dtype)
    return logits


def _add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    """into += a b, summed in `into`'s type: products rounded to bfloat16 first would drift."""
    if into.dtype == a.dtype:
        into.addmm_(a, b)
    elif a.is_cuda:
        torch.addmm(into, a, b, out_dtype=into.dtype, out=into)
    else:
        into.addmm_(a.to(into.dtype), b.to(into.dtype))


def _write_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    if into.dtype == a.dtype:
        torch.mm(a, b, out=into)
    elif into.dtype.itemsize < a.dtype.itemsize or not a.is_cuda:
        into.copy_(
            torch.mm(a.to(torch.promote_types(a.dtype, into.dtype)), b.to(torch.promote_types(a.dtype, into.dtype)))
        )
    else:  # float32 weights under autocast: the sum is float32 in the matrix units, and stays so
        torch.mm(a, b, out_dtype=into.dtype, out=into)


def _fold(logits: Tensor, labels: Tensor, start: int, stats: Tensor, temperature: float) -> None:
    if logits.is_cuda:
        from grpo_cli.train.packed.kernels import fold

        fold(logits, labels, start, stats, temperature)
        return
    z = logits.to(stats.dtype) / temperature
    peak, total, weighted, chosen = stats
    # a higher maximum shrinks what was summed under the lower one
    higher = torch.maximum(peak, z.amax(dim=1))
    shrink, e = (peak - higher).exp(), (z - higher[:, None]).exp()
    total.mul_(shrink).add_(e.sum(dim=1))
    weighted.mul_(shrink).add_((e * z).sum(dim=1))
    peak.copy_(higher)
    place = labels - start
    here = (place >= 0) & (place < logits.shape[1])
    found = z.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None]).squeeze(1)
    chosen.copy_(torch.where(here, found, chosen))


def _turn(
    logits: Tensor,
    labels: Tensor,
    start: int,
    log_z: Tensor,
    entropies: Tensor,
    grads: tuple[Tensor | None, Tensor | None],
    temperature: float,
) -> None:
    if logits.is_cuda:
        from grpo_cli.train.packed.kernels import turn

        turn(logits, labels, start, log_z, entropies, grads, temperature)
        return
    log_p = logits.to(log_z.dtype) / temperature - log_z[:, None]
    p, grad = log_p.exp(), torch.zeros_like(log_p)
    of_logps, of_entropies = grads
    if of_logps is not None:  # d log p(label) / dz = [label] - p
        words = torch.arange(start, start + logits.shape[1], device=logits.device)
        grad += of_logps[:, None] * ((words == labels[:, None]).to(p.dtype) - p)
    if of_entropies is not None:  # dH / dz = -p (log p + H)
        grad -= of_entropies[:, None] * p * (log_p + entropies[:, None])
    logits.copy_(grad / temperature)


@dataclass(frozen=True)
class ScoreNumerics:
    """What a forward pass computes in: an autocast or the model's own types, the head, the sampling temperature."""

    autocast: torch.dtype | None = None
    temperature: float = 1.0
    head_in_float32: bool = False
    keeping: Keeping = field(default_factory=Keeping)
    """What lies in memory until the backward pass; it changes no number."""


def score(base: Any, batch: Packed, numbers: ScoreNumerics) -> tuple[Tensor, Tensor]:
    """[N] log-probs and entropies of a packed micro-batch's targets, 0 in its padding.

    Args:
        base: a Hugging Face model with its head.
        batch: the rows, laid out.
        numbers: what to compute in, and the temperature.

    Raises:
        ValueError: its attention wants what a packed row cannot do.
    """
    fields = batch.views
    packed = partial(packed_into, base, fields, batch.shape.longest)
    with numerics(base, numbers.autocast), packed(), numbers.keeping.of(base, packed):
        states = base.base_model(
            input_ids=fields.ids[None], position_ids=fields.positions[None], use_cache=False
        ).last_hidden_state[0]
        head = base.get_output_embeddings()
        # a prompt's last state predicts the first token of each of its completions
        return selected_logps(
            shared(states, fields.states),
            head.weight,
            fields.labels,
            fields.counts,
            bias_V=getattr(head, "bias", None),
            temperature=numbers.temperature,
            in_float32=numbers.head_in_float32,
            spares=numbers.keeping != Keeping() or not batch.shape.is_one,
        )
