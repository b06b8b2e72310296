"""Model FLOP utilisation of the update: the arithmetic that the model's own matrices ask for, over what the card could do
in that time. Made as in PaLM (arXiv 2204.02311, appendix B): nothing recomputed counts, nor a row twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_cli.policy.modes import causal_model
from grpo_cli.sizing.cards import card_of

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.policy.policy import Policy


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
    experts = next(
        (n for name in ("num_local_experts", "num_experts") if (n := getattr(config, name, None))), 0
    )
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
