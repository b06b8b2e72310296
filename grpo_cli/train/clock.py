"""Where the time of a step goes, and how well the card is used in it.

`Clock` counts seconds by phase; `update` is what is in no other phase. `Utilisation` is the model FLOP utilisation of the update: the
arithmetic of the model's own matrices, over what the card could do in that time. It is defined as in PaLM
(arXiv 2204.02311, appendix B): nothing recomputed counts, nor a row twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.policy.modes import causal_model
from grpo_cli.run.spent import SpentTime, now, timed
from grpo_cli.sizing.cards import card_of

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.policy.policy import Policy


@dataclass
class Clock:
    """Seconds spent in each phase since the last step was closed; `pause` (evaluating, saving) is no part of a step.

    `spent` adds up the phases of all closed steps of this process.
    """

    began: SpentTime = field(default_factory=now)
    seconds: dict[str, SpentTime] = field(default_factory=dict)
    spent: dict[str, SpentTime] = field(default_factory=dict)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return timed(self.seconds, name)

    def start(self) -> None:
        """Forget what was before the first step."""
        self.began, self.seconds = now(), {}

    def split(self) -> tuple[dict[str, float], float]:
        """Seconds by phase and of the whole step; `update` is what is in no other phase."""
        # evaluating and saving lie between two closings, and are no part of either step
        whole = now() - self.began - self.seconds.get("pause", SpentTime())
        phases = {name: self.seconds.get(name, SpentTime()) for name in ("generate", "verify")}
        if "environment" in self.seconds:  # it acts while the engine waits
            phases["environment"] = self.seconds["environment"]
            phases["generate"] = (phases["generate"] - phases["environment"]).least(0.0)
        phases |= {name: self.seconds[name] for name in ("monitor", "critic") if name in self.seconds}
        phases["update"] = (whole - sum(phases.values(), SpentTime())).least(0.0)
        for name, spent in phases.items():
            self.spent[name] = self.spent.get(name, SpentTime()) + spent
        self.start()
        return {name: spent.wall for name, spent in phases.items()}, whole.wall


@dataclass(frozen=True)
class StepProgress:
    """Sends the display where a step is, and the clock how long each part took."""

    clock: Clock
    display: Display

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the step is doing now, and how far that is."""
        self.display.phase(name, done, total)

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return self.clock.phase(name)


@dataclass(frozen=True)
class Utilisation:
    """`body` are the weights that multiply every token, `head` those that make the logits of a completion's token,
    `attention` is 4 x layers x width of all query heads; `peak` in FLOP/s of one card."""

    body: int
    head: int
    attention: int
    peak: float

    @classmethod
    def of(cls, policy: Policy) -> Utilisation | None:
        """Of this model on this card; None on a CPU, and on a card whose rate is not known here."""
        if policy.device.type != "cuda":
            return None
        card = card_of(torch.cuda.get_device_name(policy.device))
        return None if card is None else cls(*arithmetic(policy.model), card.tflops * 1e12)

    def share(self, lengths: Iterable[tuple[int, int]], passes: int, seconds: float) -> float:
        """MFU of `passes` over rows of (prompt, completion) tokens: forward, and twice that backward."""
        forward = 0.0
        for prompt, completion in lengths:
            tokens = prompt + completion
            forward += 2 * self.body * tokens + 2 * self.head * completion
            # causal: token t meets t columns
            forward += self.attention * tokens * (tokens + 1) / 2
        return 3 * passes * forward / (self.peak * seconds)


def arithmetic(model: nn.Module) -> tuple[int, int, int]:
    """`body`, `head` and `attention` of a model, adapters counted; of experts, as many as a token is sent to."""
    base = causal_model(model)
    config: Any = base.config.get_text_config()
    experts = next((n for name in ("num_local_experts", "num_experts") if (n := getattr(config, name, None))), 0)
    active = getattr(config, "num_experts_per_tok", None) or experts
    head = base.get_output_embeddings()
    # a look-up multiplies nothing; the head counts apart, for it sees completions only
    around = {id(base.get_input_embeddings().weight)} | ({id(head.weight)} if head is not None else set())
    body = 0.0
    for name, weight in base.named_parameters():
        if weight.dim() > 1 and id(weight) not in around:
            # a router's weights count in full: every token goes through them
            body += weight.numel() * (active / experts if experts and "experts" in name else 1)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = 4 * config.num_hidden_layers * config.num_attention_heads * width
    return int(body), head.weight.numel() if head is not None else 0, attention
