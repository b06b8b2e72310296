"""The optimizer steps of a batch: which rows each is made of, whether it is applied, and what it measured.

How this works: TRL shuffles a batch and splits it into micro-batches; `MiniBatches` counts which optimizer step and which pass
they belong to. Within an optimizer step rows may change their micro-batch: `by_length` and `by_group` put rows of like length
together, since a micro-batch is as wide as its longest row and padding costs as much as tokens. Which rows make up an
optimizer step stays as it is, so its gradient does. `NonFinite` keeps a loss or gradient that is not finite from the
weights. `UpdateMetrics` averages what the updates of a batch measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import PER_TOKEN, loss_mask
from grpo_cli.errors import TrainingError
from grpo_cli.train.step import Learned

Rows = dict[str, Any]


@dataclass
class MiniBatches:
    """The optimizer steps that one batch is used up in: `count` mini-batches, `epochs` times.

    TRL shuffles a batch once; here each further pass shuffles its rows again, as PPO does (arXiv 1707.06347), with a seed
    that depends on the step and the pass. A mini-batch without a row that teaches something makes no update (Adam would go on by its momentum)
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

    def further_pass(self, micro_steps: int) -> int:
        """Which further pass over a batch begins after so many micro-batches; 0 where none does."""
        done, within = divmod(micro_steps, self.count * self.micro)
        # one mini-batch a batch has the same rows in every pass, and nothing to shuffle
        return done % self.epochs if self.count > 1 and not within else 0

    def find_empty(self, batches: list[Rows], largest: Callable[[int], int]) -> None:
        """Note which mini-batches have no advantage on any token that counts, on all ranks; `largest` of a number over them."""
        teaches = []
        for batch in batches:
            advantages = batch["advantages"]
            per_token = advantages if advantages.dim() > 1 else advantages[:, None]
            # of a row that is left out of the loss, as a cut one may be, no advantage has a gradient
            teaches.append(bool((per_token * loss_mask(batch)).any()))
        windows = [teaches[at : at + self.micro] for at in range(0, len(batches), self.micro)]
        # on all ranks alike: one that steps alone would have other weights from then on
        self.empty = [largest(sum(window)) == 0 for window in windows]

    def skips_update(self, micro_steps: int, model: nn.Module) -> bool:
        """Whether the mini-batch that ended after so many micro-batches makes no update; its gradients are thrown away."""
        at = (micro_steps - 1) // self.micro % self.count
        if not self.empty or not self.empty[at]:
            return False
        self.passed += 1
        model.zero_grad(set_to_none=True)  # an optimizer leaves parameters without a gradient as they are
        return True

    def metrics(self) -> dict[str, float]:
        """`updates/empty` since the last call."""
        passed, self.passed = self.passed, 0
        return {"updates/empty": passed}


def reshuffled(batches: list[Rows], seed: int) -> list[Rows]:
    """The same rows shuffled into as many micro-batches of the same size."""
    rows = sum(len(batch["sample"]) for batch in batches)
    chance = torch.Generator().manual_seed(seed)
    return _in_order(batches, torch.randperm(rows, generator=chance).tolist())


def may_sort(loss: str, extras: list[str]) -> bool:
    """Whether the loss of an optimizer step is the same however its rows are spread over micro-batches: not where a
    micro-batch has a mean or a quantile over its own tokens; `extras` are TRL fields that have one."""
    return loss not in PER_TOKEN and not extras


def by_length(batches: list[Rows], window: int) -> list[Rows]:
    """The same rows in as many micro-batches of the same size, longest first within every `window` of them."""
    found: list[Rows] = []
    for start in range(0, len(batches), window):
        own = batches[start : start + window]
        # longest first: if a micro-batch does not fit into memory, it is the first one that fails
        lengths = torch.cat([batch["completion_mask"].sum(dim=1) for batch in own])
        found += _in_order(own, torch.argsort(lengths, descending=True, stable=True).tolist())
    return found


