"""From our recipe to the configurations of TRL's preference trainers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from trl import DPOConfig, KTOConfig

from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD
from grpo_cli.recipe.sections.recipe import Prefer, Train
from grpo_cli.train.trl_config import scheduler

BETA = {"simpo": 2.0}
"""Where it is not 0.1: SimPO's is a weight of mean log-probs a token, and CPO's default of 0.1 would hardly move it."""


@dataclass(frozen=True)
class Update:
    """Sizes of a step's learning: examples a forward pass, forward passes an update, updates."""

    micro: int
    accumulate: int
    count: int


def update_of(prefer: Prefer, examples: int, longest: int, device: torch.device) -> Update:
    """How `examples` are dealt into updates: all of one at once on a CPU, what fits a budget of tokens on a GPU.

    Args:
        prefer: whose batch and micro-batch count.
        examples: pairs (KTO: answers) to learn from, epochs among them.
        longest: tokens of the longest prompt with its longer answer.
        device: where the model is.
    """
    batch = min(prefer.batch, examples)
    most = batch if prefer.micro_batch is None else min(prefer.micro_batch, batch)
    if prefer.micro_batch is None and device.type == "cuda":
        most = max(1, GPU_TOKENS_A_FORWARD // (2 * max(longest, 1)))
    least = 2 if prefer.loss == "kto" and batch > 1 else 1  # its KL needs another prompt's answer beside each
    fits = [size for size in range(least, batch + 1) if batch % size == 0]
    micro = max((size for size in fits if size <= most), default=fits[0])
    return Update(micro, batch // micro, examples // batch)


def trl_config(
    prefer: Prefer,
    train: Train,
    folder: Path,
    update: Update,
    *,
    on_cpu: bool,
    bf16: bool,
    counts: tuple[int, int] = (1, 1),
) -> TrainingArguments:
    """TRL's configuration of one step; `counts` are its right and wrong answers, which KTO is balanced by."""
    fields: dict[str, Any] = {"beta": prefer.beta or BETA.get(prefer.loss, 0.1)}
    fields |= _common(train, folder, update, on_cpu=on_cpu, bf16=bf16)
    made: TrainingArguments
    if prefer.loss == "kto":
        right, wrong = kto_weights(*counts)
        fields |= {"desirable_weight": right, "undesirable_weight": wrong, "max_length": None}
        made = KTOConfig(**fields, precompute_ref_log_probs=True)
    elif prefer.loss in ("orpo", "simpo"):
        from grpo_cli.train.prefer.free import free_config

        made = free_config(prefer, fields)
    else:
        kinds = ["ipo" if prefer.loss == "ipo" else "sigmoid"]
        sft = (1.0 if prefer.loss == "irpo" else 0.0) if prefer.sft is None else prefer.sft
        fields |= {
            "loss_type": [*kinds, "sft"] if sft else kinds,
            "loss_weights": [1.0, sft] if sft else [1.0],
        }
        fields |= {"max_length": None, "router_aux_loss_coef": 0.0}
        made = DPOConfig(**fields, precompute_ref_log_probs=True)
    return made


def kto_weights(right: int, wrong: int) -> tuple[float, float]:
    """Weights of right and of wrong answers that bring right : wrong into [1, 4/3] (KTO, arXiv 2402.01306, eq. 8)."""
    ratio = right / wrong if wrong else 1.0
    if right and ratio < 1:
        # right answers weigh more until they count as much as wrong ones
        return wrong / right, 1.0
    if ratio > 4 / 3:
        # wrong ones weigh more until right : wrong is 4/3
        return 1.0, ratio * 3 / 4
    return 1.0, 1.0


def _common(train: Train, folder: Path, update: Update, *, on_cpu: bool, bf16: bool) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": update.micro,
        "gradient_accumulation_steps": update.accumulate,
        "max_steps": update.count,
        "learning_rate": train.lr,
        "lr_scheduler_type": scheduler(train.schedule),
        "warmup_steps": train.lr_warmup_steps or 0,
        "max_grad_norm": train.max_grad_norm,
        "train_sampling_strategy": "sequential",  # the order is ours
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": on_cpu,
        "bf16": bf16,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": train.seed,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": not on_cpu,
    }
