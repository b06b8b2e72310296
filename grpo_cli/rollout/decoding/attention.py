"""The attention function models call during a rollout, registered with transformers under `ROLLOUT_ATTENTION`.
Decoding keeps query heads that share a key head together, so grouped keys are read once and never repeated.

How this works: `rollout_mode` sets the name on the model's configurations and `Forward` sets the phase of the pass. Each
layer then calls `attend` with its queries and with the keys and values that the phase's `write` returned. The phase
decides between three forms: attention within prompts, of several new tokens over a row's cache, or of one token a row.
All are softmax(q k^T x scale + mask) v, with window, cap and sinks where the layer has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import PLAIN, AttentionForm, CacheProbe, Decode, Extend, Phase

if TYPE_CHECKING:
    from torch import Tensor, nn

ROLLOUT_ATTENTION = "grpo_rollout"


class ForwardPhase:
    """The phase of the current forward pass; a global, because transformers passes no argument of ours to the
    function."""

    phase: Phase | None = None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extras: object,
) -> tuple[Tensor, None]:
    """Called by transformers in each layer: causal over prompts, or for one or several new tokens a row, by the current
    phase.

    Args:
        module: the layer's attention; its `layer_idx` selects the buffers.
        query: [batch, heads, tokens, width].
        key: [batch, key heads, tokens or columns, width].
        value: as `key`, with a width of its own.
        attention_mask: ignored; the phase determines which columns are visible.
        dropout: not applied: nothing is trained here.
        scaling: what scores are multiplied with; width^-1/2 where None.
        extras: window, cap and sinks, by the names of transformers.

    Returns:
        [batch, tokens, heads, width], and None for the weights that it does not keep.

    Raises:
        ValueError: the model wants a bias of positions.
    """
    # models like T5 add a learned bias to the scores, which this attention does not support
    if extras.get("position_bias") is not None:
        raise ValueError("attention needs `position_bias`")
    form = AttentionForm.of(extras)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    phase = ForwardPhase.phase
    if isinstance(phase, Decode):
        # a fused kernel stores the new column itself and reads the buffers, so it is handed all of a layer
        fused = phase.store.attention
        if fused is None:
            return attend_one(query, key, value, mask_of(phase, key.shape[2], form), scale, form), None
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        keys, values = phase.store.keys[layer], phase.store.values[layer]
        return fused(query, key, value, keys, values, phase.position, scale, form=form), None
    if isinstance(phase, Extend):
        return attend_behind(query, key, value, phase.positions, scale, form), None
    if isinstance(phase, CacheProbe):
        # window, cap and sinks are known only from the arguments of the layer's call
        phase.forms[int(module.layer_idx)] = form  # type: ignore[arg-type]
    return attend_causally(query, key, value, scale, form), None


def attend_causally(query: Tensor, key: Tensor, value: Tensor, scale: float, form: AttentionForm = PLAIN) -> Tensor:
    """Attention within prompts that are padded on the right: no real token sees padding, so a causal mask is enough.

    Args:
        query: [batch, heads, tokens, width].
        key: [batch, key heads, tokens, width].
        value: [batch, key heads, tokens, value width].
        scale: what scores are multiplied with.

    Returns:
        [batch, tokens, heads, value width]; at padding whatever comes out.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    key, value = _for_each_head(query, key, value)
    seen = None if form.is_plain else form.seen(key.shape[2], key.device)
    if form.cap is None and form.sinks is None:
        out = scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=seen is None, scale=scale)
        return out.transpose(1, 2)
    assert seen is not None
    mixed = []
    for one, keys, values in zip(query, key, value, strict=True):  # a prompt at a time bounds the scores' memory
        scores = form.capped(one @ keys.transpose(1, 2) * scale).masked_fill(~seen, float("-inf"))
        mixed.append(form.likelihood(scores).to(value.dtype) @ values)
    return torch.stack(mixed).transpose(1, 2)


def attend_behind(
    query: Tensor, key: Tensor, value: Tensor, positions: Tensor, scale: float, form: AttentionForm = PLAIN
) -> Tensor:
    """Attention of several new tokens a row over the columns up to their own.

    Args:
        query: [rows, heads, tokens, width].
        key: [rows, key heads, columns, width], the new tokens' among them.
        value: [rows, key heads, columns, value width].
        positions: [rows, tokens] int64, the column of each new token.
        scale: what scores are multiplied with.

    Returns:
        [rows, tokens, heads, value width].
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    key, value = _for_each_head(query, key, value)
    column, own = torch.arange(key.shape[2], device=key.device), positions[:, None, :, None]
    # columns begin at 0 without padding, so a token's column is its position
    seen = column <= own
    if form.window is not None:
        seen = seen & (column > own - form.window)
    if form.cap is None and form.sinks is None:
        out = scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale)
        return out.transpose(1, 2)
    # cap before masking: tanh would turn -inf into a finite score
    scores = form.capped(query @ key.transpose(2, 3) * scale).masked_fill(~seen, float("-inf"))
    return (form.likelihood(scores).to(value.dtype) @ value).transpose(1, 2)


def _for_each_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values in the query's dtype; a shared head is repeated for each of its query heads."""
    # repeating is cheap here: with many tokens the products cost far more than the copy
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return key.to(query.dtype), value.to(query.dtype)


def mask_of(phase: Decode, columns: int, form: AttentionForm) -> Tensor | None:
    """The mask to add to the scores, [rows, 1, 1, columns]; with a window a row sees only the last columns up to its
    own."""
    import torch

    if form.window is None:
        return phase.mask
    column, last = torch.arange(columns, device=phase.position.device), phase.position[:, None]
    hidden = (column > last) | (column <= last - form.window)
    shown = torch.zeros(hidden.shape, dtype=phase.store.layout.dtype, device=hidden.device)
    # additive instead of bool, so that product and mask are one operation
    return shown.masked_fill_(hidden, float("-inf"))[:, None, None]


def attend_one(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, form: AttentionForm = PLAIN
) -> Tensor:
    """One query a row against its stored columns. Heads that share a key head are multiplied together: keys are read once.

    Args:
        query: [rows, heads, 1, width].
        key: [rows, key heads, columns, width].
        value: [rows, key heads, columns, value width].
        mask: [rows, 1, 1, columns], added to the scores; None where every column is seen.
        scale: what scores are multiplied with.

    Returns:
        [rows, 1, heads, value width] in the query's type; the softmax is float32.
    """
    import torch

    rows, heads, _, width = query.shape
    kept, columns = key.shape[1], key.shape[2]
    # scale the queries, not the scores: they have fewer elements
    grouped = (query * scale).to(key.dtype).reshape(rows * kept, heads // kept, width)
    scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).view(rows, kept, heads // kept, columns)
    scores = form.capped(scores)
    if mask is not None:
        scores = scores + mask
    if form.sinks is None:
        likelihood = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    else:
        of_head = scores.reshape(rows, heads, 1, columns)
        likelihood = form.likelihood(of_head).to(value.dtype).view_as(scores)
    # in the dtype of the values: with float32 probabilities all values would be copied to float32 first
    out = torch.bmm(likelihood.view(rows * kept, heads // kept, columns), value.flatten(0, 1))
    return out.view(rows, 1, heads, value.shape[-1]).to(query.dtype)
