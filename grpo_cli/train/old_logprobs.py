"""Old log-probs, where a batch is trained on more than once: the rollout returned them already, and where it computes in
the numbers of the training forward pass they are that pass's own, to 1e-4. TRL would score every sample again.

Under bf16, fp16 or tf32 they are not taken: two forms of one forward pass differ by a few thousandths of a nat a token
there, which a ratio would read as a change of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.rollout.engine import Completion, Engine
from grpo_cli.rollout.logprobs import draws_dropout


def are_exact(engine: Engine, model: nn.Module, args: GRPOConfig) -> bool:
    """Whether the engine's log-probs stand for those of a forward pass of `model` as training with `args` makes it."""
    return (
        engine.kind.exact_logps
        and not (args.bf16 or args.fp16 or args.tf32)
        and all(p.dtype == torch.float32 for p in model.parameters() if p.is_floating_point())
        and not draws_dropout(model)
    )


def padded(completions: Sequence[Completion], width: int, device: torch.device) -> Tensor:
    """[B, width] float32 log-probs of the sampled tokens, 0 behind a completion's end."""
    rows = [c.logps + [0.0] * (width - len(c.logps)) for c in completions]
    return torch.tensor(rows, device=device)