def by_group(batches: list[Rows], window: int, group: int, drops_dead: bool) -> list[Rows]:
    """The same rows in as many micro-batches of the same size within every `window` of them: samples of one prompt
    together, and about as many tokens in each. `drops_dead` rows of zero advantage count for nothing.
    """
    found: list[Rows] = []
    for start in range(0, len(batches), window):
        own = batches[start : start + window]
        samples = torch.cat([batch["sample"] for batch in own]).tolist()
        masks = torch.cat([batch["completion_mask"].sum(dim=1) for batch in own])
        if drops_dead:
            alive = torch.cat([batch["advantages"] for batch in own]) != 0
            # they are dropped before the pass, so they cost nothing
            masks = masks * (alive if alive.dim() == 1 else alive.any(dim=1))
        members: dict[int, list[int]] = {}
        for place, sample in enumerate(samples):
            members.setdefault(sample // group, []).append(place)
        tokens = masks.tolist()
        # the largest first, each to the micro-batch that has least so far and room for it; what is left fills the gaps
        largest = sorted(members.values(), key=lambda rows: -sum(tokens[row] for row in rows))
        room = [len(batch["sample"]) for batch in own]
        filled: list[list[int]] = [[] for _ in own]
        rest: list[int] = []
        for rows in largest:
            open_ = [i for i, taken in enumerate(filled) if room[i] - len(taken) >= len(rows)]
            if open_:
                filled[min(open_, key=lambda i: sum(tokens[row] for row in filled[i]))] += sorted(rows)
            else:
                rest += sorted(rows)
        left = iter(rest)
        for size, taken in zip(room, filled, strict=True):
            taken += [next(left) for _ in range(size - len(taken))]
        found += _in_order(own, [row for taken in filled for row in taken])
    return found


def _in_order(batches: list[Rows], order: list[int]) -> list[Rows]:
    """The rows in this order, in micro-batches of the sizes they have."""
    sizes = [len(batch["completion_mask"]) for batch in batches]
    out: list[Rows] = [dict(batch) for batch in batches]
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
        for batch, part in zip(out, parts, strict=True):
            batch[name] = part
    return out


# A loss or gradient that is not finite never reaches the weights: the run stops, or the step is skipped and counted.
# TRL shows a NaN loss as 0 and lets the optimizer step on it. Here the gradient is examined before the optimizer runs,
# and a skipped step throws its gradients away.

Norm = Tensor | float | None
"""A gradient's norm as the trainer or its engine gives it; None where there was none."""


@dataclass
class NonFinite:
    """Guards the steps of one run. `stops` is whether the recipe's `stop.on` names `non_finite`."""

    stops: bool
    note: Callable[[str], None]
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
                f"{text}; the weights were not touched", hint="lower `train.lr`, or look at the samples of this step"
            )
        self.skipped += 1
        self.note(f"{text}; the step is skipped")
        # DeepSpeed has skipped the step and dropped its gradients itself
        if not hasattr(model, "zero_optimization"):
            model.zero_grad(set_to_none=True)  # an optimizer leaves parameters without a gradient as they are
        return None


MEASURED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip/total",
    "clip_ratio/low_mean": "clip/low",
    "clip_ratio/high_mean": "clip/high",
    "cispo_clip_ratio": "clip/total",
}
"""TRL's names of what the optimizer step measured -> ours."""


class UpdateMetrics:
    """What the updates of a batch measure. `by_row`: the loss has one ratio a row, whose clipping is a mean over rows."""

    def __init__(self, by_row: bool = False) -> None:
        self.by_row = by_row
        self._sizes: list[Tensor] = []
        self._updates: list[dict[str, float]] = []

    def micro_batch(self, size_3: Tensor) -> None:
        """(3,) tokens in the loss of a micro-batch, rows, and rows with such a token, of all ranks."""
        self._sizes.append(size_3)

    def optimizer_step(self, logs: Mapping[str, float], metrics: dict[str, list[float]]) -> None:
        """An optimizer step is done. `logs` are transformers' log of it, `metrics` TRL's: a list each, emptied here."""
        tokens, rows, counted = torch.stack(self._sizes).T.tolist()
        self._sizes.clear()
        # with one ratio a row TRL's clipping is a mean over rows, of which some are masked
        means = {
            key: _mean(values, rows, counted) if self.by_row and "clip_ratio" in key else _mean(values, tokens, tokens)
            for key, values in metrics.items()
        }
        metrics.clear()
        measured = dict(logs) | {key: value for key, value in means.items() if value is not None}
        self._updates.append({ours: measured[name] for name, ours in MEASURED.items() if name in measured})

    def end_of_batch(self, **more: float) -> Learned:
        """Means over the updates since the last call, with `more` added."""
        # a union of keys: what is measured once a batch is in the first update only
        keys = dict.fromkeys(key for update in self._updates for key in update)
        found = {key: fmean(u[key] for u in self._updates if key in u) for key in keys}
        self._updates.clear()
        return Learned(found | more)


def _mean(values: list[float], sizes: list[int], counted: list[int]) -> float | None:
    """The mean over all of what has a mean over the `sizes` of each micro-batch, of which `counted` count.

    Micro-batches differ in size, most where they go by length. None where nothing counted: an update of cut answers alone
    has no entropy, and one of 0 would pull down the mean over updates.
    """
    if len(values) != len(sizes):  # measured once a batch
        sizes = counted = [1] * len(values)
    known = [(v, n, c) for v, n, c in zip(values, sizes, counted, strict=True) if not math.isnan(v)]
    whole = sum(c for _, _, c in known)
    return sum(value * n for value, n, _ in known) / whole if whole else None
