"""Context managers that put a model into the state for work other than training: unwrapped, no dropout, right dtype.

Each state is left exactly as it was found, module by module, also when the work inside fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from torch import nn

    from grpo_cli.policy.contract import CausalLM


def causal_model(model: nn.Module) -> CausalLM:
    """The Hugging Face model under a PEFT wrapper; its adapters are inside its layers and stay in effect."""
    found = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    return cast("CausalLM", found)


def is_in_4bit(model: nn.Module) -> bool:
    """Whether its linear layers are quantised to 4 bits, which leaves only adapters to train."""
    return bool(getattr(causal_model(model), "is_loaded_in_4bit", False))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients; afterwards each module is as it was."""
    import torch

    # restore each module: `train()` would also switch modules that were in evaluation mode before
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def unwrapped_forward(model: nn.Module) -> Iterator[None]:
    """The model's own `forward`, without the autocast that accelerate puts around it when it prepares a model: that
    one keeps casts of the weights between calls, and a captured graph would read them after they are gone."""
    base: Any = causal_model(model)
    own, wrapper = base.__dict__.get("_original_forward"), base.__dict__.get("forward")
    if own is None or wrapper is None:
        yield
        return
    # set it on the instance, where accelerate put its wrapper; the class's method stays unchanged
    base.forward = own
    try:
        yield
    finally:
        base.forward = wrapper


def numerics(model: nn.Module, autocast: torch.dtype | None) -> AbstractContextManager[Any]:
    """An autocast to `dtype`; without one the model computes in the dtype of its weights."""
    import torch

    if autocast is None:
        return nullcontext()
    kind = next(model.parameters()).device.type
    # A cast kept between forward passes would outlive the weights that a captured graph reads.
    return torch.autocast(kind, autocast, cache_enabled=kind == "cpu")


@contextmanager
def off_by_a_rounding(base: CausalLM, autocast: torch.dtype | None) -> Iterator[None]:
    """Inside, every second element of the model's embeddings is off by the last bit of its compute dtype."""
    import torch

    embeddings = base.get_input_embeddings()
    off = 1 + torch.finfo(autocast or embeddings.weight.dtype).eps

    def nudged(_module: nn.Module, _inputs: object, out: torch.Tensor) -> torch.Tensor:
        odd = torch.arange(out.shape[-1], device=out.device) % 2 == 1
        return torch.where(odd, out * off, out)

    hook = embeddings.register_forward_hook(nudged)
    try:
        yield
    finally:
        hook.remove()
