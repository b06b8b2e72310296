"""Rows of like length share a micro-batch: each is as wide as its longest row, and the rest of a short row is padding
that costs as much as tokens. TRL has shuffled the batch by then; which rows make up an optimizer step stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import PER_TOKEN, loss_mask
from grpo_cli.errors import TrainingError

Rows = dict[str, Any]


@dataclass
class MiniBatches:
    """The optimizer steps that one batch is used up in: `count` mini-batches, `epochs` times.

    TRL shuffles a batch once; here each further pass deals its rows out anew, as PPO does, by a chance that depends on the
    step and the pass. A mini-batch without a row that teaches something makes no update (Adam would go on by its momentum)
    and is counted; the learning rate goes on all the same, on all ranks alike.
    """

    count: int
    epochs: int
    micro: int
    """Micro-batches of each."""
    empty: list[bool] = field(default_factory=list)
    passed: int = 0

    @classmethod
    def of(cls, args: GRPOConfig) -> MiniBatches:
        """As TRL's settings have it."""
        micro = args.gradient_accumulation_steps
        return cls(args.steps_per_generation // micro, args.num_iterations, micro)

    @property
    def updates(self) -> int:
        """Optimizer steps on a batch."""
        return self.count * self.epochs

    def again(self, micro_steps: int) -> int:
        """Which further pass over a batch begins after so many micro-batches; 0 where none does."""
        done, within = divmod(micro_steps, self.count * self.micro)
        # one mini-batch a batch has the same rows in every pass, and nothing to deal anew
        return done % self.epochs if self.count > 1 and not within else 0

    def look(self, batches: list[Rows], largest: Callable[[int], int]) -> None:
        """Note which mini-batches have no advantage on any token that counts, on all ranks; `largest` of a number over them."""
        windows = [batches[at : at + self.micro] for at in range(0, len(batches), self.micro)]
        self.empty = [largest(sum(map(_teaches, window))) == 0 for window in windows]

    def passes(self, micro_steps: int, model: nn.Module) -> bool:
        """Whether the mini-batch that ended after so many micro-batches makes no update; its gradients are thrown away."""
        at = (micro_steps - 1) // self.micro % self.count
        if not self.empty or not self.empty[at]:
            return False
        self.passed += 1
        model.zero_grad(set_to_none=True)  # an optimizer passes over parameters without a gradient
        return True

    def metrics(self) -> dict[str, float]:
        """`updates/empty` since the last call."""
        passed, self.passed = self.passed, 0
        return {"updates/empty": passed}


def _teaches(batch: Rows) -> bool:
    advantages = batch["advantages"]
    per_token = advantages if advantages.dim() > 1 else advantages[:, None]
    # of a row that is left out of the loss, as a cut one may be, no advantage has a gradient
    return bool((per_token * loss_mask(batch)).any())


def reshuffled(batches: list[Rows], seed: int) -> list[Rows]:
    """The same rows dealt out anew to as many micro-batches of the same size."""
    rows = sum(len(batch["sample"]) for batch in batches)
    chance = torch.Generator().manual_seed(seed)
    return _dealt(batches, torch.randperm(rows, generator=chance).tolist())


def may_sort(loss: str, extras: list[str]) -> bool:
    """Whether the loss of an optimizer step is the same however its rows are dealt out to micro-batches: not where a
    micro-batch has a mean or a quantile over its own tokens; `extras` are TRL fields that have one."""
    return loss not in PER_TOKEN and not extras


def by_length(batches: list[Rows], window: int) -> list[Rows]:
    """The same rows in as many micro-batches of the same size, longest first within every `window` of them."""
    return [
        batch
        for start in range(0, len(batches), window)
        for batch in _sorted(batches[start : start + window])
    ]


def by_group(batches: list[Rows], window: int, group: int, drops_dead: bool) -> list[Rows]:
    """The same rows in as many micro-batches of the same size within every `window` of them: samples of one prompt
    together, and about as many tokens in each. `drops_dead` rows of zero advantage count for nothing.
    """
    return [
        batch
        for start in range(0, len(batches), window)
        for batch in _grouped(batches[start : start + window], group, drops_dead)
    ]


def _grouped(batches: list[Rows], group: int, drops_dead: bool) -> list[Rows]:
    samples = torch.cat([batch["sample"] for batch in batches]).tolist()
    masks = torch.cat([batch["completion_mask"].sum(dim=1) for batch in batches])
    if drops_dead:
        alive = torch.cat([batch["advantages"] for batch in batches]) != 0
        # they are dropped before the pass, so they cost nothing
        masks = masks * (alive if alive.dim() == 1 else alive.any(dim=1))
    members: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        members.setdefault(sample // group, []).append(place)
    tokens = masks.tolist()
    # the largest first, each to the micro-batch that has least so far and room for it; what is left fills the gaps
    largest = sorted(members.values(), key=lambda rows: -sum(tokens[row] for row in rows))
    room = [len(batch["sample"]) for batch in batches]
    dealt: list[list[int]] = [[] for _ in batches]
    rest: list[int] = []
    for rows in largest:
        open_ = [i for i, taken in enumerate(dealt) if room[i] - len(taken) >= len(rows)]
        if open_:
            dealt[min(open_, key=lambda i: sum(tokens[row] for row in dealt[i]))] += sorted(rows)
        else:
            rest += sorted(rows)
    left = iter(rest)
    for size, taken in zip(room, dealt, strict=True):
        taken += [next(left) for _ in range(size - len(taken))]
    return _dealt(batches, [row for taken in dealt for row in taken])


def _sorted(batches: list[Rows]) -> list[Rows]:
    # longest first: if a micro-batch does not fit into memory, the first one says so
    lengths = torch.cat([batch["completion_mask"].sum(dim=1) for batch in batches])
    return _dealt(batches, torch.argsort(lengths, descending=True, stable=True).tolist())


def _dealt(batches: list[Rows], order: list[int]) -> list[Rows]:
    """The rows in this order, in micro-batches of the sizes they have."""
    sizes = [len(batch["completion_mask"]) for batch in batches]
    dealt: list[Rows] = [dict(batch) for batch in batches]
    for name, value in batches[0].items():
        # a tensor without axes is one number of the whole batch, such as `num_items_in_batch`
        if torch.is_tensor(value) and value.dim() > 0:
            whole = torch.cat([batch[name] for batch in batches])
            whole = whole[torch.tensor(order, device=whole.device)]
            parts: Any = torch.split(whole, sizes)
        elif isinstance(value, list):
            flat = [item for batch in batches for item in batch[name]]
            spread = iter([flat[i] for i in order])
            parts = [[next(spread) for _ in range(size)] for size in sizes]
        else:
            continue
        for batch, part in zip(dealt, parts, strict=True):
            batch[name] = part
    return dealt


# A loss or gradient that is not finite never reaches the weights: the run stops, or the step is skipped and
# counted.

Norm = Tensor | float | None
"""A gradient's norm as the trainer or its engine gives it; None where there was none."""


@dataclass
class NonFinite:
    """Guards the steps of one run. `stops` is whether the recipe's `stop.on` names `non_finite`."""

    stops: bool
    say: Callable[[str], None]
    skipped: int = 0
    _culprits: str = ""

    def loss(self, loss: torch.Tensor, rows: Callable[[], Sequence[str]]) -> None:
        """Note whose scalar loss is not finite; the gradient it makes is refused below, on all ranks alike."""
        if not torch.isfinite(loss):
            self._culprits = f"the loss is {loss.item()} on rows {', '.join(list(rows())[:4])}"

    def gradient(self, norm: Norm, step: int, model: nn.Module) -> Norm:
        """The norm of a gradient that may be applied; None after a refused one was thrown away.

        Raises:
            TrainingError: it is not finite, and that stops the run.
        """
        if norm is None or math.isfinite(float(norm)):
            return norm
        text = f"step {step}: {self._culprits or f'the gradient norm is {float(norm)}'}"
        self._culprits = ""
        if self.stops:
            raise TrainingError(
                f"{text}; the weights were not touched",
                hint="lower `train.lr`, or look at the samples of this step",
            )
        self.skipped += 1
        self.say(f"{text}; the step is skipped")
        if not hasattr(
            model, "zero_optimization"
        ):  # DeepSpeed has passed over the step and its gradients itself
            model.zero_grad(set_to_none=True)  # an optimizer passes over parameters without a gradient
        return None
