"""The optimizer steps of a batch: which rows each uses, whether it is applied, and its metrics.

How this works: TRL shuffles a batch and splits it into micro-batches; `MiniBatches` counts which optimizer step and which pass
they belong to. Within an optimizer step rows may move to another micro-batch: `by_length` and `by_group` put rows of
similar length together, since a micro-batch is as wide as its longest row and padding costs as much as tokens. The rows
of an optimizer step stay the same, and so does its gradient. `NonFinite` prevents updates with a loss or gradient that
is not finite. `UpdateMetrics` averages what the updates of a batch measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import PER_TOKEN, MicroBatchLogProbs, loss_mask
from grpo_cli.errors import TrainingError
from grpo_cli.train.step import Learned

Rows = dict[str, Any]


@dataclass
class MiniBatches:
    """The optimizer steps on one batch: `count` mini-batches, `epochs` times.

    TRL shuffles a batch once; here each further pass shuffles its rows again, as PPO does (arXiv 1707.06347), with a seed
    that depends on the step and the pass. A mini-batch in which no row has signal makes no update, because Adam would
    still move by its momentum. It is counted, and the learning rate schedule advances on all ranks.
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
        """The number of the further pass that begins after this many micro-batches; 0 if none begins."""
        done, within = divmod(micro_steps, self.count * self.micro)
        # with a single mini-batch every pass has the same rows: nothing to shuffle
        return done % self.epochs if self.count > 1 and not within else 0

    def find_empty(self, batches: list[Rows], largest: Callable[[Sequence[int]], Sequence[int]]) -> None:
        """Record the mini-batches in which no token that counts has an advantage on any rank; `largest` is a maximum
        over ranks, of each of several numbers."""
        teaches = []
        for batch in batches:
            advantages = batch["advantages"]
            per_token = advantages if advantages.dim() > 1 else advantages[:, None]
            # a row that is left out of the loss (a truncated one, for example) has no gradient whatever its advantage
            teaches.append(
                bool((per_token * loss_mask(batch)).any()) or bool("teacher" in batch and batch["teacher"].any())
            )
        windows = [teaches[at : at + self.micro] for at in range(0, len(batches), self.micro)]
        # decide for all ranks together: a rank that steps alone would have different weights from then on
        self.empty = [most == 0 for most in largest([sum(window) for window in windows])]

    def skips_update(self, micro_steps: int, model: nn.Module) -> bool:
        """Whether the mini-batch that ended after this many micro-batches is skipped; its gradients are discarded."""
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
    """Whether the loss of an optimizer step is independent of how its rows are spread over micro-batches. It is not if
    a term is a mean or a quantile over one micro-batch's tokens; `extras` are TRL fields with such a term."""
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
            # dead rows are dropped before the pass, so they cost nothing
            masks = masks * (alive if alive.dim() == 1 else alive.any(dim=1))
        members: dict[int, list[int]] = {}
        for place, sample in enumerate(samples):
            members.setdefault(sample // group, []).append(place)
        filled = dealt(list(members.values()), masks.tolist(), [len(batch["sample"]) for batch in own])
        found += _in_order(own, [row for taken in filled for row in taken])
    return found


def dealt(groups: Sequence[Sequence[int]], costs: Sequence[float], room: Sequence[int]) -> list[list[int]]:
    """The rows of each part, of at most `room` rows. Whole groups, the costliest first, go to the part with the lowest cost
    that has room; the remaining rows fill the gaps. `costs` are of rows."""
    costliest = sorted(groups, key=lambda rows: -sum(costs[row] for row in rows))
    filled: list[list[int]] = [[] for _ in room]
    rest: list[int] = []
    for rows in costliest:
        open_ = [i for i, taken in enumerate(filled) if room[i] - len(taken) >= len(rows)]
        if open_:
            filled[min(open_, key=lambda i: sum(costs[row] for row in filled[i]))] += sorted(rows)
        else:
            rest += sorted(rows)
    left = iter(rest)
    for size, taken in zip(room, filled, strict=True):
        taken += islice(left, size - len(taken))
    return filled


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
# TRL logs a NaN loss as 0 and lets the optimizer step on it. Here the gradient is checked before the optimizer runs,
# and a skipped step discards its gradients.

Norm = Tensor | float | None
"""The gradient norm from the trainer or DeepSpeed; None if it gave none."""


@dataclass
class NonFinite:
    """Guards the steps of one run. `stops` is whether the recipe's `stop.on` names `non_finite`."""

    stops: bool
    note: Callable[[str], None]
    skipped: int = 0
    _culprits: str = ""

    def loss(self, loss: torch.Tensor, rows: Callable[[], Sequence[str]]) -> None:
        """Record whether the scalar loss is not finite; `gradient` then refuses the gradient on all ranks."""
        if not torch.isfinite(loss):
            self._culprits = f"the loss is {loss.item()} on rows {', '.join(list(rows())[:4])}"

    def gradient(self, norm: Norm, step: int, model: nn.Module, scale: float = 1.0) -> Norm:
        """The norm of a gradient that may be applied; None after a refused one was thrown away. `scale` is the factor that gradients
        of float16 had: a scaler begins far too high, leaves out each step that overflows, and halves it.

        Raises:
            TrainingError: the gradient is not finite, and the recipe stops the run for it.
        """
        if norm is None or math.isfinite(float(norm)):
            return norm
        if scale > 1 and not self._culprits:
            self.skipped += 1
            self.note(
                f"step {step}: gradients in float16 overflow at a scale of {scale:g}, which is halved; the step is skipped"
            )
            return None
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
"""TRL's metric names of the optimizer step, and ours."""


def put_clip_metrics(metrics: dict[str, list[float]], scored: MicroBatchLogProbs, *, by_row: bool) -> None:
    """In TRL's lists, in place of the shares that it has just clipped: those that a bound of ours took out of a micro-batch. `by_row`:
    a mean over rows, as TRL's of a loss with one ratio a row."""
    assert scored.bounded_BT is not None
    mask_BT = scored.mask_BT
    rises_BT = scored.rises_BT.expand_as(scored.bounded_BT)
    for name, side_BT in (("low", ~rises_BT), ("high", rises_BT), ("region", torch.ones_like(rises_BT))):
        counted_BT = scored.bounded_BT * side_BT * mask_BT
        if by_row:
            share = (counted_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)).mean()
        else:
            share = counted_BT.sum() / mask_BT.sum().clamp(min=1)
        metrics[f"clip_ratio/{name}_mean"][-1] = float(share)


