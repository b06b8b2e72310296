"""Which models the graph engine can drive. The last word has a rehearsal: three tokens and a fourth through the
engine's own cache must give the logits of one plain forward pass, whatever a config says.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating
from grpo_cli.rollout.decoding.cache import CacheLayout, CacheProbe, Decode, KeyValueStore, Prefill
from grpo_cli.rollout.decoding.seat import Forward, seated

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.policy.contract import CausalLM


def supports(model: nn.Module) -> str | None:
    """None, or why the graph engine cannot drive this model."""
    reason = _declared(model)
    return reason if reason else _rehearsed(model)


def _declared(model: nn.Module) -> str | None:
    peft = getattr(model, "active_peft_config", None)
    if peft is not None and getattr(peft, "is_prompt_learning", False):
        return f"the adapter `{peft.peft_type.value.lower()}` changes the prompt"
    base: Any = causal_model(model)
    config = getattr(base, "config", None)
    if config is None or not hasattr(base, "get_output_embeddings"):
        return "it is not a Hugging Face causal language model"
    config = config.get_text_config()
    kind = f"`{type(base).__name__}`"
    if getattr(config, "is_encoder_decoder", False):
        return f"{kind} is an encoder-decoder"
    if getattr(base, "_is_stateful", False):
        return f"{kind} keeps a recurrent state"
    layers = {str(kind_of) for kind_of in getattr(config, "layer_types", None) or []} - {"full_attention"}
    if layers:
        return f"{kind} has `{sorted(layers)[0]}` layers"
    window = getattr(config, "sliding_window", None)
    context = getattr(config, "max_position_embeddings", None)
    if (
        window
        and not getattr(config, "layer_types", None)
        and getattr(config, "use_sliding_window", True)
        and (context is None or window < context)
    ):
        return f"{kind} attends in a sliding window"
    rope = getattr(config, "rope_parameters", None) or {}
    if isinstance(rope, dict) and rope.get("rope_type") in ("dynamic", "longrope"):
        return f"the rotary embedding `{rope['rope_type']}` depends on the longest row of the batch"
    if not getattr(base, "_supports_attention_backend", False):
        return f"the attention of {kind} cannot be replaced"
    if "position_ids" not in inspect.signature(base.forward).parameters:
        return f"{kind} takes no positions"
    return _placed(base)


def _placed(base: CausalLM) -> str | None:
    devices = {parameter.device for parameter in base.parameters()}
    if any(device.type == "meta" for device in devices):
        return "its weights are offloaded"
    if len(devices) > 1:
        return "its weights are spread over several devices"
    if any(hasattr(p, "ds_id") or type(p).__name__ == "DTensor" for p in base.parameters()):
        return "its weights are sharded"
    if base.get_output_embeddings() is None:
        return "it has no output embeddings"
    return None


def measure_layout(model: nn.Module) -> CacheLayout:
    """What the layers hand to their cache, seen on one token."""
    import torch

    base: Any = causal_model(model)
    device = next(base.parameters()).device
    probe = CacheProbe({})
    with seated(base):
        one = torch.zeros((1, 1), dtype=torch.long, device=device)
        Forward(base)(probe, one, one)
    shapes = {(k.shape[1], k.shape[3], v.shape[1], v.shape[3], v.dtype) for k, v in probe.seen.values()}
    if len(shapes) != 1 or sorted(probe.seen) != list(range(len(probe.seen))):
        raise ValueError("its layers do not share one cache layout")
    heads, width, value_heads, value_width, dtype = shapes.pop()
    return CacheLayout(len(probe.seen), (heads, width), (value_heads, value_width), dtype, device)


def _rehearsed(model: nn.Module) -> str | None:
    import torch

    base: Any = causal_model(model)
    device = next(base.parameters()).device
    try:
        layout = measure_layout(base)
        tokens = torch.arange(4, device=device)[None] % base.config.get_text_config().vocab_size
        store = KeyValueStore(layout, 1, 4)
        row, three = torch.zeros(1, dtype=torch.long, device=device), torch.full((1,), 3, device=device)
        with seated(base):
            forward = Forward(base)
            positions = torch.arange(4, device=device)[None]
            first = forward(Prefill(store, row, row), tokens[:, :3], positions[:, :3], three - 1).float()
            second = forward(Decode(store, row, three, 4, None), tokens[:, 3:], three[:, None]).float()
        with evaluating(base):
            plain = base(input_ids=tokens, use_cache=False).logits.float()
    # Any model can be handed in: whatever it raises means that it does not follow the interface, and `auto` goes on.
    except Exception as err:  # noqa: BLE001
        return (
            f"a rehearsal failed: {type(err).__name__}: {str(err).splitlines()[0][:100] if str(err) else ''}"
        )
    scale = plain.abs().max().item() + 1e-6
    bound = (1e-3 if layout.dtype == torch.float32 else 5e-2) * scale
    error = max((first - plain[:, 2]).abs().max().item(), (second - plain[:, 3]).abs().max().item())
    return None if error <= bound else f"a rehearsal differs from a plain forward pass by {error:.2g}"
