"""Measures the phases of a step, and how well the update uses the GPU.

`Clock` counts seconds by phase; `update` is the time that belongs to no other phase. `Utilisation` is the model FLOP
utilisation (MFU) of the update: the FLOPs of the model's matrices, divided by the FLOPs that the GPU could do in that
time. As in PaLM (arXiv 2204.02311, appendix B) recomputation does not count, and a row counts once.
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
    """Seconds spent in each phase since the last step was closed; `pause` (evaluating, saving) does not belong to any
    step.

    `spent` adds up the phases of all closed steps of this process.
    """

    began: SpentTime = field(default_factory=now)
    seconds: dict[str, SpentTime] = field(default_factory=dict)
    spent: dict[str, SpentTime] = field(default_factory=dict)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return timed(self.seconds, name)

    def start(self) -> None:
        """Discard the time before the first step."""
        self.began, self.seconds = now(), {}

    def split(self) -> tuple[dict[str, float], float]:
        """Seconds by phase and of the whole step; `update` is the time in no other phase."""
        # evaluating and saving happen between two steps and count to neither
        whole = now() - self.began - self.seconds.get("pause", SpentTime())
        phases = {name: self.seconds.get(name, SpentTime()) for name in ("generate", "verify")}
        if "environment" in self.seconds:  # the environment acts while the engine waits
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
    """Reports the progress of a step to the display, and the time of each part to the clock."""

    clock: Clock
    display: Display

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Report the current phase of the step and its progress."""
        self.display.phase(name, done, total)

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return self.clock.phase(name)


@dataclass(frozen=True)
class Utilisation:
    """`body`: weights that multiply every token; `head`: weights that make the logits of completion tokens;
    `attention`: 4 x layers x width of all query heads; `peak`: FLOP/s of one GPU."""

    body: int
    head: int
    attention: int
    peak: float

    @classmethod
    def of(cls, policy: Policy) -> Utilisation | None:
        """The utilisation of this model on this GPU; None on a CPU or a GPU whose peak rate is unknown."""
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
    # an embedding look-up has no FLOPs; the head counts separately, because it runs on completions only
    around = {id(base.get_input_embeddings().weight)} | ({id(head.weight)} if head is not None else set())
    body = 0.0
    for name, weight in base.named_parameters():
        if weight.dim() > 1 and id(weight) not in around:
            # a router's weights count in full: every token goes through them
            body += weight.numel() * (active / experts if experts and "experts" in name else 1)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = 4 * config.num_hidden_layers * config.num_attention_heads * width
    return int(body), head.weight.numel() if head is not None else 0, attention
