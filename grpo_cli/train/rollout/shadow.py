"""Half-precision copies of float32 matrices, for generating under autocast: it would cast every matrix at every token.
Copied once a call, to the same values; projections that read the same input lie side by side and run as one product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpo_cli.train.rollout.modelseat import causal_model
from grpo_cli.train.rollout.swaps import Swap

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Group:
    """Linear modules with one input. The first one called computes all; the others hand out their part."""

    def __init__(self, modules: list[Any], dtype: torch.dtype) -> None:
        self.modules, self.dtype = modules, dtype
        self.sizes = [int(module.weight.shape[0]) for module in modules]
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self._input: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def refresh(self) -> None:
        """Copies the weights as they are now; the copies stay where they are."""
        import torch

        if self.weight is None:
            first = self.modules[0].weight
            self.weight = torch.empty(
                (sum(self.sizes), first.shape[1]), dtype=self.dtype, device=first.device
            )
            if self.modules[0].bias is not None:
                self.bias = torch.empty(sum(self.sizes), dtype=self.dtype, device=first.device)
        with torch.no_grad():
            torch._foreach_copy_(list(torch.split(self.weight, self.sizes)), [m.weight for m in self.modules])
            if self.bias is not None:
                torch._foreach_copy_(list(torch.split(self.bias, self.sizes)), [m.bias for m in self.modules])

    def release(self) -> None:
        """Frees the copies."""
        self.weight = self.bias = self._input = None
        self._parts = {}

    def product(self, x: Tensor) -> Tensor:
        """All modules' outputs side by side."""
        import torch

        if self.weight is None:
            self.refresh()
        return torch.nn.functional.linear(x.to(self.dtype), self.weight, self.bias)  # type: ignore[arg-type]

    def member(self, index: int) -> Callable[[Tensor], Tensor]:
        """The forward of one module."""

        import torch

        def forward(x: Tensor) -> Tensor:
            if self._input is not x or index not in self._parts:
                self._input = x
                self._parts = dict(enumerate(torch.split(self.product(x), self.sizes, -1)))
            part = self._parts.pop(index)
            if not self._parts:
                self._input = None
            return part

        return forward if len(self.modules) > 1 else self.product


class Shadow:
    """Every plain float32 linear module of the model, grouped where siblings share their input."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        import torch

        self.groups: list[Group] = []
        self.group_of: dict[int, Group] = {}
        taken: set[int] = set()

        def plain(module: Any) -> bool:
            return (
                type(module) is torch.nn.Linear
                and module.weight.dtype == torch.float32
                and id(module) not in taken
            )

        def add(modules: list[Any]) -> None:
            group = Group(modules, dtype)
            self.groups.append(group)
            for module in modules:
                taken.add(id(module))
                self.group_of[id(module)] = group

        base = causal_model(model)
        for parent in base.modules():
            for names in GROUPS:
                siblings = [getattr(parent, name, None) for name in names]
                if (
                    all(plain(m) for m in siblings)
                    and len({m.bias is None for m in siblings if m is not None}) == 1
                ):
                    add(siblings)
        for module in base.modules():
            if plain(module):
                add([module])

    def swaps(self) -> list[Swap]:
        """The modules' forwards through the copies."""
        return [
            Swap(module, "forward", group.member(index))
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
