"""The seam to TRL. The halves of a step (`step.py`) stand around TRL's part of it, in the order of the calls:

    _generate_and_score_completions   ours: `loop.begin`    groups and credit; TRL pads what `_generate` returns
    _prepare_inputs                   TRL: shuffle, split   rows of like length are put together (`redistributed`)
    _compute_loss                     TRL: loss             inside `hooked_loss`; a NaN is noted
    training_step                     TRL: backward, accumulation
    _get_grad_norm                    TRL: clipping         a gradient that is not finite is refused
    (optimizer step)                  TRL
    log                               ours: `loop.close`    the record of the step

This corrects four things in TRL: a NaN loss is shown as 0, the optimizer steps on non-finite gradients, rows without
advantage cost a forward and backward pass, and the order of rows depends on a sampler that is not saved.

`Trainer` holds the hooks, `hooked_loss` is the loss of a micro-batch of B rows and T completion tokens; P prompts, G samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.trainer_utils import TrainOutput
from trl import GRPOConfig
from trl.trainer.utils import add_fused_lm_head

from grpo_cli.algorithm import loss as losses
from grpo_cli.algorithm.loss import PER_ROW, MicroBatchLogProbs, Objective, aggregate, drop_dead_rows
from grpo_cli.data.images import RowImage
from grpo_cli.distributed.exchange import LocalStatistics, take_weights
from grpo_cli.distributed.replica import Replica
from grpo_cli.distributed.sharded import ShardedTrainer
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.failures import loading_failures
from grpo_cli.policy.modes import causal_model, is_in_4bit
from grpo_cli.policy.positions import needs_positions
from grpo_cli.policy.vision import Vision
from grpo_cli.recipe.sections.course import DEEPSPEED, keeps_whole
from grpo_cli.recipe.sections.method import acts_on_every_row, whole_only
from grpo_cli.resilience.checkpoint import TrainState, check_space, checkpoint_bytes, saving
from grpo_cli.rollout.collect import step_seed
from grpo_cli.rollout.fused.patches import Patch, patched
from grpo_cli.rollout.fused.update import update_patches
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.logprobs import can_share, draws_dropout
from grpo_cli.rollout.mixing import batch_mixtures, mixed_as_sampled
from grpo_cli.rollout.scoring import DraftScorer
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.train.credit import energies, with_token_baseline
from grpo_cli.train.critic.learning import CriticLearning
from grpo_cli.train.cuts import CutValues
from grpo_cli.train.distil import Distillation, TopkLogProbs
from grpo_cli.train.kl import KlWatch, Reference, add_reference
from grpo_cli.train.log_probs import (
    Batch,
    LogProbRequest,
    LogProbs,
    LogProbSource,
    RecordedLogProbs,
    RolloutLogProbs,
    SharedPromptLogProbs,
    TrlLogProbs,
    are_exact,
)
from grpo_cli.train.loop import Loop
from grpo_cli.train.packed.recompute import Keeping, repeatable_layers
from grpo_cli.train.packed.source import packed_source
from grpo_cli.train.step import StepBatch
from grpo_cli.train.trl_batch import (
    EmptyRows,
    Generated,
    Prompt,
    RankSamples,
    leave_out_cut,
    own_samples,
    put_credit,
    reward,
)
from grpo_cli.train.trl_config import autocast_of
from grpo_cli.train.updates import (
    MiniBatches,
    NonFinite,
    Norm,
    UpdateMetrics,
    by_length,
    may_sort,
    put_clip_metrics,
    reshuffled,
)


class Trainer(ShardedTrainer):
    """TRL's GRPO trainer with our rollouts, verdicts, advantages, records and checkpoints."""

    accelerator: Any
    before: StepBatch
    samples: RankSamples
    """The current step, and this rank's part of it: the state that one hook leaves for another."""

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
        vision: Vision | None = None,
    ) -> None:
        self.vision, self.images = vision, list[tuple[RowImage, ...]]()
        self.loop, self.on_checkpoint = loop, on_checkpoint
        if not loop.ranks.is_alone:
            take_weights(model)  # before anything copies them: an adapter is drawn by each process
        recipe, whole = loop.recipe, replica.model if replica else model
        train = recipe.train
        self.objective = Objective.of(train, recipe.sample.group)
        self.reference = Reference(whole) if self.objective.needs_reference else None
        watch = recipe.monitor.kl
        self.kl_watch = KlWatch(watch, whole) if watch != "off" and self.reference is None else None
        rows = EmptyRows(recipe.sample.prompts * (args.max_steps // train.updates + 2))
        self.guard = NonFinite("non_finite" in recipe.stop.on, lambda text: loop.display.note("warn", text))
        # a forward pass, so before the weights are sharded; a model that reads images makes positions itself
        absolute = vision is None and needs_positions(model)
        adapters = [(p, p.data) for p in model.parameters() if p.requires_grad and is_in_4bit(model)]
        super().__init__(
            recipe.launch.strategy,
            replica,
            model=model,
            reward_funcs=[reward],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["-"]}),  # TRL requires a data set; `rows` replace it below
            processing_class=tokenizer,
            callbacks=callbacks,
        )
        for parameter, own in adapters:
            parameter.data = own  # TRL makes them bfloat16 over weights in 4 bits, which swallows small updates
        self.train_dataset = rows
        self.remove_callback(PrinterCallback)
        outputs, exact_head = ("log_probs", "entropy"), args.cast_lm_head_to_fp32 or recipe.model.head == "float32"
        if exact_head and not args.cast_lm_head_to_fp32:
            add_fused_lm_head(causal_model(self.model), self.temperature, True, outputs)
        if replica is not None:
            # TRL has patched the policy's output head; the copy that generates must compute the same
            copy = causal_model(replica.model)
            add_fused_lm_head(copy, self.temperature, exact_head, outputs)
            if self.strategy == "zero3":
                from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

                head = copy.get_output_embeddings()
                assert head is not None
                for parameter in head.parameters():  # TRL gathers the head of any model under ZeRO-3
                    parameter.ds_status = ZeroParamStatus.AVAILABLE  # type: ignore[attr-defined]
        # whether rows of similar length are put into the same micro-batch
        self.sorts = args.gradient_accumulation_steps > 1 and may_sort(train.loss, acts_on_every_row(train.trl))
        # whether the log-probs that samples were drawn with are those of the policy before the update
        self.takes_logps = bool(
            keeps_whole(self.strategy) and not self.use_vllm and are_exact(loop.collect.engine, model, args)
        )
        # small operations of the model that run as one kernel during training; none on a CPU
        fuses = vision is None and self.accelerator.device.type == "cuda" and keeps_whole(self.strategy)
        fuses = fuses and not args.torch_compile
        self.fused: list[Patch] = update_patches(model, autocast_of(args)) if fuses else []
        # what lies in memory between the passes; sharded models leave it to their library
        self.keeping = Keeping(train.recomputes if keeps_whole(self.strategy) else "no", train.offload != "no")
        if self.keeping.recompute != "no" and not repeatable_layers(causal_model(model)):
            raise SetupError(
                f"`train.recompute: {self.keeping.recompute}` finds no layers that can be made again in this model",
                hint="leave it out",
            )
        beside = {"an entropy bonus": self._entropy_bonus_enabled, "a model that reads images": vision is not None}
        beside["a loss of the router"] = getattr(self, "aux_loss_enabled", False)
        self.packed = packed_source(
            loop, model, args, self.fused, self.keeping, self.gradients, beside, absolute=absolute
        )
        trl = TrlLogProbs(absolute)
        # our forward pass computes the same from fewer tokens, because each prompt is computed once. These settings
        # need TRL's own pass: it gathers shards, or it computes more than ours
        shares = (
            keeps_whole(self.strategy)
            and not recipe.sample.mixed
            and not (args.gradient_checkpointing or self._entropy_bonus_enabled or args.cast_lm_head_to_fp32)
            and self.keeping.recompute == "no"  # a layer that is made again would write its keys and values twice
            and (vision is None and can_share(model))
        )
        self.source: LogProbSource = self.packed or (
            SharedPromptLogProbs(self.accelerator, self.model, self.temperature, trl) if shares else trl
        )
        self.mini = MiniBatches.of(args)
        self.critic = CriticLearning.of(
            loop, self.objective, model, whole, tokenizer, self.accelerator, args, absolute=absolute
        )
        autocast = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
        self.cuts = CutValues.where_asked(loop, self.whole, tokenizer, autocast)
        self.absolute, self.distil = absolute, Distillation.where_asked(loop, self.whole, tokenizer, autocast)
        self.also_saved = self.critic or self.distil  # saved and loaded with the model
        if self.distil is not None and self.distil.spec.loss == "topk":
            self.objective = replace(self.objective, drop_dead=False)  # it acts on rows without an advantage
        self.scorer = DraftScorer(self.whole, autocast) if train.baseline == "token" else None
        self.updates = UpdateMetrics(by_row=self.importance_sampling_level == "sequence")

    def train(self, *args: object, **named: object) -> TrainOutput:
        """TRL's training loop, with the model's small operations fused if a check found that this changes nothing."""
        with patched(self.fused):
            return super().train(*args, **named)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """transformers' method. If it refuses this model's layers the error becomes one sentence; other settings were
        tried before the model was loaded."""
        with loading_failures("no optimizer can be made of `train.trl` for this model"):
            made: torch.optim.Optimizer = super().create_optimizer(model)
            return made

    # the half before the update: groups, credit, the batch that TRL trains on

    def _generate_and_score_completions(self, inputs: list[Batch]) -> Batch:
        self.sync_weights()
        try:
            before = self.before = self.loop.begin()
        except ServerLost:
            # nothing of the step has changed weights or state: a checkpoint here is one between two steps
            done = self.loop.steps_done
            if done and not self.loop.run.checkpoint_path(done).exists():
                self._save_checkpoint(self.model, None)
            raise
        engine = self.loop.collect.engine
        if isinstance(engine, GraphEngine):
            engine.make_way()
        # seed by the step what follows (dropout, TRL's shuffle of the batch), so that a resumed run repeats it
        torch.manual_seed(step_seed(self.loop.recipe.train.seed, before.step + 1))
        samples = self.samples = own_samples(before, self.loop, self.objective, int(self.args.steps_per_generation))
        self.images = samples.images
        sampled = RolloutLogProbs(samples.completions, self.accelerator.device)
        width = max(len(c.token_ids) for c in samples.completions)
        mixtures = batch_mixtures(samples.completions, width, self.loop.recipe.sample.mixed, self.accelerator.device)
        source = self.log_probs_from(sampled if self.takes_logps else self.source)
        with source, mixed_as_sampled(self.whole, mixtures):
            out: Batch = super()._generate_and_score_completions([{"prompt": p} for p in samples.prompts])
        out |= mixtures
        if self.vision is not None:
            # places of rows in place of pixels, which are ragged: TRL shuffles, splits and hands on one number a row
            out["pixel_values"] = torch.arange(len(samples.completions), device=self.accelerator.device)
        if self.loop.recipe.train.mask_truncated:
            leave_out_cut(out, samples.completions, self.accelerator)
        if self.kl_watch is not None and self.kl_watch.is_due(before.step + 1):
            with self.loop.clock.phase("monitor"):
                before = replace(before, measured=self.kl_watch.measure(self, out))
        if self.cuts is not None:
            before = self.cuts.valued(self, before, out, samples.places, samples.back)
        if self.scorer is not None:
            said = [(p, c.token_ids) for p, c in zip(samples.prompt_ids, samples.completions, strict=True)]
            found = self.loop.ranks.gathered(energies(self.scorer, said, self.temperature))
            method, found = self.loop.recipe.train, [found[at] for at in samples.back]
            before = replace(before, credit=with_token_baseline(method, before.groups, before.credit, found))
        if self.reference is not None:
            penalty_N = add_reference(self, self.reference, out, samples.completions, are_exact=self.takes_logps)
            if penalty_N is not None:
                # the KL penalty changes the rewards, so baseline and spread change too: compute the credit again
                penalty_PG = penalty_N.cpu()[samples.back].view(before.credit.kept_PG.shape)
                before = replace(before, credit=self.loop.method.credit(before.groups, penalty_PG))
        if self.distil is not None:
            before = self.distil.taught(before, out, samples)
        self.before = before
        prunes = self.objective.kept < 1 or self.distil is not None
        put_credit(out, before.credit, samples.of_rows, prunes=prunes, loss=self.objective.loss)
        if self.critic is not None:
            self.before, out["advantages"] = self.critic.learn(self, self.before, out, samples)
        return out

    def _generate(self, prompts: list[Prompt]) -> Generated:
        return self.samples.generated(with_logps=self.use_vllm)

    def _calculate_rewards(
        self, inputs: Batch, prompts: list[Prompt], completions: list[Prompt], completion_ids_list: list[list[int]]
    ) -> torch.Tensor:
        """(samples of all ranks, 1) rewards, as TRL gathers them. TRL's advantages from them are replaced by
        `put_credit`."""
        rewards = [reward for group in self.before.groups for reward in group.rewards]
        return torch.tensor(rewards, dtype=torch.float64, device=self.accelerator.device).unsqueeze(1)

    # the update: micro-batches, loss, gradient

    def _prepare_inputs(self, generation_batch: list[Batch]) -> Batch:
        previous: list[Batch] | None = self._buffered_inputs  # type: ignore[has-type]
        inputs: Batch = super()._prepare_inputs(generation_batch)
        buffered: list[Batch] = self._buffered_inputs  # type: ignore[has-type]
        again = self.mini.further_pass(self._step)
        # TRL has buffered a new batch, or begins another pass over the old one
        if buffered is not previous or again:
            self._buffered_inputs = redistributed(self, buffered, again)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _compute_loss(self, model: nn.Module, inputs: Batch) -> torch.Tensor:
        if self.gradients is not None:
            self.gradients.collect()
        shared = self.accelerator
        if not whole_only(self.args.__dict__):  # these read the tokens of all ranks to make their loss
            self.accelerator = LocalStatistics(shared)
        try:
            with self.keeps(model):
                loss = hooked_loss(self, super()._compute_loss, model, inputs)
        finally:
            self.accelerator = shared
        if self.critic is not None and self.critic.warms:
            loss = loss * 0.0
        self.guard.loss(loss, lambda: self.loop.row_ids(self.before, inputs["sample"].tolist()))
        return loss

    def keeps(self, model: nn.Module) -> AbstractContextManager[None]:
        """While inside, passes keep what the recipe has; those of packed rows see to it themselves."""
        if self.packed is not None or self.keeping == Keeping():
            return nullcontext()
        base = self.accelerator.unwrap_model(model)
        return self.keeping.of(causal_model(base), draws=draws_dropout(base))

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
        if self.vision is not None:
            places: Any = more.pop("pixel_values", range(len(input_ids)))
            more |= self.vision.inputs(input_ids, [self.images[int(row)] for row in places], scores=True)
        plain = partial(call, model, input_ids, attention_mask, logits_to_keep, batch_size, **more)
        return self.source(LogProbRequest(model, input_ids, attention_mask, logits_to_keep, batch_size, more, plain))

    @contextmanager
    def log_probs_from(self, source: LogProbSource) -> Iterator[None]:
        """While inside, `source` answers TRL's calls for log-probs."""
        usual, self.source = self.source, source
        try:
            yield
        finally:
            self.source = usual

    def _get_grad_norm(self, model: nn.Module, grad_norm: Norm = None) -> Norm:
        self.loop.account(self.before)  # the device still computes the backward pass, and the norm would wait for it
        norm: Norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self.mini.skips_update(self._step, model):
            return norm
        scaler = self.accelerator.scaler
        kept = self.guard.gradient(norm, self.before.step + 1, model, scaler.get_scale() if scaler else 1.0)
        if kept is None and norm is not None:
            # a NaN would never leave TRL's running sum
            self._tr_loss = self._tr_loss.new_zeros(())  # type: ignore[has-type]
        if self.critic is not None and self.critic.warms:
            model.zero_grad(set_to_none=True)  # an optimizer leaves parameters without a gradient as they are
        return kept

    # the half after the update: the record of the step, checkpoints

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" not in logs:
            return  # skip transformers' closing summary; the end card shows more
        self.updates.optimizer_step(logs, self._metrics["train"], self.accelerator.gather)
        if self.state.global_step % self.mini.updates == 0:  # the batch was trained on as often as the recipe has it
            more = self.rank_memory() | self.mini.metrics()
            if self.distil is not None:
                self.distil.follow()
            learned = self.updates.end_of_batch(skipped_steps=self.guard.skipped, **more)
            super().log(self.loop.close(self.before, learned), start_time)

    def train_state(self) -> TrainState:
        """The state that a checkpoint saves in addition to TRL's."""
        return self.loop.state(self.guard.skipped)

    def load_train_state(self, state: TrainState) -> None:
        """Restore the state of a checkpoint; TRL loads its weights."""
        self.loop.load_state(state)
        self.guard.skipped = state.skipped_steps
        # recomputed: with another number of processes a batch has another number of micro-steps
        self._step = state.generation * self.args.steps_per_generation * self.num_iterations

    def _save_checkpoint(self, model: nn.Module, trial: None) -> None:
        loop, folder = self.loop, Path(self.args.output_dir)
        loop.display.phase("save")
        if loop.ranks.is_main and not loop.run.path.is_dir():  # TRL would recreate the folder empty
            raise loop.run.gone()
        with loop.clock.phase("pause"), saving(folder, loop.steps_done):
            check_space(loop.run.path, checkpoint_bytes(self.model))
            super()._save_checkpoint(model, trial)
            loop.ranks.wait()
            if loop.ranks.is_main:
                if self.vision is not None:
                    self.vision.save(folder / f"checkpoint-{self.state.global_step}")
                self.on_checkpoint(self, folder / f"checkpoint-{self.state.global_step}")
            loop.ranks.wait()


