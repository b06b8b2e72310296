"""A decode step for models built like Llama on a CUDA device, in eight launches a layer: with a few hundred rows of a
small model a launch costs more than its arithmetic. It is used only if it gives the logits of the model's own forward.

How this works: `FusedBackbone.forward` replaces the backbone's forward during decode steps. A layer is: norm, one product for
queries, keys and values, one kernel that turns them, stores the new column and attends, the output product, norm with the
residual added inside, one product for gate and up, their gated product, the product down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpo_cli.rollout.decoding.attention import ForwardPhase
from grpo_cli.rollout.decoding.cache import AttentionForm, Decode
from grpo_cli.rollout.fused.launch import add_norm, fused_attention, gated, norm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from grpo_cli.rollout.fused.merged_weights import MergedWeights

# the modules of a layer that the code below computes; a layer with other parts is not supported
PARTS = {
    "self_attn": {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
    "input_layernorm": set(),
    "post_attention_layernorm": set(),
}


class FusedBackbone:
    """Reads the weights in place. Calls other than decode steps go to the backbone's own forward, `own`."""

    def __init__(
        self, backbone: Any, forms: list[AttentionForm], merged: MergedWeights | None, compute_dtype: torch.dtype | None
    ) -> None:
        self.backbone, self.own = backbone, backbone.forward
        self.layers = [
            FusedLayer(layer, form, merged, compute_dtype) for layer, form in zip(backbone.layers, forms, strict=True)
        ]
        self.compute_dtype = compute_dtype
        self._angles: tuple[Tensor, Tensor] | None = None

    def forward(self, *args: Any, **named: Any) -> Any:
        """The backbone's output, without its cache."""
        from transformers.modeling_outputs import BaseModelOutputWithPast

        phase = ForwardPhase.phase
        if not isinstance(phase, Decode):
            return self.own(*args, **named)
        states = self.backbone.embed_tokens(named["input_ids"][:, 0])
        # indexed by column, not by row: the attention kernel looks up its row's angles, so no launch is needed to
        # gather them
        angles = self._table(phase.length, states)
        # a layer's output is kept apart from the residual and added inside the next norm, which saves two launches a
        # layer
        delta: Tensor | None = None
        for layer in self.layers:
            delta = layer.step(states, delta, phase, angles)
        return BaseModelOutputWithPast(
            last_hidden_state=_normed(self.backbone.norm, states, delta, self.compute_dtype)[:, None]
        )

    def _table(self, columns: int, states: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every column, [columns, width of a head] each."""
        import torch

        kept = self._angles
        if kept is None or len(kept[0]) < columns or kept[0].dtype != states.dtype:
            places = torch.arange(columns, device=states.device)[None]
            cos, sin = (found[0].contiguous() for found in self.backbone.rotary_emb(states[:1, None], places))
            self._angles = kept = cos, sin
        return kept


class FusedLayer:
    """Norm, attention, norm, gated MLP; the next norm adds the output of each to the residual."""

    def __init__(
        self, layer: Any, form: AttentionForm, merged: MergedWeights | None, compute_dtype: torch.dtype | None
    ) -> None:
        """Raises ValueError if the layer has unknown parts or factors."""
        import torch

        # unknown parts or factors; any other difference shows in the logits
        unknown = {name for name, _ in layer.named_children()} - set(PARTS)
        for name, parts in PARTS.items():
            unknown |= {child for child, _ in getattr(layer, name).named_children()} - parts
        if unknown or getattr(layer, "residual_multiplier", 1) != 1:
            raise ValueError(f"a layer has `{min(unknown) if unknown else 'residual_multiplier'}`")
        if not getattr(layer.self_attn, "use_rope", True):
            raise ValueError("a layer has no rotary embedding")
        x = torch.linspace(-6, 6, 97, device="cpu")
        # with the small weights of a fresh model the logits hardly differ from one activation to another
        if not torch.allclose(layer.mlp.act_fn(x), torch.nn.functional.silu(x), atol=1e-6):
            raise ValueError("the MLP has another activation")
        self.form = form
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.width, self.scale = attention.layer_idx, attention.head_dim, attention.scaling
        self.compute_dtype = compute_dtype
        self.before, self.between = layer.input_layernorm, layer.post_attention_layernorm
        self.head_norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self.projected = _side_by_side([attention.q_proj, attention.k_proj, attention.v_proj], merged)
        self.gate_and_up = _side_by_side([mlp.gate_proj, mlp.up_proj], merged)
        self.out, self.down = attention.o_proj, mlp.down_proj

    def step(self, states: Tensor, delta: Tensor | None, phase: Decode, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Adds `delta`, the previous layer's MLP output, and the attention output to `states`, in place; returns the MLP's
        output, which the next layer adds. All are [rows, width]."""
        rows, (kept, width), (_, value_width) = len(states), phase.store.layout.key, phase.store.layout.value
        both = self.projected(_normed(self.before, states, delta, self.compute_dtype))
        # queries, keys, values lie side by side in one product; these are views into it
        value_at = both.shape[1] - kept * value_width
        key_at = value_at - kept * width
        query, key = (
            part.view(rows, -1, width)
            if head_norm is None  # Qwen 3 norms each head
            else norm(part.reshape(rows, -1, width), head_norm.weight, head_norm.variance_epsilon, False)
            for part, head_norm in zip((both[:, :key_at], both[:, key_at:value_at]), self.head_norms, strict=True)
        )
        attended = fused_attention(
            query[:, :, None],
            key[:, :, None],
            both[:, value_at:].view(rows, kept, 1, value_width),
            phase.store.keys[self.number],
            phase.store.values[self.number],
            phase.position,
            self.scale,
            angles,
            form=self.form,
        )
        attended = self.out(attended.view(rows, -1))
        both = self.gate_and_up(_normed(self.between, states, attended, self.compute_dtype))
        middle = both.shape[1] // 2
        return self.down(gated(both[:, :middle], both[:, middle:]))  # type: ignore[no-any-return]


def _normed(module: Any, states: Tensor, delta: Tensor | None, compute_dtype: torch.dtype | None) -> Tensor:
    """The norm of `states` with `delta` added, in place; `compute_dtype` is the type of an autocast."""
    if delta is None:
        return norm(states, module.weight, module.variance_epsilon, False)
    return add_norm(states, delta, module.weight, module.variance_epsilon, compute_dtype or states.dtype)


def _side_by_side(modules: list[Any], merged: MergedWeights | None) -> Callable[[Tensor], Tensor]:
    """One product if the weights are in one buffer, else one a module."""
    import torch

    group = merged.group_of.get(id(modules[0])) if merged is not None else None
    if group is not None and group.modules == modules:
        return group.product
    return lambda x: torch.cat([module(x) for module in modules], dim=1)
