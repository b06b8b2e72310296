"""`train.compile`: the decoder layers of the update through torch.compile, which fuses their small operations.

Layer by layer, not as a whole: layers of one kind share one compiled graph, so compiling takes seconds where the
whole model takes minutes, and shapes are dynamic, since every batch has other lengths. Rollouts are not compiled: they
have kernels and captured graphs of their own (`rollout/modelseat.py` sets the compiled calls aside meanwhile).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from grpo_cli.errors import SetupError
from grpo_cli.train.rollout.modelseat import causal_model


def compile_layers(model: nn.Module, backend: str | Callable[..., Any] = "inductor") -> int:
    """Compile each decoder layer in place, at its first call; returns how many there are.

    Raises:
        SetupError: the model does not say what its layers are.
    """
    base: Any = causal_model(model)
    kinds = set(getattr(base, "_no_split_modules", None) or ())
    layers = [module for module in base.modules() if type(module).__name__ in kinds]
    if not layers:
        raise SetupError(
            f"`train.compile`: `{type(base).__name__}` does not name its layers", hint="leave the key out"
        )
    for layer in layers:
        layer.compile(backend=backend, dynamic=True)
    return len(layers)
