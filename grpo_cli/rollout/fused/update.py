"""The update's small operations in fewer launches, on a CUDA device. A small model's update spends more time on
launches than on arithmetic, and every intermediate result between two launches is kept for the backward pass.

Norms, gated activations and the rotary embedding run as one kernel each, forward and backward; the activation is
recomputed in the backward pass. Under autocast an input that several projections read is cast once, not once for each.
A replacement is used only if its values and gradients equal those of the model's own code on this device.

How this works: `update_patches` makes candidates (`_norms`, `_gates`, `_casts`, `_rotary`), each compared with the module it
replaces by `same_with_gradients`, forward and backward. Those that pass are tested together on the whole model: its
logits may change by no more than a rounding of the embeddings changes them.

    norm:  y = w x / sqrt(mean(x^2) + e)     gate:  y = silu(g) u, silu(g) = g / (1 + exp(-g))     rotary:  y = x cos + rotate(x) sin
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from grpo_cli.policy.contract import CausalLM
from grpo_cli.policy.modes import causal_model, evaluating, numerics, off_by_a_rounding
from grpo_cli.rollout.fused.launch import gated, gated_back, norm, norm_back, turn
from grpo_cli.rollout.fused.merged_weights import GROUPS
from grpo_cli.rollout.fused.patches import Patch, epsilon_of, patched, random_angles, rotary_home

CLOSE = 3e-2
"""The largest relative error of logits in half precision; in float32 it is `EXACT`."""
EXACT = 1e-4
WIDEST = 1 << 14
"""The widest norm that one program holds."""


def update_patches(model: nn.Module, autocast: torch.dtype | None) -> list[Patch]:
    """The replacements that pass on this model; none if together they change its logits by more than rounding."""
    base: Any = causal_model(model)
    patches = [*_norms(base), *_casts(base, autocast, _gates(base, autocast)), *_rotary(base, autocast)]
    if not patches:
        return []
    # each one is within rounding; all together must change no more than one rounding of the embeddings
    error, rounding = logits_errors(base, patches, autocast)
    bound = EXACT if autocast is None and next(base.parameters()).dtype == torch.float32 else CLOSE
    return patches if error <= max(bound, 2 * rounding) else []


def logits_errors(base: CausalLM, patches: list[Patch], autocast: torch.dtype | None) -> tuple[float, float]:
    """Relative error of the logits of a few random tokens, and for comparison the relative change of the logits when
    the embeddings are off by one rounding."""
    weight = base.get_input_embeddings().weight
    # a generator of its own: a run's draws must not depend on whether this check ran
    generator = torch.Generator("cpu").manual_seed(0)
    tokens = torch.randint(len(weight), (2, 24), generator=generator, device="cpu").to(weight.device)

    found: list[Tensor] = []
    with evaluating(base), numerics(base, autocast):
        for state in (nullcontext(), patched(patches), off_by_a_rounding(base, autocast)):
            with state:
                found.append(base(input_ids=tokens, use_cache=False).logits.float())
    expected, got, nudged = found
    size = expected.norm()
    return float((got - expected).norm() / size), float((nudged - expected).norm() / size)


def _norms(base: CausalLM) -> list[Patch]:
    verdicts: dict[Any, int | None] = {}
    patches = []
    for module in base.modules():
        epsilon = epsilon_of(module)
        weight = getattr(module, "weight", None)
        if "RMSNorm" not in type(module).__name__ or epsilon is None or not isinstance(weight, nn.Parameter):
            continue
        forms = [
            _norm_of(module, epsilon, form) for form in (FusedRmsNorm.of, lambda x, w, e: rms_norm(x, w.shape, w, e))
        ]
        key = (type(module), weight.shape, weight.dtype, epsilon)
        if key not in verdicts:
            # three dimensions, as in a batch: a stand-in that flattens must give them back
            x = torch.randn((3, 5, len(weight)), device=weight.device, dtype=weight.dtype)
            # try our kernel first, then torch's; the first that agrees is used
            same = (i for i, form in enumerate(forms) if same_with_gradients(module, form, x, also=[weight]))
            verdicts[key] = next(same, None)
        if (chosen := verdicts[key]) is not None:
            patches.append(Patch(module, "forward", forms[chosen]))
    return patches


def _norm_of(
    module: Any, epsilon: float, form: Callable[[Tensor, Tensor, float], Tensor]
) -> Callable[[Tensor], Tensor]:
    own = module.forward

    def replacement(x: Tensor) -> Tensor:
        # the comparison holds only for these dtypes
        weight = module.weight
        return form(x, weight, epsilon) if x.dtype == weight.dtype and x.device == weight.device else own(x)

    return replacement


class FusedRmsNorm(torch.autograd.Function):
    """Root mean square norm over the last dimension; keeps its input."""

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """`x` [..., width] normed, times `weight` [width].

        Raises:
            ValueError: a row is wider than one block of a kernel.
        """
        if weight.dim() != 1 or len(weight) > WIDEST:
            raise ValueError("a norm over more than one block")
        found: Tensor = cls.apply(x, weight, epsilon)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """As `of`, [..., width]."""
        ctx.save_for_backward(x, weight)
        ctx.epsilon = epsilon
        return norm(x, weight, epsilon, False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of the input and the weight."""
        x, weight = ctx.saved_tensors
        return (*norm_back(grads[0], x, weight, ctx.epsilon), None)


