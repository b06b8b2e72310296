"""The attention function models call during a rollout, registered with transformers under `ROLLOUT_ATTENTION`.
Decoding keeps query heads that share a key head together, so grouped keys are read once and never repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import Decode, Phase

if TYPE_CHECKING:
    from torch import Tensor, nn

ROLLOUT_ATTENTION = "grpo_rollout"


class Current:
    """The phase of the forward pass that runs now; transformers hands nothing of ours through to the function."""

    phase: Phase | None = None


def register() -> None:
    """Makes the name known; without a mask function of that name transformers builds no mask."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(ROLLOUT_ATTENTION, attend)


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
    """[batch, tokens, heads, width] out of [batch, heads, tokens, width]; causal, or one new token a row."""
    unknown = [
        name
        for name in ("softcap", "s_aux", "position_bias", "sliding_window")
        if extras.get(name) is not None
    ]
    if unknown:
        raise ValueError(f"attention needs `{unknown[0]}`")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    phase = Current.phase
    if isinstance(phase, Decode):
        fused = phase.store.attention
        if fused is None:
            return attend_one(query, key, value, phase.mask, scale), None
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        keys, values = phase.store.keys[layer], phase.store.values[layer]
        return fused(query, key, value, keys, values, phase.position, scale), None
    return attend_causally(query, key, value, scale), None


def attend_causally(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Prompts, padded on the right: no real token sees the padding, so the causal mask is all that is needed."""
    from torch.nn.functional import scaled_dot_product_attention

    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    key = key.to(query.dtype)
    out = scaled_dot_product_attention(query, key, value.to(query.dtype), is_causal=True, scale=scale)
    return out.transpose(1, 2)


def attend_one(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """One query a row against its stored columns; `mask` is [rows, 1, 1, columns], added to the scores."""
    import torch

    rows, heads, _, width = query.shape
    kept, columns = key.shape[1], key.shape[2]
    grouped = (query * scale).to(key.dtype).reshape(rows * kept, heads // kept, width)
    scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).view(rows, kept, heads // kept, columns)
    if mask is not None:
        scores = scores + mask
    likelihood = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    out = torch.bmm(likelihood.view(rows * kept, heads // kept, columns), value.flatten(0, 1))
    return out.view(rows, 1, heads, value.shape[-1]).to(query.dtype)
