"""The model as the engine uses it: inside `rollout_mode` it is in evaluation mode with the rollout attention.
Afterwards every module is restored exactly, also when generation fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating, unwrapped_forward
from grpo_cli.rollout.decoding.attention import ROLLOUT_ATTENTION, ForwardPhase, attend
from grpo_cli.rollout.decoding.cache import Phase, rollout_cache_class

if TYPE_CHECKING:
    from torch import Tensor, nn


@contextmanager
def rollout_mode(model: nn.Module) -> Iterator[None]:
    """Inside: evaluation mode, no gradients, rollout attention, no wrappers."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    # without a mask function of that name transformers builds no mask
    ALL_ATTENTION_FUNCTIONS.register(ROLLOUT_ATTENTION, attend)
    found: Iterator[Any] = (getattr(module, "config", None) for module in model.modules())
    configs = {id(config): config for config in found if hasattr(config, "_attn_implementation")}
    # by identity: parts of a model share a configuration, which must be restored once
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    try:
        for config, _ in before:
            # set the private name: the public one also changes nested configurations, which are saved and restored one
            # by one here
            config._attn_implementation_internal = ROLLOUT_ATTENTION
        with evaluating(model), unwrapped_forward(model):
            yield
    finally:
        ForwardPhase.phase = None
        for config, name in before:
            config._attn_implementation_internal = name


def fingerprint(model: nn.Module) -> tuple[object, ...]:
    """A fingerprint that changes when a weight moves in memory or an adapter is switched: earlier captures and
    measurements are then invalid."""
    # addresses, not values: an optimizer step writes in place
    places: list[object] = [(p.data_ptr(), p.dtype) for p in model.parameters()]
    places += [buffer.data_ptr() for buffer in model.buffers()]
    layers: Iterator[Any] = iter(model.modules())
    for module in layers:
        if hasattr(module, "disable_adapters") and hasattr(module, "merged"):
            places.append((module.merged, module.disable_adapters, tuple(module.active_adapters)))
    return tuple(places)


class Forward:
    """Calls the model for the logits of one position a row."""

    def __init__(self, model: nn.Module) -> None:
        self.model = causal_model(model)
        names = inspect.signature(self.model.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"

    def __call__(self, phase: Phase, tokens: Tensor, positions: Tensor, last: Tensor | None = None) -> Tensor:
        """Logits [rows, vocabulary] at column `last` of each row (default: its only column)."""
        import torch

        handle = None
        if last is not None:
            index = torch.arange(len(last), device=last.device)
            head = self.model.get_output_embeddings()
            assert head is not None  # as `supports` has seen
            # apply the head to one state a row: applied to whole prompts it would give [rows, tokens, vocabulary]
            handle = head.register_forward_pre_hook(lambda _, states: (states[0][index, last][:, None], *states[1:]))
        ForwardPhase.phase = phase
        try:
            arguments = {self.cache_name: rollout_cache_class()(phase), "use_cache": True}
            out = self.model(input_ids=tokens, position_ids=positions, **arguments)
        finally:
            ForwardPhase.phase = None
            if handle is not None:
                handle.remove()
        return out.logits[:, -1]  # type: ignore[no-any-return]
