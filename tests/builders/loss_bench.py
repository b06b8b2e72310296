"""TRL's trainer with our hooks on, fed with chosen log-probs: what its `_compute_loss` makes of them, with gradients."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from trl import GRPOTrainer

from grpo_cli.distributed.ranks import Ranks
from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.recipe.arithmetic import Batching
from grpo_cli.recipe.engines import EngineKind
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.train.log_probs import TrlLogProbs
from grpo_cli.train.trainer import Trainer
from grpo_cli.train.trl_config import grpo_config

MAX_TOKENS = 8


def recipe(group: int = 2, **train: Any) -> Recipe:
    """A recipe with this `train` section and four samples a step."""
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": {"math": {}},
            "sample": {"prompts": 4 // group, "group": group, "max_tokens": MAX_TOKENS},
            "train": {"steps": 4, "lr": 1e-3} | train,
        }
    )


@cache
def _tiny() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config), tokenizer


def trainer(micro_batches: int = 1, group: int = 2, **train: Any) -> Trainer:
    """A trainer whose policy is a table: `forced` log-probs stand in for the model's."""
    model, tokenizer = _tiny()
    made = recipe(group, **train)
    collect = SimpleNamespace(engine=SimpleNamespace(kind=EngineKind("table")))
    loop: Any = SimpleNamespace(recipe=made, steps_done=0, ranks=Ranks(), collect=collect)
    args = grpo_config(
        made,
        Path(mkdtemp()),
        Batching(4 // micro_batches, micro_batches // made.train.mini_batches, made.train.mini_batches),
        torch.device("cpu"),
        None,
    )
    built = Trainer(loop, model=model, args=args, tokenizer=tokenizer, callbacks=[], on_checkpoint=lambda *_: None)
    built.source = TrlLogProbs(absolute=False)  # TRL's own scoring is what `_force` stands in for
    built.current_gradient_accumulation_steps = micro_batches
    built.model.train()
    return built


def table_loss(built: Trainer, logps: Tensor, advantages: Tensor, **extra: Tensor) -> Tensor:
    """The hooked loss where the policy's log-probs are `logps` (B, T); NaN marks padding."""
    mask = (~logps.isnan()).long()
    filled = torch.where(mask.bool(), logps, 0.0)
    built.__dict__["_forced"] = filled
    inputs = {
        "prompt_ids": torch.ones(len(logps), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(logps), 1, dtype=torch.long),
        "completion_ids": torch.arange(logps.numel()).view_as(logps),
        "completion_mask": mask,
        "advantages": advantages,
        "num_items_in_batch": mask.sum(),
        **extra,
    }
    with patch.object(GRPOTrainer, "_get_per_token_logps_and_entropies", _force):
        return built._compute_loss(built.model, inputs)


def _force(self: Any, model: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Rows are known by their first token id, so that a subset of rows finds its own log-probs."""
    table: Tensor = self.__dict__["_forced"]
    width = args[1]
    rows = input_ids[:, -width] // table.shape[1]
    found = table[rows, :width]
    return found, torch.zeros_like(found), None


def slow_loss(
    train: Any, logps: list[list[float]], old: list[list[float]], ref: list[list[float]], A: list[float]
) -> float:
    """The definitions of ALGORITHMS, one token at a time, in plain floats; no tensor code is shared with the tool."""
    per_answer: list[list[float]] = []
    for lp_row, old_row, ref_row, a in zip(logps, old, ref, A, strict=True):
        n = len(lp_row)
        logs = [x - y for x, y in zip(lp_row, old_row, strict=True)]
        log_s = sum(logs) / n
        if train.loss == "gmpo":
            log_s = sum(min(x, train.clip.high) if a > 0 else max(x, -train.clip.low) for x in logs) / n
        terms = []
        for lp, before, base in zip(lp_row, old_row, ref_row, strict=True):
            r = math.exp(log_s) if train.ratio in ("sequence", "sequence_token") else math.exp(lp - before)
            if train.loss == "cispo":
                value = -min(r, train.clip.cap) * a * lp
            elif train.loss == "sapo":
                tau = 1.0 if a > 0 else 1.05
                value = -a * 4 / (1 + math.exp(-tau * (r - 1))) / tau
            elif train.loss == "vespo":
                w, k, decay = math.exp(sum(logs)), *((2, 3) if a >= 0 else (3, 2))
                value = -(w**k) * math.exp(decay * (1 - w)) * a * lp
            elif train.loss == "gmpo":
                value = -r * a
            elif train.ratio_clip == "tv":
                moved = math.exp(lp) - math.exp(before)
                masked = moved > train.clip.delta if a > 0 else moved < -train.clip.delta
                value = train.clip.pull * (lp - before) ** 2 - (0.0 if masked else r * a)
            else:
                clipped = min(max(r, 1 - train.clip.low), 1 + train.clip.high)
                value = -min(r * a, clipped * a)
            kl = lp - base
            value += (
                train.kl.beta
                * {
                    "k1_loss": kl,
                    "k1_reward": 0.0,
                    "k1_token": 0.0,
                    "k2": kl * kl / 2,
                    "k3": math.exp(-kl) + kl - 1,
                    "k3_corrected": r * (math.exp(-kl) + kl - 1),
                }[train.kl.estimator]
            )
            terms.append(value)
        per_answer.append(terms)
    if train.loss == "luspo":
        return sum(sum(row) for row in per_answer) / len(per_answer)
    if train.loss in ("grpo", "sapo", "gmpo"):
        return sum(sum(row) / len(row) for row in per_answer) / len(per_answer)
    total = sum(sum(row) for row in per_answer)
    if train.loss == "dr_grpo":
        return total / (len(per_answer) * MAX_TOKENS)
    return total / sum(len(row) for row in per_answer)
