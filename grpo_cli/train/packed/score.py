"""A packed row through a model: forward, with gradients for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo_cli.policy.modes import numerics
from grpo_cli.train.packed.attention import packed_into, shared
from grpo_cli.train.packed.head import selected_logps
from grpo_cli.train.packed.layout import Packed


@dataclass(frozen=True)
class ScoreNumerics:
    """What a forward pass computes in: an autocast or the model's own types, the head, the sampling temperature."""

    autocast: torch.dtype | None = None
    temperature: float = 1.0
    head_in_float32: bool = False


def score(base: Any, batch: Packed, numbers: ScoreNumerics) -> tuple[Tensor, Tensor]:
    """[N] log-probs and entropies of a packed micro-batch's targets, 0 in its padding.

    Args:
        base: a Hugging Face model with its head.
        batch: the rows, laid out.
        numbers: what to compute in, and the temperature.

    Raises:
        ValueError: its attention wants what a packed row cannot do.
    """
    fields = batch.views
    with numerics(base, numbers.autocast), packed_into(base, fields, batch.shape.longest):
        states = base.base_model(
            input_ids=fields.ids[None], position_ids=fields.positions[None], use_cache=False
        ).last_hidden_state[0]
        head = base.get_output_embeddings()
        # a prompt's last state predicts the first token of each of its completions
        return selected_logps(
            shared(states, fields.states),
            head.weight,
            fields.labels,
            fields.counts,
            bias_V=getattr(head, "bias", None),
            temperature=numbers.temperature,
            in_float32=numbers.head_in_float32,
        )
