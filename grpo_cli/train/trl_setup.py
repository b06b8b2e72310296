"""What the seam decides once, when the trainer is made: where log-probs come from, what is sorted, watched and fused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import nn
from trl import GRPOConfig
from trl.trainer.utils import add_fused_lm_head

from grpo_cli.algorithm.loss import Objective
from grpo_cli.distributed.sharding import mark_whole
from grpo_cli.policy.modes import causal_model
from grpo_cli.recipe.whole_batch import acts_on_every_row
from grpo_cli.rollout.collect import step_seed
from grpo_cli.rollout.fused.patches import Patch
from grpo_cli.rollout.fused.update import update_patches
from grpo_cli.rollout.logprobs import can_share
from grpo_cli.train.log_probs import Batch, LogProbSource, SharedPromptLogProbs, TrlLogProbs, are_exact
from grpo_cli.train.packed.self_check import difference, replay_difference, unfit
from grpo_cli.train.packed.source import PackedSource, ScoreNumerics
from grpo_cli.train.step import StepBatch
from grpo_cli.train.updates import MiniBatches, by_length, may_sort, reshuffled

if TYPE_CHECKING:
    from grpo_cli.distributed.sharded import ShardedTrainer
    from grpo_cli.train.loop import Loop


class BatchDealing(Protocol):
    """What says how a batch is dealt: TRL's settings, then ours."""

    args: GRPOConfig
    loop: Loop
    objective: Objective
    packed: PackedSource | None
    sorts: bool
    mini: MiniBatches
    before: StepBatch


def fit_replica(trainer: ShardedTrainer, args: GRPOConfig) -> None:
    """Give the copy that generates the output head that TRL gave the policy."""
    if trainer.replica is None:
        return
    copy, outputs = causal_model(trainer.replica.model), ("log_probs", "entropy")
    add_fused_lm_head(copy, trainer.temperature, args.cast_lm_head_to_fp32, outputs)
    if trainer.strategy == "zero3":
        head = copy.get_output_embeddings()
        assert head is not None
        mark_whole(head)


def log_prob_source(
    trainer: ShardedTrainer, loop: Loop, model: nn.Module, args: GRPOConfig, absolute: bool
) -> LogProbSource:
    """Our own forward pass where it computes the same from fewer tokens, else TRL's; `absolute` as in `TrlLogProbs`."""
    # each of these needs TRL's own pass: other ranks wait in it, or it computes more than we do
    shares = (
        loop.ranks.world == 1
        and not (args.gradient_checkpointing or trainer._entropy_bonus_enabled or args.cast_lm_head_to_fp32)
        and can_share(model)
    )
    trl = TrlLogProbs(absolute)
    return (
        SharedPromptLogProbs(trainer.accelerator, trainer.model, trainer.temperature, trl) if shares else trl
    )


def sorts_by_length(loop: Loop, args: GRPOConfig) -> bool:
    """Whether rows of like length are put into the same micro-batch."""
    train = loop.recipe.train
    return args.gradient_accumulation_steps > 1 and may_sort(train.loss, acts_on_every_row(train.trl))


def takes_sampled_logps(trainer: ShardedTrainer, loop: Loop, model: nn.Module, args: GRPOConfig) -> bool:
    """Whether the log-probs that samples were drawn with are those of the policy before the update."""
    return bool(
        trainer.strategy == "ddp" and not trainer.use_vllm and are_exact(loop.collect.engine, model, args)
    )


def packed_source(
    trainer: ShardedTrainer,
    loop: Loop,
    model: nn.Module,
    args: GRPOConfig,
    fused: list[Patch],
    absolute: bool,
) -> PackedSource | None:
    """The packed update of a CUDA device, once it has shown on this model that it computes the same; where it is not to
    be had the screen says why. `absolute` as in `TrlLogProbs`."""
    if trainer.accelerator.device.type != "cuda":
        return None
    autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    numbers = ScoreNumerics(autocast, trainer.temperature, bool(args.cast_lm_head_to_fp32))

    def say(text: str) -> None:
        loop.display.note("info", text)

    why = _keeps_rows(trainer, loop, args) or unfit(model, numbers) or difference(model, numbers, fused)
    if why is not None:
        say(f"the update pads its rows: {why}")
        return None
    uncaptured = replay_difference(model, numbers, fused)
    if uncaptured is not None:
        say(f"the update runs without CUDA graphs: {uncaptured}")
    return PackedSource(model, numbers, say, TrlLogProbs(absolute), captures=uncaptured is None)


def dealt(trainer: BatchDealing, batches: list[Batch], again: int) -> list[Batch]:
    """The rows of each optimizer step in the micro-batches that cost least; `again` is the further pass over the batch that
    begins, 0 where it is new."""
    window, drops = trainer.args.gradient_accumulation_steps, trainer.objective.drop_dead
    if again:
        batches = reshuffled(
            batches, step_seed(trainer.loop.recipe.train.seed, trainer.before.step + 1) + again
        )
    if trainer.packed is not None:
        group = trainer.loop.recipe.sample.group if trainer.sorts else None
        batches = trainer.packed.deal(batches, window, group, drops)
    elif trainer.sorts:
        batches = by_length(batches, window)
    # DeepSpeed steps in its backward pass, where nothing can be thrown away any more
    if not trainer.objective.every_row and not trainer.loop.recipe.launch.strategy.startswith("zero"):
        trainer.mini.look(batches, trainer.loop.ranks.largest)
    return batches


def _keeps_rows(trainer: ShardedTrainer, loop: Loop, args: GRPOConfig) -> str | None:
    """What of the run's settings needs the model's own forward pass; None where nothing does."""
    if trainer.strategy != "ddp" or loop.ranks.world > 1:
        return "several processes share it"
    asked = {
        "gradient checkpointing": args.gradient_checkpointing,
        "torch.compile": args.torch_compile,
        "an entropy bonus": trainer._entropy_bonus_enabled,
        "a loss of the router": getattr(trainer, "aux_loss_enabled", False),
    }
    found = [name for name, wanted in asked.items() if wanted]
    return f"the recipe asks for {found[0]}" if found else None


def fused_operations(trainer: ShardedTrainer, model: nn.Module, args: GRPOConfig) -> list[Patch]:
    """Small operations of the model that run as one kernel during training; none on a CPU."""
    fuses = trainer.accelerator.device.type == "cuda" and trainer.strategy == "ddp" and not args.torch_compile
    return update_patches(model, torch.bfloat16 if args.bf16 else None) if fuses else []
