"""Reasons to stop before the last step: findings of `stop.on`, patience on the held-out score, a deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_cli.findings.alarms import sampled_or_trained
from grpo_cli.recipe.sections.recipe import Stop

ENTROPY_SHARE = 0.05
"""Entropy below this share of its first value is a collapse."""
LASTING = 20
"""A finding must last this many steps."""
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass
class StopRules:
    """Gets every step and every evaluation, and returns the reason to stop, if any. Checkpoints hold its state.

    `reason` is why the run stopped before its last step: a run that died after the checkpoint of that step stops
    there again, unless it is resumed with other rules.
    """

    spec: Stop
    first_entropy: float | None = None
    low_entropy: int = 0
    dead: int = 0
    best: float = -1.0
    best_step: int = 0
    reason: str | None = None

    def see_step(self, metrics: Mapping[str, Any]) -> str | None:
        """The reason to stop after this step, if any."""
        entropy, groups = sampled_or_trained(metrics), metrics.get("group/count") or 0
        if entropy is not None:
            self.first_entropy = entropy if self.first_entropy is None else self.first_entropy
            self.low_entropy = self.low_entropy + 1 if entropy < ENTROPY_SHARE * self.first_entropy else 0
        self.dead = self.dead + 1 if groups and not metrics.get("group/with_signal") else 0
        if "entropy_collapse" in self.spec.on and self.low_entropy >= LASTING:
            return f"entropy collapsed: {entropy:.3g}, {self.first_entropy:.3g} at the start, for {LASTING} steps"
        if "dead_groups" in self.spec.on and self.dead >= LASTING:
            return f"no group carried a signal for {LASTING} steps"
        return None

    def see_evaluation(self, metrics: Mapping[str, Any]) -> str | None:
        """The reason to stop after this evaluation, if any."""
        score, step = metrics["eval/pass@1"], metrics["step"]
        if score > self.best:
            self.best, self.best_step = score, step
        if "proxy_gold_gap" in self.spec.on and metrics.get("eval/gold/alarm"):
            return f"the gap to the gold verifier is {metrics['eval/gold/gap']:.1%} and growing"
        waited = step - self.best_step
        if self.spec.patience is not None and waited >= self.spec.patience:
            return f"no better held-out score for {waited} steps; the best was {self.best:.3f} at step {self.best_step}"
        return None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kept = {name: value for name, value in vars(self).items() if name != "spec"}
        return kept | {"rules": self.spec.model_dump(mode="json")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put a checkpoint's state back."""
        for name, value in state.items():
            if name != "rules":
                setattr(self, name, value)
        if state.get("rules") != self.spec.model_dump(mode="json"):
            self.reason = None


@dataclass
class Deadline:
    """A time after which the run saves and stops, for schedulers; with None it never does."""

    after: str | None
    began: float = field(default_factory=time.monotonic)

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.after is not None and time.monotonic() - self.began >= seconds(self.after)


def seconds(text: str) -> float:
    """`3h50m` or `90s` in seconds; a bare number is seconds."""
    return sum(float(n) * SECONDS.get(unit, 1) for n, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text))
