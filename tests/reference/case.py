"""What a run of the reference is asked for, and the worst errors that were found in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tests.reference.critic import Credit
from tests.reference.formulas import Method


@dataclass(frozen=True)
class Case:
    """What the reference has to know of a recipe beside its method."""

    method: Method
    group: int
    max_tokens: int
    temperature: float = 1.0
    overlong: float | None = None
    mask_truncated: bool = False
    weights: tuple[float, ...] = (1.0,)
    """Of the verifiers, in order."""
    normalises: bool = False
    """`reward_combine: normalise_then_sum`."""
    split: tuple[float, ...] = ()
    """`reward_combine: split`: the weights of its two parts, of which the first is the first verifier's."""
    parts: int = 1
    """Mini-batches of a batch."""
    gamma: float | None = None
    """`credit: gigpo`, with this discount."""
    divides: bool = False
    """Its part is divided by a deviation, as the episode's advantage is."""
    keep: int | None = None
    """Samples of a group that `train.prune` leaves, chosen by `by`."""
    by: str = "advantage"
    credit: Credit | None = None
    """`baseline: critic`."""
    drops: bool = False
    """Dead rows are not forwarded: entropy and clip shares are then of the rest."""

    @classmethod
    def of(cls, recipe: Any) -> Case:
        """Of a checked recipe."""
        t, s = recipe.train, recipe.sample
        method = Method(
            loss=t.loss,
            ratio=t.ratio,
            baseline=t.baseline,
            scale=t.scale,
            ddof=t.std_ddof,
            floor=t.floor,
            clip_low=t.clip.low,
            clip_high=t.clip.high,
            cap=t.clip.cap,
            beta=t.kl.beta,
            estimator=t.kl.estimator,
            max_tokens=s.max_tokens,
            entropy=t.trl.get("entropy_coef", 0.0),
            bound=t.ratio_clip,
            delta=t.clip.delta or {"ratio": 0.0, "tv": 0.2, "kl": 0.05}[t.ratio_clip],
            pull=t.clip.pull,
            best_of=t.pass_k,
        )
        return cls(
            method,
            s.group,
            s.max_tokens,
            s.temperature,
            t.overlong,
            t.mask_truncated,
            tuple(spec.weight for spec in recipe.verify.values()),
            t.reward_combine == "normalise_then_sum",
            tuple(float(part.weight) for part in t.split.values()),
            t.mini_batches,
            (t.credit.gamma or 0.95) if t.credit else None,
            t.scale == "group",
            t.prune.keep if t.prune else None,
            t.prune.by if t.prune else "advantage",
            Credit(c.decay, c.gamma, c.clip, c.cut, c.positive) if (c := t.critic) else None,
            t.dead_groups != "keep" or t.prune is not None,
        )


@dataclass
class Errors:
    """Worst differences: absolute for rewards, advantages and shown numbers, relative (of the norm) for gradients."""

    reward: float = 0.0
    advantage: float = 0.0
    gradient: float = 0.0
    kl: float = 0.0
    clip: float = 0.0
    entropy: float = 0.0
    value: float = 0.0
    value_gradient: float = 0.0
    loss: float = 0.0
    """Of a critic."""

    def take(self, name: str, value: float) -> None:
        """Keep the larger; a NaN counts as infinite."""
        value = math.inf if math.isnan(value) else value
        setattr(self, name, max(getattr(self, name), value))
