"""What a critic reads an answer with: a copy of the policy's layers, a copy of its adapter alone, or the policy itself.

B rows, S tokens of prompt and completion.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from grpo_cli.policy.modes import causal_model, evaluating
from grpo_cli.policy.positions import positions_of


class CriticBackbone(Protocol):
    """Layers without an output head."""

    trained: list[nn.Parameter]
    """What the critic changes of them."""

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, S, hidden) the states of the last layer, without dropout."""


class LayersBackbone:
    """Layers of the critic's own, all of which it trains."""

    def __init__(self, base: Any, *, absolute: bool) -> None:
        """`absolute`: the layers have to be told where tokens stand."""
        self.base, self.absolute = base, absolute
        self.base.eval()  # dropout would make a value of the start differ from the same value of the update
        self.base.requires_grad_(True)
        self.trained: list[nn.Parameter] = list(self.base.parameters())

    @classmethod
    def copied(cls, model: nn.Module, *, absolute: bool) -> LayersBackbone:
        """The layers of the policy as it is now, in memory of their own."""
        # without the head, which would be a vocabulary's worth of unused weights
        return cls(deepcopy(causal_model(model).base_model), absolute=absolute)

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, S, hidden)."""
        return _states(self.base, ids_BS, mask_BS, self.absolute)


class AdapterBackbone:
    """The policy's own layers with a second adapter in place of the policy's: one base, in memory once."""

    def __init__(self, model: nn.Module, *, absolute: bool) -> None:
        self.base: Any = causal_model(model).base_model
        self.absolute = absolute
        self.named = {
            name: nn.Parameter(p.detach().clone())
            for name, p in self.base.named_parameters()
            if p.requires_grad
        }
        self.trained = list(self.named.values())

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, S, hidden)."""
        # `evaluating` switches gradients off, and an update of the critic wants them
        grad = torch.is_grad_enabled()
        with evaluating(self.base), torch.set_grad_enabled(grad):
            return _states(self._call, ids_BS, mask_BS, self.absolute)

    def _call(self, **inputs: Any) -> Any:
        # the second adapter stands in for the policy's during this call, and the policy's is not touched
        return torch.func.functional_call(self.base, dict[str, Tensor](self.named), kwargs=inputs)


class PolicyBackbone:
    """The policy's layers as they are at the moment; the critic is a head on them and changes nothing below it."""

    def __init__(self, model: nn.Module, *, absolute: bool) -> None:
        self.base: Any = causal_model(model).base_model
        self.absolute = absolute
        self.trained: list[nn.Parameter] = []

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, S, hidden), without a graph."""
        with evaluating(self.base):
            return _states(self.base, ids_BS, mask_BS, self.absolute)


def _states(call: Any, ids_BS: Tensor, mask_BS: Tensor, absolute: bool) -> Tensor:
    told = {"position_ids": positions_of(mask_BS)} if absolute else {}
    found: Tensor = call(input_ids=ids_BS, attention_mask=mask_BS, use_cache=False, **told).last_hidden_state
    return found