class UpdateMetrics:
    """Averages the metrics of a batch's updates. `by_row`: the loss has one ratio a row, and TRL averages clipping over
    rows."""

    def __init__(self, by_row: bool = False) -> None:
        self.by_row = by_row
        self._sizes: list[Tensor] = []
        self._updates: list[dict[str, float]] = []

    def micro_batch(self, size_3: Tensor) -> None:
        """(3,) tokens in the loss of a micro-batch, rows, and rows with such a token, of this rank."""
        self._sizes.append(size_3)

    def optimizer_step(
        self,
        logs: Mapping[str, float],
        metrics: dict[str, list[float]],
        gather: Callable[[Tensor], Tensor] = lambda table: table,
    ) -> None:
        """Take the metrics of a finished optimizer step.

        Args:
            logs: transformers' log.
            metrics: TRL's lists, which are emptied; those with a number for each micro-batch are of this rank.
            gather: from a float64 table of shape (1, K, M) to (ranks, K, M), of K numbers for each of M micro-batches.
        """
        # lists with a number for each micro-batch are joined over the ranks; the others are of all ranks already
        named = [key for key in MEASURED if len(metrics.get(key, ())) == len(self._sizes)]
        sizes = torch.stack(self._sizes).T.double()
        values = torch.tensor([metrics[key] for key in named], dtype=torch.float64, device=sizes.device)
        table = gather(torch.cat([sizes, values.view(len(named), -1)])[None])
        tokens, rows, counted, *lists = table.transpose(0, 1).flatten(1).tolist()
        self._sizes.clear()
        measured, known = dict(logs), metrics | dict(zip(named, lists, strict=True))
        for key in MEASURED.keys() & known.keys():
            # with one ratio a row TRL averages clipping over all rows, including masked ones
            by_row = self.by_row and "clip_ratio" in key
            value = _mean(known[key], rows if by_row else tokens, counted if by_row else tokens)
            if value is not None:
                measured[key] = value
        metrics.clear()
        self._updates.append({ours: measured[name] for name, ours in MEASURED.items() if name in measured})

    def end_of_batch(self, **more: float) -> Learned:
        """Means over the updates since the last call, with `more` added."""
        # take the union of keys: a metric measured once a batch is only in the first update
        keys = dict.fromkeys(key for update in self._updates for key in update)
        found = {key: fmean(u[key] for u in self._updates if key in u) for key in keys}
        self._updates.clear()
        return Learned(found | more)


def _mean(values: Sequence[float], sizes: Sequence[float], counted: Sequence[float]) -> float | None:
    """The overall mean from means over `sizes` entries of each micro-batch, of which only `counted` entries count.

    Micro-batches differ in size, most of all when sorted by length. None if nothing counted: an update of truncated
    answers alone has no entropy, and a 0 would lower the mean over updates.
    """
    if len(values) != len(sizes):  # measured once a batch
        sizes = counted = [1] * len(values)
    known = [(v, n, c) for v, n, c in zip(values, sizes, counted, strict=True) if not math.isnan(v)]
    whole = sum(c for _, _, c in known)
    return sum(value * n for value, n, _ in known) / whole if whole else None
