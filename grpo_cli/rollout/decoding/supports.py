"""Which models the graph engine can drive. A trial run decides: a few tokens and one more through the engine's own
cache must give the logits of one plain forward pass, whatever a config declares.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating, off_by_a_rounding
from grpo_cli.rollout.decoding.cache import AttentionForm, CacheLayout, CacheProbe, Decode, KeyValueStore, Prefill
from grpo_cli.rollout.decoding.rollout_mode import Forward, rollout_mode

if TYPE_CHECKING:
    import torch
    from torch import nn


DRIVEN_LAYERS = {"full_attention", "sliding_attention"}
QUICK_WINDOW = 1024
"""Most tokens of a trial run on a CPU."""


def supports(model: nn.Module) -> str | None:
    """The reason why the graph engine cannot drive this model; None if it can."""
    why = declared(model)
    if why is not None:
        return why
    base: Any = causal_model(model)
    # the cache is on one device, and passes need unsharded weights
    devices = {parameter.device for parameter in base.parameters()}
    if any(device.type == "meta" for device in devices):
        return "its weights are offloaded"
    if len(devices) > 1:
        return "its weights are spread over several devices"
    if any(hasattr(p, "ds_id") or type(p).__name__ == "DTensor" for p in base.parameters()):
        return "its weights are sharded"
    if base.get_output_embeddings() is None:
        return "it has no output embeddings"
    return _dry_run(model)


def declared(model: nn.Module) -> str | None:
    """The reason in a model's class or configuration against the graph engine; its weights are not needed."""
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
    # linear attention and convolutions keep a state that cannot be split by column
    layers = {str(kind_of) for kind_of in getattr(config, "layer_types", None) or []} - DRIVEN_LAYERS
    if layers:
        return f"{kind} has `{sorted(layers)[0]}` layers"
    # with dynamic rotary scaling a row's angles depend on its neighbours, but keys are stored rotated
    rope = getattr(config, "rope_parameters", None) or {}
    if isinstance(rope, dict) and rope.get("rope_type") in ("dynamic", "longrope"):
        return f"the rotary embedding `{rope['rope_type']}` depends on the longest row of the batch"
    if not getattr(base, "_supports_attention_backend", False):
        return f"the attention of {kind} cannot be replaced"
    if "position_ids" not in inspect.signature(base.forward).parameters:
        return f"{kind} takes no positions"
    return None


def measure_layout(model: nn.Module) -> CacheLayout:
    """The cache layout of the layers, observed on a pass with one token.

    Raises:
        ValueError: no buffer shape fits all layers: they differ in heads, widths or dtype, or some do not write to the
        cache.
    """
    # observed, because configurations name heads and widths differently in each family
    probe, device = _probed(model)
    shapes = {(k.shape[1], k.shape[3], v.shape[1], v.shape[3], v.dtype) for k, v in probe.seen.values()}
    if len(shapes) != 1 or sorted(probe.seen) != list(range(len(probe.seen))):
        raise ValueError("its layers do not share one cache layout")
    heads, width, value_heads, value_width, dtype = shapes.pop()
    return CacheLayout(len(probe.seen), (heads, width), (value_heads, value_width), dtype, device)


def measure_forms(model: nn.Module) -> list[AttentionForm]:
    """How each layer attends, in their order, by the arguments of its attention function."""
    probe, _ = _probed(model)
    return [probe.forms[layer] for layer in sorted(probe.forms)]


def _probed(model: nn.Module) -> tuple[CacheProbe, torch.device]:
    import torch

    base: Any = causal_model(model)
    device = next(base.parameters()).device
    probe = CacheProbe()
    with rollout_mode(base):
        one = torch.zeros((1, 1), dtype=torch.long, device=device)
        Forward(base)(probe, one, one)
    return probe, device


def _dry_run(model: nn.Module) -> str | None:
    import torch

    base: Any = causal_model(model)
    device = next(base.parameters()).device
    try:
        layout = measure_layout(base)
        config = base.config.get_text_config()
        window: Any = getattr(config, "sliding_window", None)
        context: Any = getattr(config, "max_position_embeddings", None)
        # enough tokens to exceed the narrowest window, unless that takes too long: a layer may not declare its window
        fits = window and not (context and context < window + 2)
        count = int(window) + 2 if fits and (device.type == "cuda" or window <= QUICK_WINDOW) else 4
        tokens = torch.arange(count, device=device)[None] % config.vocab_size
        store = KeyValueStore(layout, 1, count)
        row, last = (torch.zeros(1, dtype=torch.long, device=device), torch.full((1,), count - 1, device=device))
        with rollout_mode(base):
            forward = Forward(base)
            positions = torch.arange(count, device=device)[None]
            first = forward(Prefill(store, row, row), tokens[:, :-1], positions[:, :-1], last - 1).float()
            second = forward(Decode(store, row, last, count, None), tokens[:, -1:], last[:, None]).float()
        with evaluating(base):
            plain = base(input_ids=tokens, use_cache=False).logits[:, -2:].float()
    # The model may be any model: any exception means that it does not follow the interface, and `auto` tries another
    # engine.
    except Exception as err:  # noqa: BLE001
        return f"a trial run failed: {type(err).__name__}: {str(err).splitlines()[0][:100] if str(err) else ''}"
    # relative to the largest logit: half precision has 8 bits, and layers add their roundings
    scale = plain.abs().max().item() + 1e-6
    bound = (1e-3 if layout.dtype == torch.float32 else 5e-2) * scale
    error = max((first - plain[:, -2]).abs().max().item(), (second - plain[:, -1]).abs().max().item())
    if error > bound:
        # weights in 4 bits have another kernel for each number of tokens, and deep models add up its roundings: as much as
        # one rounding at the embeddings makes of the same pass is no fault of the engine
        with evaluating(base), off_by_a_rounding(base, None):
            nudged = base(input_ids=tokens, use_cache=False).logits[:, -2:].float()
        bound = max(bound, 2 * (nudged - plain).abs().max().item())
    return None if error <= bound else f"a trial run differs from a plain forward pass by {error:.2g}"
