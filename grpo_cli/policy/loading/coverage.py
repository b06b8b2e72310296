"""What an adapter covers: the layers it can be put on, the layers it is on, and the share of weights without an
adapter.

For a model that is loaded, or made without weights (torch's device `meta`), the modules are read. For families laid out
like Llama the shapes in `config.json` are enough, without torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.errors import RecipeError
from grpo_verifiers.names import nearest

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM

Shapes = Mapping[str, tuple[int, ...]]
LayerKind = Literal["linear", "embedding", "head", "other"]
PLACE = "`model.lora.targets`"
NOT_ADAPTED = {
    "embedding": "the model's embeddings of tokens, which are not adapted here",
    "head": "the model's output head, which is not adapted here: log-probabilities are taken from its own weights",
    "other": "no linear layer (a norm, a block of several layers, or a stack of experts)",
}
LEAST = 0.01
"""Layers with a smaller share of the weights are not listed by name."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Number of weights by layer name: of layers with an adapter, and of all others."""

    covered: Mapping[str, int]
    left: Mapping[str, int]

    @property
    def share_left(self) -> float:
        """Share of the weights without an adapter."""
        left = sum(self.left.values())
        return left / max(1, left + sum(self.covered.values()))

    def text(self) -> str:
        """One sentence."""
        on = ", ".join(f"`{name}`" for name in sorted(self.covered))
        whole = sum(self.left.values()) + sum(self.covered.values())
        named = {name: n / whole for name, n in self.left.items() if n / whole >= LEAST}
        order = sorted(named, key=lambda name: (-named[name], name))
        shares = ", ".join(f"`{name}` {named[name]:.1%}" for name in order)
        stay = f"{self.share_left:.1%} of the weights have none" + (f" ({shares})" if shares else "")
        return f"adapters are on {on}; {stay}"


def refuse_targets(layers: Mapping[str, LayerKind], targets: Sequence[str]) -> list[str]:
    """The targets that match no layer. Targets that cannot be adapted are refused first.

    Raises:
        RecipeError: a target names embeddings, the head, a norm or a block.
    """
    unknown = []
    for target in targets:
        # as peft matches: a whole name, or its end behind a dot
        found = {kind for name, kind in layers.items() if name == target or name.endswith(f".{target}")} - {"linear"}
        if found:
            kind = min(found, key=list(NOT_ADAPTED).index)
            raise RecipeError(
                f"`{target}` is {NOT_ADAPTED[kind]}",
                place=PLACE,
                hint=f"leave it out; the linear layers are {_named(layers)}",
            )
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            unknown.append(target)
    return unknown


def no_such_layer(target: str, layers: Mapping[str, LayerKind]) -> RecipeError:
    """The error for a target that matches no layer."""
    names = {name.rpartition(".")[2] for name, kind in layers.items() if kind == "linear"}
    near = nearest(target, sorted(names))
    hint = f"did you mean `{near}`? " if near else ""
    return RecipeError(
        f"the model has no layer `{target}`", place=PLACE, hint=f"{hint}its linear layers are {_named(layers)}"
    )


def _named(layers: Mapping[str, LayerKind]) -> str:
    """The last parts of the linear layers' names."""
    return ", ".join(sorted({name.rpartition(".")[2] for name, kind in layers.items() if kind == "linear"}))


def layers_of(model: CausalLM) -> dict[str, LayerKind]:
    """Every module of a model with its kind."""
    from torch import nn

    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()

    def kind(module: nn.Module) -> LayerKind:
        # look for the head first: a tied head shares its weight with the embeddings, but is a module of its own
        if module is head:
            return "head"
        if module is embeddings or isinstance(module, nn.Embedding):
            return "embedding"
        weight = getattr(module, "weight", None)
        # packed weights have other names
        is_matrix = hasattr(module, "in_features") if weight is None else weight.ndim > 1
        return "linear" if is_matrix and not any(module.children()) else "other"

    return {name: kind(module) for name, module in model.named_modules() if name}


def coverage(model: CausalLM) -> Coverage:
    """Of a model in PEFT's wrapper."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    base: Any = model.get_base_model()  # type: ignore[operator]
    # compare weights by identity: an adapter on stacked experts wraps a parameter, not a module
    adapted: set[int] = set()
    for module in base.modules():
        if isinstance(module, BaseTunerLayer):
            name = getattr(module, "parameter_name", "weight")
            adapted.add(id(getattr(module.get_base_layer(), name, None)))
    covered, left = Counter[str](), Counter[str]()
    for name, weight in base.named_parameters():
        if "lora_" in name:
            continue
        packed = getattr(weight, "quant_state", None)  # of weights in 4 bits, two in a byte
        count = weight.numel() if packed is None else prod(packed.shape)
        layer, _, own = name.replace(".base_layer", "").rpartition(".")
        kind = layer.rpartition(".")[2]
        # stacked experts have several weights of different size, each listed by its own name
        kind = kind if own in ("weight", "bias") else f"{kind}.{own}"
        (covered if id(weight) in adapted else left)[kind] += count
    return Coverage(covered, left)


def coverage_of_shapes(shapes: Shapes, targets: Sequence[str] | None) -> Coverage:
    """`coverage` computed from the shapes of tensors; `targets` None means all linear layers.

    Raises:
        RecipeError: a target that cannot be adapted.
    """
    # the same as `layers_of`, of the tensors of a family that is laid out as Llama is
    ends: dict[str, LayerKind] = {"embed_tokens": "embedding", "lm_head": "head"}
    layers: dict[str, LayerKind] = {"lm_head": "head"}  # one that is tied has no tensor
    for name, shape in shapes.items():
        layer, _, own = name.rpartition(".")
        parts = layer.split(".")
        # the blocks around a layer have no tensor of their own, and are no target
        layers |= {".".join(parts[:n]): "other" for n in range(1, len(parts))}
        if own == "weight":
            layers[layer] = ends.get(parts[-1], "linear" if len(shape) == 2 else "other")
    for target in refuse_targets(layers, targets or ()):
        raise no_such_layer(target, layers)
    covered, left = Counter[str](), Counter[str]()
    for name, shape in shapes.items():
        layer, _, own = name.rpartition(".")
        is_on = (own, layers[layer]) == ("weight", "linear") and (
            targets is None or any(layer == one or layer.endswith(f".{one}") for one in targets)
        )
        (covered if is_on else left)[layer.rpartition(".")[2]] += prod(shape)
    return Coverage(covered, left)
