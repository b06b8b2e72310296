"""Attention within the sequences of a packed row, by the interface of transformers.

A CUDA device uses torch's variable-length attention. Its causal mask is aligned to the last key, so a completion sees
its whole prompt and its own earlier tokens. A row that is one sequence uses torch's plain causal attention, which has
faster kernels. Other devices compute one sequence at a time; this is the reference.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from grpo_cli.train.packed.layout import PackedFields, TokenCopies

NAME = "grpo_packed"
"""What transformers calls it; it makes no mask for a name that it has no mask for."""
IGNORED = {"is_causal", "use_cache", "position_ids", "cache_position", "output_attentions"}
"""Arguments of models that do not affect this attention; any other argument that is set is refused."""


@dataclass
class _Now:
    """The packed row that is under way."""

    fields: PackedFields | None = None
    longest: int = 0


_NOW = _Now()


@contextmanager
def packed_into(base: Any, fields: PackedFields, longest: int) -> Iterator[None]:
    """While inside, `base` attends within the sequences of this packed row."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, packed_attention)
    # by the configuration, which every layer reads at each call: the model's own code runs unchanged
    config = base.config.get_text_config()
    before, now = config._attn_implementation, (_NOW.fields, _NOW.longest)
    config._attn_implementation, _NOW.fields, _NOW.longest = NAME, fields, longest
    try:
        yield
    finally:
        config._attn_implementation, (_NOW.fields, _NOW.longest) = before, now


def packed_attention(
    module: object,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer while a packed row is under way.

    Args:
        query: [1, heads, tokens, width].
        key: [1, key heads, tokens, width].
        value: the same.
        scaling: what scores are multiplied with; width^-1/2 where None.
        sliding_window: tokens seen, one's own among them; None for all.

    Returns:
        [1, tokens, heads, width], and None for the weights that it does not keep.

    Raises:
        ValueError: the model wants what this attention does not do.
    """
    fields = _NOW.fields
    assert fields is not None
    # an argument that is not known here (a cap, sinks, a bias) would be left out without a word, and change every log-prob
    wanted = [name for name, given in more.items() if given is not None and name not in IGNORED]
    if dropout or wanted:
        raise ValueError(f"attention with {', '.join(wanted) or 'dropout'}")
    if torch.is_autocast_enabled(query.device.type):  # torch's own attention casts; rotary embeddings leave float32
        query = query.to(torch.get_autocast_dtype(query.device.type))
    key, value = key.to(query.dtype), value.to(query.dtype)
    if len(fields.cu_q) == 2 and (sliding_window is None or sliding_window >= query.shape[2]):
        return _whole(query, key, value, scaling).transpose(1, 2), None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    k, v = shared(k, fields.keys), shared(v, fields.keys)
    # keys to the left of a query, without its own; none to the right: causal
    window = (-1 if sliding_window is None else sliding_window - 1, 0)
    form = _at_once if q.is_cuda else _one_by_one
    return form(q, k, v, fields, scaling, window)[None], None


def _whole(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    # each token sees those before it, so that padding behind the end of the row is seen by none that counts
    named: dict[str, Any] = {"is_causal": True, "scale": scale, "enable_gqa": query.shape[1] != key.shape[1]}
    if not query.is_cuda:
        return scaled_dot_product_attention(query, key, value, **named)
    # cuDNN's is left out of what torch chooses from (`exclude_cudnn_attention`), for rows with a mask; here is none
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return scaled_dot_product_attention(query, key, value, **named)


@cache
def kernel_arguments() -> frozenset[str]:
    """What torch's attention for sequences of differing length takes, by name; nothing where this torch has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def _at_once(
    q: Tensor, k: Tensor, v: Tensor, fields: PackedFields, scale: float | None, window: tuple[int, int]
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if q.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"attention in {str(q.dtype).removeprefix('torch.')}")
    named: dict[str, Any] = {"scale": scale, "window_size": window}
    if "enable_gqa" in kernel_arguments():  # earlier versions take fewer key heads as they are
        named["enable_gqa"] = q.shape[1] != k.shape[1]
    longest = _NOW.longest
    out: Any = varlen_attn(q, k, v, fields.cu_q, fields.cu_k, longest, longest, **named)
    return out  # type: ignore[no-any-return]


def _one_by_one(
    q: Tensor, k: Tensor, v: Tensor, fields: PackedFields, scale: float | None, window: tuple[int, int]
) -> Tensor:
    out, (starts_q, starts_k) = [], (fields.cu_q.tolist(), fields.cu_k.tolist())
    spans = zip(starts_q[:-1], starts_q[1:], starts_k[:-1], starts_k[1:], strict=True)
    for a, b, c, d in ((a, b, c, d) for a, b, c, d in spans if b > a):
        # the last query stands at the last key: a completion has all of its prompt's keys before its own
        rows, columns = torch.arange(b - a)[:, None] + (d - c) - (b - a), torch.arange(d - c)
        seen = columns <= rows
        if window[0] >= 0:
            seen &= columns >= rows - window[0]
        heads = q.shape[1] // k.shape[1]
        keys, values = (x[c:d].repeat_interleave(heads, 1).transpose(0, 1) for x in (k, v))
        found = scaled_dot_product_attention(q[a:b].transpose(0, 1), keys, values, attn_mask=seen, scale=scale)
        out.append(found.transpose(0, 1))
    return torch.cat(out)


def shared(x: Tensor, copies: TokenCopies) -> Tensor:
    """[tokens, heads, width] or [tokens, width] to [places, ...]; a token's gradient is the sum of its copies', in float32 and
    in a fixed order.
    """
    found: Tensor = _Shared.apply(x, copies)  # type: ignore[no-untyped-call]
    return found


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, copies: TokenCopies) -> Tensor:
        ctx.copies, ctx.tokens = copies, len(x)
        if x.is_cuda:
            from grpo_cli.train.packed.kernels import take

            return take(x, copies.places)
        return x.index_select(0, copies.places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,), copies = grads, ctx.copies
        if grad.is_cuda:
            from grpo_cli.train.packed.kernels import sum_copies

            return sum_copies(grad, copies.order, copies.starts), None
        # what no token's list names is padding, whose gradient is 0
        named = copies.order[: int(copies.starts[-1])]
        kind = torch.promote_types(grad.dtype, torch.float32)
        total = torch.zeros((ctx.tokens, *grad.shape[1:]), dtype=kind)
        total.index_add_(0, copies.places[named], grad[named].to(kind))
        return total.to(grad.dtype), None
