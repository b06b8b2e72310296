"""The reference's log-probs beside the samples of a batch, and what the KL to it takes off their rewards. B rows, T tokens."""

from __future__ import annotations

from typing import Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import gather
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.kl import answer_kl, token_kl
from grpo_cli.algorithm.loss import Objective
from grpo_cli.policy.reference import Reference
from grpo_cli.rollout.engine import Completion
from grpo_cli.rollout.logprobs import draws_dropout
from grpo_cli.train.old_logprobs import padded
from grpo_cli.train.trl_hooks import Batch, LogProbs, score


class Penalised(Protocol):
    """What this needs of the trainer: two names of TRL's, then ours."""

    accelerator: Accelerator
    args: GRPOConfig
    _metrics: dict[str, dict[str, list[float]]]

    objective: Objective

    @property
    def whole(self) -> nn.Module: ...
    def _get_per_token_logps_and_entropies(
        self,
        model: nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: object,
    ) -> LogProbs: ...


def add_reference(
    trainer: Penalised, reference: Reference, out: Batch, sampled: list[Completion] | None
) -> Tensor | None:
    """Put the reference's log-probs into the batch; (samples of all ranks,) what KL takes off each reward, if anything.

    `sampled` are this rank's samples where the log-probs they were drawn with stand for the policy's own.
    """
    with reference.swapped_in():
        out["ref_per_token_logps"] = score(trainer, out)
    beta = trainer.objective.reward_beta
    if not beta:
        return None
    logps, mask = out.get("old_per_token_logps"), out["completion_mask"]
    if logps is None or draws_dropout(trainer.whole):
        logps = padded(sampled, mask.shape[1], trainer.accelerator.device) if sampled else score(trainer, out)
    trainer._metrics["train"]["kl"].append(token_kl(logps, out["ref_per_token_logps"], mask))
    off: Tensor = gather(answer_kl(logps, out["ref_per_token_logps"], mask))
    return torch.as_tensor(beta * off)
