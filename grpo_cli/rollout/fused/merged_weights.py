"""A model's matrices in the layout that the rollout uses. Projections with the same input are in one buffer and run as
one product. In the weights' own dtype they are moved there, so nothing is stored twice. Under autocast float32 weights
are copied to half precision once a call, with the same values that autocast would compute at every token.

How this works: `MergedWeights` finds the plain linear modules that belong together and makes a `WeightGroup` of each set, with
one buffer for their weights. The modules' forwards are replaced by `member`s of the group: the first one that is called with
an input computes one product for all, the others return their part of it. A product of [n, width] with a matrix twice as tall
takes hardly longer than one with half of it while n is small: reading the weights is what takes the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model
from grpo_cli.rollout.fused.patches import Patch

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class WeightGroup:
    """Linear modules with one input. The first one called computes all; the others return their part."""

    def __init__(self, modules: list[Any], dtype: torch.dtype) -> None:
        self.modules, self.dtype = modules, dtype
        self.sizes = [int(module.weight.shape[0]) for module in modules]
        # another dtype needs a copy; weights of the same dtype are moved, so that the optimizer writes into the buffer
        self.copied = modules[0].weight.dtype != dtype
        self.moved_away = False
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self._input: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def refresh(self) -> None:
        """Updates the copies, in place, with the current weights. Moved weights need no update, unless another library
        (such as DeepSpeed) has moved them elsewhere: then each module runs alone."""
        import torch

        kinds = ["weight"] if self.modules[0].bias is None else ["weight", "bias"]
        with torch.no_grad():
            for kind in kinds:
                parameters: list[Any] = [getattr(module, kind) for module in self.modules]
                is_new = getattr(self, kind) is None
                if is_new:
                    shape = (sum(self.sizes), *parameters[0].shape[1:])
                    buffer = torch.empty(shape, dtype=self.dtype, device=parameters[0].device)
                    setattr(self, kind, buffer)
                # views of the buffer, a module's each
                parts = torch.split(getattr(self, kind), self.sizes)
                if self.copied:
                    # all parts of a group in one launch
                    torch._foreach_copy_(parts, parameters)
                elif is_new:
                    for part, parameter in zip(parts, parameters, strict=True):
                        part.copy_(parameter)
                        # the parameter keeps its identity, so the optimizer's state and its name stay with it
                        parameter.data = part
                else:
                    pairs = zip(parts, parameters, strict=True)
                    self.moved_away |= any(p.data_ptr() != part.data_ptr() for part, p in pairs)

    def release(self) -> None:
        """Frees copies; what was moved stays."""
        self._input, self._parts = None, {}
        if self.copied:
            self.weight = self.bias = None

    def product(self, x: Tensor) -> Tensor:
        """[..., sum of the modules' widths]: all modules' outputs side by side, of `x` [..., width]."""
        import torch

        if self.weight is None:
            self.refresh()
        # the modules' weights are current, the buffer is not
        if self.moved_away:
            return torch.cat([torch.nn.functional.linear(x, m.weight, m.bias) for m in self.modules], -1)
        return torch.nn.functional.linear(x.to(self.dtype), self.weight, self.bias)  # type: ignore[arg-type]

    def member(self, index: int) -> Callable[[Tensor], Tensor]:
        """The forward of one module, from [..., width] to its own part of `product`.

        The input is recognised by identity: the first module called with a tensor computes for all, the others return theirs.
        """
        import torch

        def forward(x: Tensor) -> Tensor:
            # identity, not equality: two equal inputs would cost a comparison, and a module called twice computes anew
            if self._input is not x or index not in self._parts:
                self._input = x
                self._parts = dict(enumerate(torch.split(self.product(x), self.sizes, -1)))
            part = self._parts.pop(index)
            if not self._parts:
                self._input = None
            return part

        return forward if len(self.modules) > 1 else self.product


class MergedWeights:
    """Groups of plain linear modules of the model: those that share an input; and each other one whose weight has
    another dtype than `dtype`."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        import torch

        self.groups: list[WeightGroup] = []
        self.group_of: dict[int, WeightGroup] = {}
        kinds = (dtype, torch.float32)

        def plain(module: Any) -> bool:
            # a subclass (an adapter, a quantised layer) computes more than this product
            return type(module) is torch.nn.Linear and module.weight.dtype in kinds and id(module) not in self.group_of

        def add(modules: list[Any]) -> None:
            group = WeightGroup(modules, dtype)
            self.groups.append(group)
            self.group_of.update((id(module), group) for module in modules)

        # siblings first: the others are copied singly, and only if their dtype differs
        base = causal_model(model)
        for parent in base.modules():
            for names in GROUPS:
                siblings: list[Any] = [getattr(parent, name, None) for name in names]
                if not all(plain(m) for m in siblings):
                    continue
                weights = [m.weight for m in siblings]
                # one product needs one type, one device, and all or none with a bias; a weight with a second place
                # (tied) stays where it is
                alike = len({(w.dtype, w.device, w.shape[1], w.requires_grad) for w in weights}) == 1
                alike = alike and len({m.bias is None for m in siblings}) == 1
                if alike and len({id(w) for w in weights}) == len(weights):
                    add(siblings)
        for module in base.modules():
            if plain(module) and module.weight.dtype != dtype:
                add([module])

    def patches(self) -> list[Patch]:
        """The modules' forwards through the buffers."""
        return [
            Patch(module, "forward", group.member(index))
            for group in self.groups
            for index, module in enumerate(group.modules)
        ]

    def refresh(self) -> None:
        """Follows the optimizer."""
        for group in self.groups:
            group.refresh()

    def release(self) -> None:
        """Frees the copies."""
        for group in self.groups:
            group.release()
