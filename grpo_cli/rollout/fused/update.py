"""The update's small operations in fewer launches, on a CUDA device: a small model's update waits for launches more than
for arithmetic, and what sits between two of them is kept for the backward pass.

Norms run as torch's own fused operation, the rotary embedding as one kernel each way, and under autocast an input that
several projections read is cast once, not once for each. Each is taken only where its values and gradients are those
of the model's own code on this device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.rollout.fused.launch import turn
from grpo_cli.rollout.fused.merged_weights import GROUPS
from grpo_cli.rollout.fused.swaps import Swap, epsilon_of, random_angles, rotary_home, swapped

CLOSE = 3e-2
"""The largest relative error of half-precision logits; of float32 ones it is `EXACT`."""
EXACT = 1e-4


def update_swaps(model: nn.Module, autocast: torch.dtype | None) -> list[Swap]:
    """The stand-ins that prove themselves on this model; none where the model's logits change by more than rounding."""
    base: Any = causal_model(model)
    swaps = [*_norms(base), *_rotary(base, autocast), *_casts(base, autocast)]
    return swaps if swaps and logits_error(base, swaps, autocast) <= _bound(base, autocast) else []


def logits_error(base: Any, swaps: list[Swap], autocast: torch.dtype | None) -> float:
    """Relative error of the logits of a few random tokens."""
    weight = base.get_input_embeddings().weight
    generator = torch.Generator("cpu").manual_seed(0)
    tokens = torch.randint(len(weight), (2, 24), generator=generator, device="cpu").to(weight.device)
    with evaluating(base), numerics(base, autocast):
        expected = base(input_ids=tokens, use_cache=False).logits.float()
        with swapped(swaps):
            got = base(input_ids=tokens, use_cache=False).logits.float()
    return float((got - expected).norm() / expected.norm())


def _bound(base: Any, autocast: torch.dtype | None) -> float:
    return EXACT if autocast is None and next(base.parameters()).dtype == torch.float32 else CLOSE


def _norms(base: Any) -> list[Swap]:
    verdicts: dict[Any, bool] = {}
    swaps = []
    for module in base.modules():
        epsilon = epsilon_of(module)
        weight = getattr(module, "weight", None)
        if "RMSNorm" not in type(module).__name__ or epsilon is None or not isinstance(weight, nn.Parameter):
            continue
        stand_in = _norm_of(module, epsilon)
        key = (type(module), weight.shape, weight.dtype, epsilon)
        if key not in verdicts:
            x = torch.randn((3, 5, len(weight)), device=weight.device, dtype=weight.dtype)
            verdicts[key] = same_with_gradients(module, stand_in, x)
        if verdicts[key]:
            swaps.append(Swap(module, "forward", stand_in))
    return swaps


def _norm_of(module: Any, epsilon: float) -> Callable[[Tensor], Tensor]:
    own = module.forward

    def stand_in(x: Tensor) -> Tensor:
        weight = module.weight
        return rms_norm(x, weight.shape, weight, epsilon) if x.dtype == weight.dtype else own(x)

    return stand_in


class Turned(torch.autograd.Function):
    """Rotary embedding of queries and keys [batch, heads, tokens, width], as `kind`; keeps only the angles."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, kind: torch.dtype) -> Any:
        """Queries and keys, turned."""
        ctx.save_for_backward(cos, sin)
        ctx.kinds = q.dtype, k.dtype
        return turn(q, k, cos, sin, kind)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Turned back."""
        cos, sin = ctx.saved_tensors
        grad_q, grad_k = (g if g.stride(-1) == 1 else g.contiguous() for g in grads)
        grad_q, grad_k = turn(grad_q, grad_k, cos, sin, ctx.kinds[0], back=True)
        return grad_q, grad_k.to(ctx.kinds[1]), None, None, None


def _rotary(base: Any, autocast: torch.dtype | None) -> list[Swap]:
    home, name, original = rotary_home(base)
    if original is None:
        return []
    device = next(base.parameters()).device

    def stand_in(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        # a reward model of the same family calls it as well: in numbers of its own, perhaps on another device
        if (
            unsqueeze_dim != 1
            or (q.stride(-1), k.stride(-1)) != (1, 1)
            or q.device != device
            or (autocast is not None and not torch.is_autocast_enabled(device.type))
        ):
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        # attention casts them to the type of an autocast next
        return Turned.apply(  # type: ignore[no-untyped-call]
            q, k, cos, sin, autocast or torch.promote_types(q.dtype, cos.dtype)
        )

    def as_cast(*inputs: Tensor) -> Any:
        turned = original(*inputs)
        return [x.to(autocast) for x in turned] if autocast is not None else turned

    q, k, cos, sin = random_angles(base)
    if autocast is not None:
        q, k = q.to(autocast), k.to(autocast)
    with numerics(base, autocast):
        proven = same_with_gradients(as_cast, stand_in, q, k, cos, sin)
    return [Swap(home, name, stand_in)] if proven else []


def _casts(base: Any, autocast: torch.dtype | None) -> list[Swap]:
    """Modules whose input goes to several projections and nowhere else."""
    if autocast is None:
        return []
    found = []
    for module in base.modules():
        if any(all(isinstance(getattr(module, n, None), nn.Module) for n in names) for names in GROUPS):
            found.append(Swap(module, "forward", _cast_first(module.forward, autocast)))
    return found


def _cast_first(own: Callable[..., Any], kind: torch.dtype) -> Callable[..., Any]:
    def forward(*args: Any, **named: Any) -> Any:
        states = args[0] if args else named.get("hidden_states")
        # no autocast: `generate` of a model under adapters
        if states is None or not torch.is_autocast_enabled(states.device.type):
            return own(*args, **named)
        if args:
            return own(states.to(kind), *args[1:], **named)
        return own(**{**named, "hidden_states": states.to(kind)})

    return forward


def same_with_gradients(original: Callable[..., Any], stand_in: Callable[..., Any], *inputs: Tensor) -> bool:
    """Equal types and shapes; values, and gradients of the first two inputs, within a few roundings of the type."""
    results = []
    for form in (original, stand_in):
        leaves = [x.detach().clone().requires_grad_(i < 2) for i, x in enumerate(inputs)]
        try:
            out = form(*leaves)
            out = [out] if isinstance(out, Tensor) else list(out)
            weights = [torch.linspace(-1, 1, x.numel(), device=x.device).view(x.shape) for x in out]
            total: Any = sum((x.float() * w).sum() for x, w in zip(out, weights, strict=True))
            grads = torch.autograd.grad(total, leaves[:2])  # none is left on the model's own weights
        # A kernel's build can fail in any way, and a module can take other inputs; its own code always works.
        except Exception:  # noqa: BLE001
            return False
        results.append([*out, *grads])
    (ours, theirs) = results[1], results[0]
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and (a.float() - b.float()).abs().max() <= 4 * torch.finfo(a.dtype).eps * b.float().abs().max()
        for a, b in zip(ours, theirs, strict=True)
    )
