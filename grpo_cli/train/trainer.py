"""The seam to TRL: hooks only. Each override hands over to `step.py` or guards one thing TRL lets pass silently.

What it closes: a NaN loss shown as 0, an optimizer step on non-finite gradients, zero-variance rows that cost a
forward and backward pass, and row order that depends on a sampler that is not saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig
from trl.trainer.utils import add_fused_lm_head

from grpo_cli.algorithm.loss import Objective, Scored, acts_on_every_row, hooked_loss
from grpo_cli.distributed.replica import Replica
from grpo_cli.distributed.sharded import ShardedTrainer
from grpo_cli.distributed.sharding import mark_whole
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.reference import Reference, answer_kl, score, token_kl
from grpo_cli.resilience.checkpoint import check_space, checkpoint_bytes, saving
from grpo_cli.rollout.fused.swaps import swapped
from grpo_cli.rollout.fused.update import update_swaps
from grpo_cli.rollout.logprobs import can_share, draws_dropout, score_shared
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.train.kl_monitor import KlWatch
from grpo_cli.train.micro_batches import by_length, may_sort
from grpo_cli.train.nonfinite import NonFinite
from grpo_cli.train.old_logprobs import are_exact, padded
from grpo_cli.train.step import GrpoStep

# TRL's names of what the optimizer step measured -> ours
MEASURED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip/total",
    "clip_ratio/low_mean": "clip/low",
    "clip_ratio/high_mean": "clip/high",
    "cispo_clip_ratio": "clip/total",
}


class Trainer(ShardedTrainer):
    """TRL's GRPO trainer with our rollouts, verdicts, advantages, records and checkpoints."""

    def __init__(
        self,
        step: GrpoStep,
        *,
        model: Any,
        args: GRPOConfig,
        tokenizer: Any,
        callbacks: list[TrainerCallback],
        on_checkpoint: Callable[[Trainer, Path], None],
        replica: Replica | None = None,
    ) -> None:
        self.grpo = step
        self.on_checkpoint = on_checkpoint
        self.objective = Objective.of(step.recipe.train, step.recipe.sample.group)
        self.scored: Scored | None = None
        whole = replica.model if replica else model
        self.reference = Reference(whole) if self.objective.needs_reference else None
        watch = step.recipe.monitor.kl
        self.kl_watch = KlWatch(watch, whole) if watch != "off" and self.reference is None else None
        self._updates: list[dict[str, float]] = []
        self._sizes: list[torch.Tensor] = []  # tokens and rows in the loss of each micro-batch of this update
        self.guard = NonFinite(
            "non_finite" in step.recipe.stop.on, lambda text: self.grpo.display.note("warn", text)
        )
        generations = args.max_steps // args.num_iterations + 2
        # the rows are chosen in the hook below; the loader only has to deliver batches of the right size
        places = Dataset.from_dict({"prompt": ["-"] * (step.recipe.sample.prompts * generations)})
        super().__init__(
            step.recipe.launch.strategy,
            replica,
            model=model,
            reward_funcs=[reward],
            args=args,
            train_dataset=places,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
        self.remove_callback(PrinterCallback)
        if replica:
            copy, outputs = causal_model(replica.model), ("log_probs", "entropy")
            add_fused_lm_head(copy, self.temperature, args.cast_lm_head_to_fp32, outputs)
            if self.strategy == "zero3":
                mark_whole(copy)
        self.shares_prompts = (
            step.ranks.world == 1
            and not (args.gradient_checkpointing or self._entropy_bonus_enabled or args.cast_lm_head_to_fp32)
            and can_share(model)
        )
        self.sorts = args.gradient_accumulation_steps > 1 and may_sort(
            self.objective.loss, acts_on_every_row(step.recipe.train.trl)
        )
        self.takes_logps = (
            self.strategy == "ddp" and not self.use_vllm and are_exact(step.engine, model, args)
        )
        self._hands_over = False
        fuses = self.accelerator.device.type == "cuda" and self.strategy == "ddp" and not args.torch_compile
        self.fused = update_swaps(model, torch.bfloat16 if args.bf16 else None) if fuses else []

    def train(self, *args: Any, **named: Any) -> Any:
        """TRL's, with the model's small operations fused where that was proved to change nothing."""
        with swapped(self.fused):
            return super().train(*args, **named)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.catch_up()
        try:
            groups = self.grpo.draw(lambda prompts: self._tokenize_prompts(prompts)[0])
        except ServerLost:  # the weights are well, and so is the rest: it stands between two steps
            if self.grpo.generation and not self.grpo.run.checkpoint_path(self.grpo.generation).exists():
                self._save_checkpoint(self.model, None)
            raise
        # what follows (dropout while scoring and training, TRL's shuffle of the batch) is a function of the step, so that a resumed run repeats it
        torch.manual_seed(self.grpo.step_seed())
        mine = self.grpo.mine
        rows = [self.grpo.rows[groups[i // self.num_generations].row] for i in mine]
        self._hands_over = self.takes_logps
        try:
            out: dict[str, Any] = super()._generate_and_score_completions(
                [{"prompt": row.messages or row.prompt} for row in rows]
            )
        finally:
            self._hands_over = False
        if self.kl_watch is not None and self.kl_watch.is_due(self.grpo.generation):
            with self.grpo.clock.phase("monitor"):
                self.grpo.monitored = self.kl_watch.measure(self, out)
        advantages = self.grpo.advantages(self.rewards - self._score_reference(out))
        out["advantages"] = advantages[mine.start : mine.stop].to(out["advantages"])
        if self.objective.kept < 1:
            counted = out["completion_mask"].sum(dim=1) * self.grpo.kept_PG.flatten()[mine.start : mine.stop]
            out["num_items_in_batch"] = gather(counted.sum()).sum()
        out["sample"] = torch.arange(mine.start, mine.stop, device=advantages.device)
        return out

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before: Any = self._buffered_inputs  # type: ignore[has-type]
        inputs = super()._prepare_inputs(generation_batch)
        held: Any = self._buffered_inputs  # type: ignore[has-type]
        if self.sorts and held is not before:
            self._buffered_inputs = by_length(held, self.args.gradient_accumulation_steps)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def catch_up(self) -> None:
        """Bring the copy that generates up to the weights of now; nothing to do where the engine reads them in place."""
        if self.replica is not None:
            self.replica.follow(self.model, self.state.global_step)

    @property
    def whole(self) -> Any:
        """The model that scores outside the loss: the policy itself, or its replica."""
        return self.replica.model if self.replica else self.model

    def _score_reference(self, out: dict[str, Any]) -> torch.Tensor | float:
        """Put the reference's log-probs beside the samples; returns what KL takes off each reward."""
        if self.reference is None:
            return 0.0
        with self.reference.swapped_in():
            out["ref_per_token_logps"] = score(self, out)
        beta = self.objective.reward_beta
        if not beta:
            return 0.0
        logps, mask = out.get("old_per_token_logps"), out["completion_mask"]
        if logps is None or draws_dropout(self.whole):
            logps = self._sampled(mask.shape[1]) if self.takes_logps else score(self, out)
        self._metrics["train"]["kl"].append(token_kl(logps, out["ref_per_token_logps"], mask))
        off: torch.Tensor = gather(answer_kl(logps, out["ref_per_token_logps"], mask))
        return beta * off

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """What `draw` sampled, as TRL's `_generate` would return it: no second tokenising, decoding or counting."""
        mine = self.grpo.mine
        rows = [group.row for group in self.grpo.groups for _ in group.completions][mine.start : mine.stop]
        ids = [c.token_ids for group in self.grpo.groups for c in group.completions][mine.start : mine.stop]
        texts = [text for group in self.grpo.groups for text in group.texts][mine.start : mine.stop]
        is_chat = not isinstance(prompts[0], str)
        said = [[{"role": "assistant", "content": text}] for text in texts] if is_chat else texts
        logps = None
        if self.use_vllm:  # TRL weighs the loss by how far these are from the model's own
            every = [c.logps for group in self.grpo.groups for c in group.completions]
            logps = every[mine.start : mine.stop]
        return self.grpo.prompt_ids(rows), ids, None, said, logps, {}, None, []

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        self.rewards = torch.tensor(
            self.grpo.rewards, device=self.accelerator.device
        )  # of all ranks, as TRL gathers
        return self.rewards.unsqueeze(1)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = hooked_loss(self, super()._compute_loss, model, inputs)
        self.guard.loss(loss, lambda: self.grpo.row_ids(inputs["sample"].tolist()))
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: Any,
    ) -> Any:
        if self._hands_over:  # TRL asks for the log-probs of what was just sampled
            return self._sampled(logits_to_keep), None, None
        if self.shares_prompts and not any(
            value not in (None, False) for name, value in more.items() if name != "compute_entropy"
        ):
            found = self._scored(input_ids, attention_mask, logits_to_keep, batch_size or len(input_ids))
        else:
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **more
            )
        if self.scored is not None:
            self.scored.see(found[0])
            size = torch.stack([self.scored.mask_BT.sum(), self.scored.mask_BT.new_tensor(len(found[0]))])
            if self.objective.drop_dead and not self.scored.inputs["advantages"].any():
                size.zero_()  # a dead row that stayed for the sake of the graph
            self._sizes.append(self.accelerator.reduce(size, reduction="sum"))
        return found

    def _sampled(self, width: int) -> torch.Tensor:
        """(B, width) log-probs that this rank's samples were drawn with."""
        every = [c for group in self.grpo.groups for c in group.completions]
        return padded(every[self.grpo.mine.start : self.grpo.mine.stop], width, self.accelerator.device)

    def _scored(self, ids: torch.Tensor, mask: torch.Tensor, keep: int, rows: int) -> Any:
        with self.accelerator.autocast():
            found = [
                score_shared(self.model, ids[i : i + rows], mask[i : i + rows], keep, self.temperature)
                for i in range(0, len(ids), rows)
            ]
        return torch.cat([s.logps_BT for s in found]), torch.cat([s.entropies_BT for s in found]), None

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        kept = self.guard.gradient(norm, self.grpo.generation, model)
        if kept is None and norm is not None:
            # a NaN would stay in TRL's running sum for good
            self._tr_loss = self._tr_loss.new_zeros(())  # type: ignore[has-type]
        return kept

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" not in logs:
            return  # the closing summary of the loop; the end card says it better
        tokens, rows = torch.stack(self._sizes).T.tolist()
        self._sizes.clear()
        by_row = self.importance_sampling_level == "sequence"  # one ratio a row
        means = {
            key: _mean(values, rows if by_row and "clip_ratio" in key else tokens)
            for key, values in self._metrics["train"].items()
        }
        measured = logs | {key: value for key, value in means.items() if value is not None}
        self._metrics["train"].clear()
        self._updates.append({ours: measured[name] for name, ours in MEASURED.items() if name in measured})
        if self.is_batch_done:
            trained = {key: fmean(u[key] for u in self._updates if key in u) for key in self._updates[-1]}
            trained["skipped_steps"] = self.guard.skipped
            trained |= self.held()
            self._updates.clear()
            super().log(self.grpo.close(trained), start_time)

    @property
    def is_batch_done(self) -> bool:
        """Whether the current batch of completions has been trained on as often as the recipe says."""
        return bool(self.state.global_step % self.num_iterations == 0)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.grpo.display.phase("save")
        folder = Path(self.args.output_dir)
        with self.grpo.clock.phase("pause"), saving(folder, self.grpo.generation):
            past = self.grpo.reuse.past.nbytes if self.grpo.reuse is not None else 0
            check_space(self.grpo.run.path, checkpoint_bytes(self.model) + past)
            super()._save_checkpoint(model, trial)
            self.grpo.ranks.wait()
            if self.grpo.ranks.is_main:
                self.on_checkpoint(self, folder / f"checkpoint-{self.state.global_step}")
            self.grpo.ranks.wait()


def reward(**_: Any) -> list[float]:
    """Named for TRL's log only: verdicts come from `_calculate_rewards`."""
    raise AssertionError("TRL called the placeholder reward: its `_calculate_rewards` is no longer ours")


def _mean(values: list[float], sizes: list[int]) -> float | None:
    """The mean over all of what has a mean for each micro-batch: they differ in size, most where they go by length."""
    if len(values) != len(sizes) or not any(sizes):  # measured once a batch, or of nothing
        sizes = [1] * len(values)
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if not math.isnan(value)]
    whole = sum(size for _, size in known)
    return sum(value * size for value, size in known) / whole if whole else None