def hooked_loss(
    trainer: Trainer, compute: Callable[[nn.Module, Batch], Tensor], model: nn.Module, inputs: Batch
) -> Tensor:
    """The recipe's loss of one micro-batch: a scalar with its graph. What it measures is this rank's own.

    Before TRL's loss, dead rows and padding are cut; after it, imitation and the KL terms that TRL lacks are added.
    `RecordedLogProbs` keeps the log-probs that TRL requests, with their graph, so the added terms need no forward pass.

    Args:
        trainer: its objective, settings and metrics are used.
        compute: TRL's own `_compute_loss`.
        model: what TRL passes to it.
        inputs: the micro-batch.
    """
    objective = trainer.objective

    def prepare() -> tuple[Batch, float]:
        """The rows that go into the loss, without columns of padding, and the factor for the loss."""
        kept, share = inputs, 1.0
        if objective.drop_dead:
            kept, share = drop_dead_rows(inputs, objective.loss)
        if objective.loss in PER_ROW:
            # a mean over the rows that pruning left, about equally many in each micro-batch
            share /= objective.kept
        return losses.trim(kept), share

    source: LogProbSource
    if trainer.packed is not None:
        (rows, share), source = trainer.packed.ahead(prepare)
    else:
        (rows, share), source = prepare(), trainer.source
    scored = MicroBatchLogProbs(objective, rows)
    topk: TopkLogProbs | None = None
    if trainer.distil is not None and trainer.distil.spec.loss == "topk":
        source = topk = TopkLogProbs(scored, trainer.temperature, trainer.absolute)
    if trainer._entropy_bonus_enabled and not whole_only(trainer.args.__dict__):
        # TRL's entropy is a mean over the tokens of a micro-batch. Added up over micro-batches and averaged over ranks
        # it has to be a mean over all tokens of the optimizer step: sum_m (H_m n_m) / n, with n_m = tokens of micro-batch m
        items = float(scored.inputs["num_items_in_batch"]) / int(trainer.accelerator.num_processes)
        tokens, parts = int(scored.mask_BT.sum()), int(trainer.args.steps_per_generation)
        trainer.entropy_coef = trainer.args.entropy_coef * (tokens * parts / max(items, 1.0))
    recorded = RecordedLogProbs(source, scored, trainer.updates.micro_batch)
    # TRL adds its KL term if `beta` is set; set from the start, it would make TRL load a reference of its own
    trainer.beta = objective.trl_beta
    try:
        with trainer.log_probs_from(recorded), mixed_as_sampled(trainer.whole, scored.inputs):
            loss = compute(model, scored.inputs) * share
    finally:
        trainer.beta = 0.0
    if scored.bounded_BT is not None:
        put_clip_metrics(trainer._metrics["train"], scored, by_row=trainer.updates.by_row)
    if topk is not None and trainer.distil is not None:
        loss = loss + _averaged(trainer, scored, topk.term(trainer.distil.spec.direction))
    if (pull_BT := scored.pull()) is not None:
        loss = loss + objective.pull * _averaged(trainer, scored, pull_BT)
    if objective.imitates:
        # -log p of right answers, weighted by `train.critic.positive` (VAPO, arXiv 2504.05118)
        assert scored.logps_BT is not None
        loss = loss + objective.imitates * _averaged(trainer, scored, -scored.logps_BT * scored.inputs["imitation"])
    if not objective.own_beta:
        return loss
    assert scored.logps_BT is not None
    ref_BT, mask_BT = scored.inputs["ref_per_token_logps"], scored.mask_BT
    term_BT = losses.kl_per_token(scored.logps_BT, ref_BT, objective.estimator)
    kl = losses.token_kl(scored.logps_BT.detach(), ref_BT, mask_BT, trainer.accelerator)
    trainer._metrics["train"]["kl"].append(kl)
    return loss + objective.own_beta * _averaged(trainer, scored, term_BT)


