"""A decode step for models built like Llama with as few torch operations as possible, for float32 models on a CPU: in a
small model the overhead of an operation costs as much as its arithmetic. It is used only if it gives the logits of the
model's own forward.

How this works: `CpuBackbone.forward` replaces the backbone's forward during decode steps. A step embeds one token a row, sends it
through a `CpuLayer` each layer, and norms the result; the layers call matrix products on the weights themselves, without the
modules between. Prefill and everything else go to the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model
from grpo_cli.rollout.decoding.attention import ForwardPhase, attend_one, mask_of
from grpo_cli.rollout.decoding.cache import AttentionForm, Decode, KeyValueStore, Prefill
from grpo_cli.rollout.decoding.rollout_mode import Forward, rollout_mode
from grpo_cli.rollout.decoding.supports import measure_forms, measure_layout
from grpo_cli.rollout.fused.patches import Patch, patched

if TYPE_CHECKING:
    from torch import Tensor, nn

CLOSE = 1e-5
"""The largest difference from the model's own logits, relative to their largest."""


def checked_llama_cpu(model: nn.Module) -> list[Patch]:
    """The replacement of the backbone's forward, if it agrees on two prompts of different length; else None."""
    import torch

    base: Any = causal_model(model)
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in base.parameters()):
        return []
    try:
        replacement = CpuBackbone(base.base_model, measure_forms(base))
        patches = [Patch(base.base_model, "forward", replacement.forward)]
        return patches if _error(base, patches) <= CLOSE else []
    # The model may be any model: one with another structure fails here somehow, and keeps its own forward.
    except Exception:  # noqa: BLE001
        return []


class CpuBackbone:
    """Reads the weights in place. Calls other than decode steps go to the model's own forward."""

    def __init__(self, backbone: Any, forms: list[AttentionForm]) -> None:
        self.backbone, self.own = backbone, backbone.forward
        self.embed: Callable[[Tensor], Tensor] = backbone.embed_tokens
        self.layers = [CpuLayer(*both) for both in zip(backbone.layers, forms, strict=True)]
        self.norm = _norm(backbone.norm)
        self._turns: tuple[Tensor, Tensor] | None = None

    def forward(self, *args: Any, **named: Any) -> Any:
        """The backbone's output, without its cache."""
        from transformers.modeling_outputs import BaseModelOutputWithPast

        phase = ForwardPhase.phase
        if not isinstance(phase, Decode):
            return self.own(*args, **named)
        # cosine and sine of the rows' positions, the sine's first half negated
        cos, sin = self._table(phase.length)
        if phase.column is not None:
            # all rows at one column: a row of the table, broadcast
            turns = cos[phase.column], sin[phase.column]
        else:
            at = phase.position
            turns = cos.index_select(0, at)[:, None], sin.index_select(0, at)[:, None]
        states = self.embed(named["input_ids"][:, 0])
        for layer in self.layers:
            states = layer.step(states, phase, turns)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(states)[:, None])

    def _table(self, columns: int) -> tuple[Tensor, Tensor]:
        import torch

        if self._turns is None or len(self._turns[0]) < columns:
            # twice as long as needed: a run with growing samples then makes few tables, not one each step
            places = torch.arange(2 * columns)[None]
            cos, sin = (found[0] for found in self.backbone.rotary_emb(torch.zeros(1, 1), places))
            half = sin.shape[-1] // 2
            # rotate_half(x) * sin = roll(x) * signed sin: one pass over the heads without a copy of the negated half
            self._turns = cos, torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
        return self._turns


class CpuLayer:
    """Norm, attention, norm, gated MLP, each with its residual."""

    def __init__(self, layer: Any, form: AttentionForm) -> None:
        self.form = form
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.width, self.scale = attention.layer_idx, attention.head_dim, attention.scaling
        self.q, self.k, self.v = (_linear(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj"))
        self.add_attended, self.add_gated = _added(attention.o_proj), _added(mlp.down_proj)
        self.gate, self.up, self.activate = _linear(mlp.gate_proj), _linear(mlp.up_proj), mlp.act_fn
        self.before_attention = _norm(layer.input_layernorm)
        self.before_mlp = _norm(layer.post_attention_layernorm)
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        # Qwen 3 norms each head of queries and keys
        self.head_norms = [None if norm is None else _norm(norm) for norm in norms]

    def step(self, states: Tensor, phase: Decode, turns: tuple[Tensor, Tensor]) -> Tensor:
        """[rows, width of the model] in and out, one token a row."""
        import torch

        rows, (cos, sin) = len(states), turns
        seen = self.before_attention(states)
        query, key = (
            part if norm is None else norm(part.view(rows, -1, self.width)).flatten(1)
            for part, norm in zip((self.q(seen), self.k(seen)), self.head_norms, strict=True)
        )
        heads = query.shape[1] // self.width
        # queries and keys are turned by the same angles, so in one operation
        both = torch.cat([query, key], dim=1).view(rows, -1, self.width)
        both = torch.addcmul(both * cos, both.roll(self.width // 2, -1), sin)[:, :, None]
        value = self.v(seen).view(rows, -1, 1, self.width)
        keys, values = phase.write(self.number, both[:, heads:], value)
        mask = mask_of(phase, keys.shape[2], self.form)
        attended = attend_one(both[:, :heads], keys, values, mask, self.scale, self.form)
        # residual and projection in one call, where the projection has no bias
        states = self.add_attended(states, attended.view(rows, -1))
        seen = self.before_mlp(states)
        return self.add_gated(states, self.activate(self.gate(seen)).mul_(self.up(seen)))


def _is_plain(module: Any) -> bool:
    import torch

    # a subclass may compute something else, and a hook must be called
    return type(module) is torch.nn.Linear and not (module._forward_hooks or module._forward_pre_hooks)


def _linear(module: Any) -> Callable[[Tensor], Tensor]:
    """The product, without the module's call if the module is a plain one; adapters are called."""
    import torch

    if not _is_plain(module):
        return module  # type: ignore[no-any-return]
    return lambda x: torch.nn.functional.linear(x, module.weight, module.bias)


def _added(module: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """(residual, x) to residual + the product of x."""
    import torch

    if not _is_plain(module) or module.bias is not None:
        return lambda residual, x: residual + module(x)
    return lambda residual, x: torch.addmm(residual, x, module.weight.t())


def _norm(module: Any) -> Callable[[Tensor], Tensor]:
    import torch

    epsilon: float = getattr(module, "variance_epsilon", None) or module.eps
    return lambda x: torch.nn.functional.rms_norm(x, module.weight.shape, module.weight, epsilon)


def _error(base: Any, patches: list[Patch]) -> float:
    """Relative to the largest logit, over one decode step of two rows at different columns."""
    import torch

    tokens = torch.arange(8).view(2, 4) % base.config.get_text_config().vocab_size
    rows, position = torch.arange(2), torch.tensor([3, 2])
    store = KeyValueStore(measure_layout(base), 2, 4)
    store.reach(4)
    mask = torch.zeros(2, 1, 1, 4).masked_fill_((torch.arange(4) > position[:, None])[:, None, None], -torch.inf)
    step = Decode(store, rows, position, 4, mask)
    with rollout_mode(base):
        forward = Forward(base)
        places = torch.arange(3)[None].expand(2, -1)
        forward(Prefill(store, rows, rows), tokens[:, :3], places, position - 1)
        expected = forward(step, tokens[:, 3:], position[:, None])
        with patched(patches):
            got = forward(step, tokens[:, 3:], position[:, None])
    return float((got - expected).abs().max() / expected.abs().max())
