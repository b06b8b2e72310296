"""The direction in which each row's samples would move the model: a sketch of its group's gradient, compared with the
others'.

The gradient is that of the second factor of a LoRA of rank 4 whose first factor is drawn by chance and whose second one is
zero: for each linear layer the whole weight's gradient, seen through 4 random directions of its input. No adapter is made and no
weight is touched. All layers are hashed into 4,096 numbers with random signs (a count sketch), which keeps scalar products on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.policy.policy import Policy

RANK = 4
WIDTH = 4096


@dataclass
class GradientSketch:
    """Sketches of the group losses of one policy, all through the same random directions."""

    policy: Policy
    seed: int = 0
    _directions: dict[nn.Module, Tensor] = field(default_factory=dict, init=False)

    def of(
        self, prompt_ids: Sequence[int], completions: Sequence[Sequence[int]], advantages: Sequence[float]
    ) -> Tensor | None:
        """The sketch of the gradient of a group's loss, -1/G sum_i A_i mean_t log p(token t of completion i).

        Args:
            prompt_ids: token ids that all completions follow.
            completions: token ids, one list a sample; empty ones are left out.
            advantages: one a sample, as training would have them.

        Returns:
            [4096] float32 on the CPU; None where no advantage is other than 0.
        """
        kept = [(ids, a) for ids, a in zip(completions, advantages, strict=True) if ids and a]
        if not kept:
            return None
        rows = [[*prompt_ids, *ids] for ids, _ in kept]
        longest = max(map(len, rows))
        # on the right, which a causal model never looks at
        tokens_BS = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=self.policy.device)
        mask_BS = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self.policy.device)
        weights_B = torch.tensor([a / len(completions) for _, a in kept], device=self.policy.device)
        lengths_B = torch.tensor([len(ids) for ids, _ in kept], device=self.policy.device)
        places_S = torch.arange(tokens_BS.shape[1] - 1, device=self.policy.device) + 1
        said_BS = (places_S >= len(prompt_ids)) & (places_S < len(prompt_ids) + lengths_B[:, None])
        sketch = torch.zeros(WIDTH)
        with evaluating(self.policy.model), torch.enable_grad(), self._watched(sketch) as start:
            with numerics(self.policy.model, self.policy.autocast):
                logits: Any = self.policy.model(input_ids=tokens_BS, attention_mask=mask_BS).logits
            logps_BS = torch.log_softmax(logits[:, :-1].float(), dim=-1)
            chosen_BS = logps_BS.gather(-1, tokens_BS[:, 1:, None]).squeeze(-1)
            # a banned token has no finite log-prob, but no sample contains one
            means_B = torch.where(said_BS, chosen_BS, 0.0).sum(dim=1) / lengths_B
            # back to the embeddings' output: gradients pass every layer's hook, and none is made of a weight
            torch.autograd.grad(-(weights_B * means_B).sum(), start)
        return sketch

    @contextmanager
    def _watched(self, sketch: Tensor) -> Iterator[list[Tensor]]:
        """Inside, a backward pass adds each linear layer's part to the sketch; yields the tensor that the gradient ends
        at."""
        base = causal_model(self.policy.model)
        head = base.get_output_embeddings()
        start: list[Tensor] = []

        def leaf(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
            # gradients stop here: below are only the embeddings
            start.append(output.detach().requires_grad_(True))
            return start[-1]

        hooks = [base.get_input_embeddings().register_forward_hook(leaf)]
        layers = [
            m
            for m in base.modules()
            if m is not head and (isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D")  # GPT-2's
        ]
        for number, layer in enumerate(layers):
            hooks.append(layer.register_forward_hook(_Part(self, number, sketch)))
        try:
            yield start
        finally:
            for hook in hooks:
                hook.remove()

    def directions(self, layer: nn.Module, number: int, width: int) -> Tensor:
        """[4, width] random directions of a layer's input, the same at each call."""
        if layer not in self._directions:
            chance = torch.Generator().manual_seed(_mixed(self.seed, 2 * number))
            self._directions[layer] = torch.randn(RANK, width, generator=chance) / width**0.5
        return self._directions[layer]


@dataclass(frozen=True)
class _Part:
    """The hook of one linear layer."""

    sketcher: GradientSketch
    number: int
    sketch: Tensor

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = inputs[0].detach().float().flatten(0, -2).cpu()
        # the input through the first factor; with the second at zero this is all of its gradient but the
        # output's
        seen_NR = x @ self.sketcher.directions(layer, self.number, x.shape[-1]).T

        def add(gradient: Tensor) -> None:
            flat = (gradient.detach().float().flatten(0, -2).cpu().T @ seen_NR).flatten()
            # odd numbers here and even ones for directions, so that no two draws share a stream
            chance = torch.Generator().manual_seed(_mixed(self.sketcher.seed, 2 * self.number + 1))
            places = torch.randint(WIDTH, flat.shape, generator=chance)
            signs = torch.randint(2, flat.shape, generator=chance) * 2.0 - 1.0
            self.sketch.index_add_(0, places, signs * flat)

        output.register_hook(add)  # type: ignore[no-untyped-call]


def against_the_rest(sketches: Sequence[Tensor | None]) -> list[float | None]:
    """The similarity of each row's gradient to those of the other rows.

    Args:
        sketches: [4096] each, None for a row without one.

    Returns:
        The cosine of each with the mean of the others', -1 to 1; None for a row without one, or where the rest is zero.
    """
    known = [s.double() for s in sketches if s is not None]
    if len(known) < 2:
        return [None] * len(sketches)
    total = torch.stack(known).sum(dim=0)
    found: list[float | None] = []
    for sketch in sketches:
        if sketch is None:
            found.append(None)
            continue
        # leave out the row's own gradient: with few rows the mean would otherwise be similar to it
        rest, own = total - sketch.double(), sketch.double()
        size = float(rest.norm() * own.norm())
        found.append(float(own @ rest) / size if size > 0 else None)
    return found


def _mixed(seed: int, number: int) -> int:
    return (seed * 1_000_003 + number) % 2**63
