"""Fused kernels are used only after they reproduced the plain code here, on this card, with this model's shapes; a
machine without Triton, or a kernel that fails to build, costs speed and one line, never a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpo_cli.train.rollout.attention import attend_one
from grpo_cli.train.rollout.cache import FusedAttention, Layout
from grpo_cli.train.rollout.modelseat import causal_model
from grpo_cli.train.rollout.supports import measure_layout

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.train.rollout.swaps import Swap


def proven_attention(model: nn.Module, say: Callable[[str], None]) -> FusedAttention | None:
    """The fused decode attention if it agrees with the plain one."""
    base: Any = causal_model(model)
    heads = base.config.get_text_config().num_attention_heads
    try:
        from grpo_cli.train.rollout.launch import fused_attention

        error = attention_error(fused_attention, measure_layout(model), heads)
    # Building a kernel can fail in as many ways as compilers do; the plain code always works.
    except Exception as err:  # noqa: BLE001
        say(f"decoding without the fused attention: {type(err).__name__}: {str(err)[:80]}")
        return None
    if error > 1e-2:
        say(f"decoding without the fused attention: it is off by {error:.2g}")
        return None
    return fused_attention


def attention_error(fused: FusedAttention, layout: Layout, heads: int, columns: int = 200) -> float:
    """Relative error against the plain attention in float32, on random keys, values and positions."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device=layout.device, dtype=layout.dtype)

    rows, (kept, width), (_, value_width) = 7, layout.key, layout.value
    keys, values = draw(rows, kept, columns, width), draw(rows, kept, columns, value_width)
    query, key = draw(rows, heads, 1, width), draw(rows, kept, 1, width)
    value = draw(rows, kept, 1, value_width)
    position = torch.tensor([0, 1, 63, 64, 65, 130, columns - 1], device=layout.device)
    every = torch.arange(rows, device=layout.device)
    plain_keys, plain_values = keys.float().clone(), values.float().clone()
    plain_keys[every, :, position], plain_values[every, :, position] = (
        key[:, :, 0].float(),
        value[:, :, 0].float(),
    )
    hidden = torch.arange(columns, device=layout.device) > position[:, None]
    mask = torch.zeros(rows, columns, device=layout.device).masked_fill_(hidden, float("-inf"))[:, None, None]
    expected = attend_one(query.float(), plain_keys, plain_values, mask, width**-0.5)
    got = fused(query, key, value, keys, values, position, width**-0.5).float()
    stored = torch.equal(keys[every, :, position], key[:, :, 0]) and torch.equal(
        values[every, :, position], value[:, :, 0]
    )
    return float((got - expected).norm() / expected.norm()) if stored else float("inf")


def proven_swaps(model: nn.Module, say: Callable[[str], None]) -> list[Swap]:
    """The fused norms, gates and rotary embeddings that agree with the model's own."""
    try:
        from grpo_cli.train.rollout.swaps import find_swaps

        return find_swaps(model)
    # As above: whatever a kernel's build raises, the model's own code always works.
    except Exception as err:  # noqa: BLE001
        say(f"decoding without fused kernels: {type(err).__name__}: {str(err)[:80]}")
        return []
