"""Fused replacements of the small operations between a model's matrix products, active only while the engine generates.
A replacement is used only if it reproduces the original on random input in the model's dtype; the name of a class alone
is never trusted.

How this works: `find_patches` walks the modules; norms, gated MLPs and the rotary function of the model's file are candidates.
One module of each kind and shape is compared with its replacement; the result holds for all modules like it. `patched`
installs the replacements for one call and removes them again, so that training runs the model's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating
from grpo_cli.rollout.fused.launch import gated, norm, rotate

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Patch:
    """`owner.name` becomes `replacement` while patched."""

    owner: Any
    name: str
    replacement: Callable[..., Any]


def find_patches(model: nn.Module) -> list[Patch]:
    """Every replacement that passed its comparison on this model, with the current dtype and autocast."""
    import torch

    base = causal_model(model)
    patches: list[Patch] = []
    # by kind and shape: a model of 32 layers has 65 norms, and each check costs launches
    verdicts: dict[Any, Any] = {}
    with evaluating(base):
        for module in base.modules():
            kind = type(module).__name__
            if "RMSNorm" in kind and isinstance(getattr(module, "weight", None), torch.nn.Parameter):
                key = (type(module), module.weight.shape, module.weight.dtype)
                if key not in verdicts:
                    weight: Any = module.weight
                    fits = epsilon_of(module) is not None and weight.dim() == 1
                    x = _random(module, None) if fits else None
                    # try both forms: families with the same class name differ in whether 1 is added to the weight
                    forms = (
                        one for one in (False, True) if x is not None and _agrees(module, _norm_of(module, one), x)
                    )
                    verdicts[key] = next(forms, None)
                if verdicts[key] is not None:
                    patches.append(Patch(module, "forward", _norm_of(module, verdicts[key])))
            elif kind.endswith("MLP") and all(
                hasattr(module, n) for n in ("gate_proj", "up_proj", "down_proj", "act_fn")
            ):
                if type(module) not in verdicts:
                    x = _random(module, module.gate_proj, base.get_input_embeddings().weight.dtype)
                    verdicts[type(module)] = _agrees(module, _gated_of(module), x)
                if verdicts[type(module)]:
                    # one a module: each closes over its own weights
                    patches.append(Patch(module, "forward", _gated_of(module)))
        return patches + _rotary_patch(base)


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Inside, the replacements are active; afterwards the originals are restored."""
    # `forward` is a method of the class: the patch is set on the instance, and deleted there afterwards
    before = [(patch, patch.name in vars(patch.owner), getattr(patch.owner, patch.name)) for patch in patches]
    try:
        for patch in patches:
            setattr(patch.owner, patch.name, patch.replacement)
        yield
    finally:
        for patch, own, original in before:
            if own:
                setattr(patch.owner, patch.name, original)
            else:
                delattr(patch.owner, patch.name)


def epsilon_of(module: nn.Module) -> float | None:
    """The epsilon of a norm; None if no attribute of a known name holds it."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    return None


def _norm_of(module: nn.Module, add_one: bool) -> Callable[[Tensor], Tensor]:
    epsilon: Any = epsilon_of(module)
    return lambda x: norm(x, module.weight, epsilon, add_one)  # type: ignore[arg-type]


def _gated_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    mlp: Any = module
    return lambda x: mlp.down_proj(gated(mlp.gate_proj(x), mlp.up_proj(x)))


def _random(module: nn.Module, into: Any, kind: torch.dtype | None = None) -> Tensor:
    import torch

    weight: Any = next(module.parameters())
    width = weight.shape[-1] if into is None else into.in_features
    generator = torch.Generator("cpu").manual_seed(0)
    # drawn on the CPU with a seed: the input is the same on every device, and no global random state changes
    x = torch.randn((5, 1, width), generator=generator, device="cpu") * 2
    return x.to(device=weight.device, dtype=kind or weight.dtype)  # quantised weights are bytes


def _agrees(original: Callable[..., Any], replacement: Callable[..., Any], *inputs: Tensor) -> bool:
    """Equal types and shapes, and values within two roundings of the type."""
    import torch

    try:
        ours, theirs = replacement(*inputs), original(*inputs)
    except (ValueError, TypeError, RuntimeError, AttributeError):
        return False
    # relative to the largest value: another order of summing changes a result by a rounding of the sum, not of each
    # term
    ours, theirs = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (ours, theirs))
    return all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and (a.float() - b.float()).abs().max() <= 2 * torch.finfo(a.dtype).eps * b.float().abs().max()
        for a, b in zip(ours, theirs, strict=True)
    )


def rotary_home(base: nn.Module) -> tuple[Any, str, Callable[..., Any] | None]:
    """The rotary function of the model's code: module, name, and the function (None if there is none)."""
    # a global of the file, not a method: it is replaced there, for all models of the family
    home, name = sys.modules[type(base).__module__], "apply_rotary_pos_emb"
    return home, name, getattr(home, name, None)


def random_angles(base: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random queries, keys [3, heads, 2, width], cosines and sines [3, 2, width] of the model's sizes and type."""
    import torch

    whole: Any = base.config
    config = whole.get_text_config()
    heads = config.num_attention_heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    weight = next(base.parameters())
    generator = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device=weight.device, dtype=weight.dtype)

    q, k = draw(3, 2, heads, width).transpose(1, 2), draw(3, 2, kept, width).transpose(1, 2)
    return q, k, draw(3, 2, width), draw(3, 2, width)


def _rotary_patch(base: nn.Module) -> list[Patch]:
    home, name, original = rotary_home(base)
    if original is None:
        return []
    q, k, cos, sin = random_angles(base)
    # the kernel rotates the two halves of a head
    if q.shape[-1] % 2:
        return []
    device = q.device

    def replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        # a reward model of the same family, on another device, may judge meanwhile
        form = rotate if q.device == cos.device == device else original
        return form(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)

    return [Patch(home, name, replacement)] if _agrees(original, rotate, q, k, cos, sin) else []