class FusedSiluMul(torch.autograd.Function):
    """silu(gate) x up; keeps both and makes the activation again."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up, [..., width] each."""
        # a third less than torch keeps: silu's output is made again from the gate
        ctx.save_for_backward(gate, up)
        return gated(gate, up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of both."""
        return gated_back(grads[0], *ctx.saved_tensors)


def _gates(base: CausalLM, autocast: torch.dtype | None) -> list[Patch]:
    verdicts: dict[type, bool] = {}
    patches = []
    modules: list[Any] = list(base.modules())
    for module in modules:
        names = ("gate_proj", "up_proj", "down_proj", "act_fn")
        if not (type(module).__name__.endswith("MLP") and all(hasattr(module, name) for name in names)):
            continue
        replacement = partial(_gated_mlp, module)
        if type(module) not in verdicts:
            weight = next(module.parameters())
            x = torch.randn((3, 5, module.gate_proj.in_features), device=weight.device)
            # an adapter may have another dtype than its input
            x = x.to(autocast or base.get_input_embeddings().weight.dtype)
            with numerics(base, autocast):
                verdicts[type(module)] = same_with_gradients(module, replacement, x)
        # a model's MLPs are of one class and width: the verdict on the first holds for all
        if verdicts[type(module)]:
            patches.append(Patch(module, "forward", replacement))
    return patches


def _gated_mlp(mlp: Any, x: Tensor) -> Tensor:
    return mlp.down_proj(FusedSiluMul.apply(mlp.gate_proj(x), mlp.up_proj(x)))  # type: ignore[no-any-return, no-untyped-call]


class FusedRotary(torch.autograd.Function):
    """Rotary embedding of queries and keys [batch, heads, tokens, width], as `kind`; keeps only the angles."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, kind: torch.dtype) -> Any:
        """Queries [batch, heads, tokens, width] and keys, turned."""
        ctx.save_for_backward(cos, sin)
        ctx.kinds = q.dtype, k.dtype
        return turn(q, k, cos, sin, kind)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of queries and keys: the angles turn back by as much."""
        cos, sin = ctx.saved_tensors
        # a rotation's inverse is its transpose, so the gradient is turned by the negative angle
        grad_q, grad_k = (g if g.stride(-1) == 1 else g.contiguous() for g in grads)
        grad_q, grad_k = turn(grad_q, grad_k, cos, sin, ctx.kinds[0], back=True)
        return grad_q, grad_k.to(ctx.kinds[1]), None, None, None


def _rotary(base: CausalLM, autocast: torch.dtype | None) -> list[Patch]:
    home, name, original = rotary_home(base)
    if original is None:
        return []
    device = next(base.parameters()).device

    def replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        # a reward model of the same family calls it too, perhaps with another dtype or on another device
        if (
            unsqueeze_dim != 1
            or (q.stride(-1), k.stride(-1)) != (1, 1)
            or q.device != device
            or (autocast is not None and not torch.is_autocast_enabled(device.type))
        ):
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        # attention casts them to the type of an autocast next
        return FusedRotary.apply(  # type: ignore[no-untyped-call]
            q, k, cos, sin, autocast or torch.promote_types(q.dtype, cos.dtype)
        )

    def as_cast(*inputs: Tensor) -> Any:
        turned = original(*inputs)
        return [x.to(autocast) for x in turned] if autocast is not None else turned

    q, k, cos, sin = random_angles(base)
    if autocast is not None:
        q, k = q.to(autocast), k.to(autocast)
    with numerics(base, autocast):
        proven = same_with_gradients(as_cast, replacement, q, k, cos, sin)
    return [Patch(home, name, replacement)] if proven else []


def _casts(base: CausalLM, autocast: torch.dtype | None, gates: list[Patch]) -> list[Patch]:
    """The replacements for modules whose input goes only to several projections; they wrap those of `gates`."""
    if autocast is None:
        return gates
    # a module can have only one replacement: the cast wraps that of the gate
    found = {id(patch.owner): patch for patch in gates}
    for module in base.modules():
        if any(all(isinstance(getattr(module, n, None), nn.Module) for n in names) for names in GROUPS):
            own = found[id(module)].replacement if id(module) in found else module.forward
            found[id(module)] = Patch(module, "forward", _cast_first(own, autocast))
    return list(found.values())


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


def same_with_gradients(
    original: Callable[..., Any], replacement: Callable[..., Any], *inputs: Tensor, also: Sequence[Tensor] = ()
) -> bool:
    """Whether a replacement computes the same as the original, including dtypes and shapes.

    Args:
        inputs: of any shapes; the first two get gradients.
        also: weights whose gradients are compared as well, of any shapes.

    Returns:
        True where every number, forward and backward, is within four roundings of the largest.
    """
    results = []
    for form in (original, replacement):
        leaves = [x.detach().clone().requires_grad_(i < 2) for i, x in enumerate(inputs)]
        try:
            out = form(*leaves)
            out = [out] if isinstance(out, Tensor) else list(out)
            # weight each element differently: a plain sum would not detect a gradient in the wrong place
            weights = [torch.linspace(-1, 1, x.numel(), device=x.device).view(x.shape) for x in out]
            total: Any = sum((x.float() * w).sum() for x, w in zip(out, weights, strict=True))
            grads = torch.autograd.grad(
                total, [*leaves[:2], *(x for x in also if x.requires_grad)]
            )  # none is left on the model's own weights
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