def _averaged(trainer: Trainer, scored: MicroBatchLogProbs, term_BT: Tensor) -> Tensor:
    """A per-token term, averaged as the policy's loss is."""
    return aggregate(
        term_BT,
        scored.mask_BT,
        scored.objective.loss,
        items=scored.inputs["num_items_in_batch"].clamp(min=1.0) / trainer.accelerator.num_processes,
        accumulate=trainer.current_gradient_accumulation_steps,
        generation=trainer.args.steps_per_generation,
        max_tokens=trainer.max_completion_length,
    )


def redistributed(trainer: Trainer, batches: list[Batch], again: int) -> list[Batch]:
    """The rows of each optimizer step, redistributed over its micro-batches at least cost. `again` is the number of the
    pass over the batch, 0 for the first."""
    window, drops = trainer.args.gradient_accumulation_steps, trainer.objective.drop_dead
    if again:
        batches = reshuffled(batches, step_seed(trainer.loop.recipe.train.seed, trainer.before.step + 1) + again)
    if trainer.packed is not None:
        group = trainer.loop.recipe.sample.group if trainer.sorts else None
        batches = trainer.packed.redistributed(batches, window, group, drops)
    elif trainer.sorts:
        batches = by_length(batches, window)
    # DeepSpeed steps inside its backward pass, so a gradient can no longer be discarded
    if not trainer.objective.every_row and trainer.strategy not in DEEPSPEED:
        trainer.mini.find_empty(batches, trainer.loop.ranks.largest)
    return batches
