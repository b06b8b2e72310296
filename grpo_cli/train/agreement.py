"""Sampling and training must mean the same distribution: two prompts of unequal length are tried before the first step.

The engine packs and caches, training pads to the left and masks; what one computes otherwise than the other would stand
in every ratio and every gradient, and nothing of a run would say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from grpo_cli.errors import SetupError
from grpo_cli.rollout.engine import Completion, Engine, Request, SamplingSettings
from grpo_cli.train.trl_hooks import Batch, score

if TYPE_CHECKING:
    from grpo_cli.data.rows import Row
    from grpo_cli.policy.policy import Policy
    from grpo_cli.train.trainer import Trainer

EXACT, HALF = 1e-2, 0.3
"""Nats a token, on average, that the two may be apart: in float32 (usually 1e-6), in fewer bits (usually 1e-3)."""

TOKENS = 4
LONGEST = 64
"""Tokens of a prompt that are tried; only that two differ in length matters."""


def check_agreement(trainer: Trainer, engine: Engine, policy: Policy, row: Row, most: int) -> None:
    """Sample after a row's prompt and after the second half of it, and score both as training does.

    Args:
        trainer: scores, at its temperature, with the weights of `policy`.
        engine: samples, at most `most` tokens, with the same weights.

    Raises:
        SetupError: the log-probs are not those of one distribution.
    """
    prompt = policy.encode(row)
    longer = prompt[-LONGEST:] if len(prompt) > 1 else prompt * 2
    # of unequal length, so that one of them is padded: what breaks first are positions behind padding
    prompts = [longer, longer[len(longer) // 2 :]]
    found = engine.generate(
        [Request(ids, 1) for ids in prompts],
        SamplingSettings(max_tokens=min(TOKENS, most), temperature=trainer.temperature, seed=0),
    )
    sampled = [completions[0] for completions in found]
    scored_BT = score(trainer, _batch(prompts, sampled, policy.device)).float().cpu()
    apart = [
        (row[: len(c.logps)] - torch.tensor(c.logps)).abs() for row, c in zip(scored_BT, sampled, strict=True)
    ]
    mean = float(torch.cat(apart).mean())
    exact = policy.autocast is None and next(policy.model.parameters()).dtype == torch.float32
    if not mean <= (EXACT if exact else HALF):  # a NaN is no agreement
        raise SetupError(
            f"training and sampling disagree on this model: the log-probs of the tokens that `{engine.kind.name}` sampled are"
            f" {mean:.2g} nats apart from those of the training pass",
            hint="set `sample.engine: transformers`; if that disagrees as well, the model cannot be trained on padded rows",
        )


def _batch(prompts: Sequence[Sequence[int]], sampled: Sequence[Completion], device: torch.device) -> Batch:
    """As TRL pads a batch: prompts to the left, completions to the right."""
    before, after = max(map(len, prompts)), max(len(c.token_ids) for c in sampled)
    lead, tail = [before - len(p) for p in prompts], [after - len(c.token_ids) for c in sampled]
    rows = {
        "prompt_ids": [[0] * n + list(p) for n, p in zip(lead, prompts, strict=True)],
        "prompt_mask": [[0] * n + [1] * len(p) for n, p in zip(lead, prompts, strict=True)],
        "completion_ids": [c.token_ids + [0] * n for n, c in zip(tail, sampled, strict=True)],
        "completion_mask": [[1] * len(c.token_ids) + [0] * n for n, c in zip(tail, sampled, strict=True)],
    }
    return {name: torch.tensor(ids, device=device) for name, ids in rows.items()}
