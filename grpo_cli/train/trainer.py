"""The seam to TRL: hooks only. The halves of a step (`step.py`) stand around its part of it, in the order of the calls:

    _generate_and_score_completions   ours: `loop.begin`    groups and credit; TRL pads what `_generate` hands it
    _prepare_inputs                   TRL: shuffle, split   rows of like length are put together
    _compute_loss                     TRL: loss             inside `hooked_loss`; a NaN is noted
    training_step                     TRL: backward, accumulation
    _get_grad_norm                    TRL: clipping         a gradient that is not finite is refused
    (optimizer step)                  TRL
    log                               ours: `loop.close`    the record of the step

What it closes: a NaN loss shown as 0, an optimizer step on non-finite gradients, zero-variance rows that cost a
forward and backward pass, and row order that depends on a sampler that is not saved.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.trainer_utils import TrainOutput
from trl import GRPOConfig

from grpo_cli.algorithm.loss import Objective
from grpo_cli.distributed.replica import Replica
from grpo_cli.distributed.sharded import ShardedTrainer
from grpo_cli.policy.positions import needs_positions
from grpo_cli.policy.reference import Reference
from grpo_cli.resilience.checkpoint import TrainState, check_space, checkpoint_bytes, saving
from grpo_cli.rollout.collect import step_seed
from grpo_cli.rollout.fused.patches import patched
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.train.critic.learning import CriticLearning
from grpo_cli.train.kl import KlWatch, add_reference
from grpo_cli.train.learn import UpdateMetrics, hooked_loss
from grpo_cli.train.log_probs import (
    Batch,
    EmptyRows,
    Generated,
    LogProbRequest,
    LogProbs,
    LogProbSource,
    Prompt,
    RankSamples,
    RolloutLogProbs,
    leave_out_cut,
    put_credit,
    reward,
    swapped_source,
)
from grpo_cli.train.loop import Loop
from grpo_cli.train.step import StepBatch
from grpo_cli.train.trl_setup import (
    dealt,
    fit_replica,
    fused_operations,
    log_prob_source,
    packed_source,
    sorts_by_length,
    takes_sampled_logps,
)
from grpo_cli.train.updates import MiniBatches, NonFinite, Norm


class Trainer(ShardedTrainer):
    """TRL's GRPO trainer with our rollouts, verdicts, advantages, records and checkpoints."""

    before: StepBatch
    """The step that is under way: all that one hook leaves for another."""

    def __init__(
        self,
        loop: Loop,
        *,
        model: nn.Module,
        args: GRPOConfig,
        tokenizer: PreTrainedTokenizerBase,
        callbacks: list[TrainerCallback],
        on_checkpoint: Callable[[Trainer, Path], None],
        replica: Replica | None = None,
    ) -> None:
        self.loop, self.on_checkpoint = loop, on_checkpoint
        recipe, whole = loop.recipe, replica.model if replica else model
        self.objective = Objective.of(recipe.train, recipe.sample.group)
        self.reference = Reference(whole) if self.objective.needs_reference else None
        watch = recipe.monitor.kl
        self.kl_watch = KlWatch(watch, whole) if watch != "off" and self.reference is None else None
        rows = EmptyRows(recipe.sample.prompts * (args.max_steps // recipe.train.updates + 2))
        self.guard = NonFinite("non_finite" in recipe.stop.on, lambda text: loop.display.note("warn", text))
        absolute = needs_positions(model)  # asked while the weights are whole
        super().__init__(
            recipe.launch.strategy,
            replica,
            model=model,
            reward_funcs=[reward],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["-"]}),  # TRL asks for one; `rows` stand in below
            processing_class=tokenizer,
            callbacks=callbacks,
        )
        self.train_dataset = rows
        self.remove_callback(PrinterCallback)
        fit_replica(self, args)
        self.sorts = sorts_by_length(loop, args)
        self.takes_logps = takes_sampled_logps(self, loop, model, args)
        self.fused = fused_operations(self, model, args)
        self.packed = packed_source(self, loop, model, args, self.fused, absolute)
        self.source: LogProbSource = self.packed or log_prob_source(self, loop, model, args, absolute)
        self.mini = MiniBatches.of(args)
        critic = CriticLearning.of(
            loop, self.objective, model, whole, tokenizer, self.accelerator, args, absolute=absolute
        )
        self.critic, self.beside = critic, critic
        self.updates = UpdateMetrics(by_row=self.importance_sampling_level == "sequence")

    def train(self, *args: object, **named: object) -> TrainOutput:
        """TRL's, with the model's small operations fused where that was proved to change nothing."""
        with patched(self.fused):
            return super().train(*args, **named)

    def _generate_and_score_completions(self, inputs: list[Batch]) -> Batch:
        self.before = self._begin()
        # what follows (dropout while scoring and training, TRL's shuffle of the batch) is a function of the step, so that a resumed run repeats it
        torch.manual_seed(step_seed(self.loop.recipe.train.seed, self.before.step + 1))
        samples = self.samples
        sampled = RolloutLogProbs(samples.completions, self.accelerator.device)
        with self.reading(sampled if self.takes_logps else self.source):
            out: Batch = super()._generate_and_score_completions([{"prompt": p} for p in samples.prompts])
        if self.loop.recipe.train.mask_truncated:
            leave_out_cut(out, samples.completions, self.accelerator)
        self.before = self._measured(self.before, out, samples)
        put_credit(out, self.before.credit, samples.places, prunes=self.objective.kept < 1)
        if self.critic is not None:
            self.before, out["advantages"] = self.critic.learn(self, self.before, out, samples)
        return out

    def _begin(self) -> StepBatch:
        self.sync_weights()
        try:
            return self.loop.begin()
        except ServerLost:  # the weights are well, and so is the rest: it stands between two steps
            done = self.loop.steps_done
            if done and not self.loop.run.checkpoint_path(done).exists():
                self._save_checkpoint(self.model, None)
            raise

    def _measured(self, before: StepBatch, out: Batch, samples: RankSamples) -> StepBatch:
        """With what the KL monitor says of the batch, and less the KL where it is taken off the rewards."""
        if self.kl_watch is not None and self.kl_watch.is_due(before.step + 1):
            with self.loop.clock.phase("monitor"):
                before = replace(before, measured=self.kl_watch.measure(self, out))
        if self.reference is None:
            return before
        penalty = add_reference(self, self.reference, out, samples.completions, are_exact=self.takes_logps)
        if penalty is None:
            return before
        penalty_PG = penalty.cpu().view(before.credit.kept_PG.shape)
        return replace(before, credit=self.loop.method.credit(before.groups, penalty_PG))

    @property
    def samples(self) -> RankSamples:
        """This rank's part of the batch."""
        places = self.loop.ranks.share(sum(len(group.rewards) for group in self.before.groups))
        return RankSamples.of(self.before, self.loop.rows, places)

    def _generate(self, prompts: list[Prompt]) -> Generated:
        return self.samples.generated(with_logps=self.use_vllm)

    def _calculate_rewards(
        self,
        inputs: Batch,
        prompts: list[Prompt],
        completions: list[Prompt],
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        """(samples of all ranks, 1), as TRL gathers; it makes advantages of them that `put_credit` replaces."""
        rewards = [reward for group in self.before.groups for reward in group.rewards]
        return torch.tensor(rewards, dtype=torch.float64, device=self.accelerator.device).unsqueeze(1)

    def _prepare_inputs(self, generation_batch: list[Batch]) -> Batch:
        before: list[Batch] | None = self._buffered_inputs  # type: ignore[has-type]
        inputs: Batch = super()._prepare_inputs(generation_batch)
        held: list[Batch] = self._buffered_inputs  # type: ignore[has-type]
        again = self.mini.again(self._step)
        if held is not before or again:
            self._buffered_inputs = dealt(self, held, again)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _compute_loss(self, model: nn.Module, inputs: Batch) -> torch.Tensor:
        loss = hooked_loss(self, super()._compute_loss, model, inputs, self.loop.ranks.largest)
        if self.critic is not None and self.critic.warms:
            loss = loss * 0.0
        self.guard.loss(loss, lambda: self.loop.row_ids(self.before, inputs["sample"].tolist()))
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **more: object,
    ) -> LogProbs:
        call = super()._get_per_token_logps_and_entropies
        plain = partial(call, model, input_ids, attention_mask, logits_to_keep, batch_size, **more)
        return self.source(
            LogProbRequest(model, input_ids, attention_mask, logits_to_keep, batch_size, more, plain)
        )

    def reading(self, source: LogProbSource) -> AbstractContextManager[None]:
        """While inside, TRL's calls for log-probs are answered by `source`."""
        return swapped_source(self, source)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Norm = None) -> Norm:
        self.loop.account(self.before)  # a device is still at the backward pass, and the norm waits for it
        norm: Norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self.mini.passes(self._step, model):
            return norm
        kept = self.guard.gradient(norm, self.before.step + 1, model)
        if kept is None and norm is not None:
            # a NaN would stay in TRL's running sum for good
            self._tr_loss = self._tr_loss.new_zeros(())  # type: ignore[has-type]
        if self.critic is not None and self.critic.warms:
            model.zero_grad(set_to_none=True)  # an optimizer passes over parameters without a gradient
        return kept

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" not in logs:
            return  # the closing summary of transformers' loop; the end card says it better
        self.updates.update(logs, self._metrics["train"])
        if self.state.global_step % self.mini.updates == 0:  # the batch was trained on as often as asked
            more = self.held() | self.mini.metrics()
            learned = self.updates.take(skipped_steps=self.guard.skipped, **more)
            super().log(self.loop.close(self.before, learned), start_time)

    def train_state(self) -> TrainState:
        """What a checkpoint keeps beside TRL's own."""
        return self.loop.state(self.guard.skipped)

    def load_train_state(self, state: TrainState) -> None:
        """Go on from a checkpoint, whose weights TRL loads."""
        self.loop.load_state(state)
        self.guard.skipped = state.skipped_steps
        # counted anew: on another number of processes a batch has another number of micro-steps
        self._step = state.generation * self.args.steps_per_generation * self.num_iterations

    def _save_checkpoint(self, model: nn.Module, trial: None) -> None:
        loop, folder = self.loop, Path(self.args.output_dir)
        loop.display.phase("save")
        with loop.clock.phase("pause"), saving(folder, loop.steps_done):
            past = loop.reuse.history.nbytes if loop.reuse is not None else 0
            check_space(loop.run.path, checkpoint_bytes(self.model) + past)
            super()._save_checkpoint(model, trial)
            loop.ranks.wait()
            if loop.ranks.is_main:
                self.on_checkpoint(self, folder / f"checkpoint-{self.state.global_step}")
            loop.ranks.wait()
