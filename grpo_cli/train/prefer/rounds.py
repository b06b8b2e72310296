"""Runs whose steps are not TRL's rollout steps: each step samples, learns, records and runs the callbacks.

transformers' `Trainer` is used only for callbacks, and to save and load weights.

How this works. `RoundTrainer.train` calls `_step` until the last step is done, then the callbacks, which may ask for a checkpoint or
for the end. `PairRounds` learns from sampled pairs, `PairPasses` from the pairs of a file, `SupervisedTrainer` from
demonstrations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainingArguments,
)

from grpo_cli.data.rows import Row
from grpo_cli.policy.ban import lifted
from grpo_cli.policy.coldstart import demonstrations, plan_of
from grpo_cli.policy.warmup import Phase, schedule, supervise
from grpo_cli.recipe.sections.recipe import WarmupPhase
from grpo_cli.resilience.checkpoint import TrainState, check_space, checkpoint_bytes, saving
from grpo_cli.train.loop import Loop
from grpo_cli.train.prefer.learn import PairLearner
from grpo_cli.train.prefer.pairs import PairSet
from grpo_cli.train.step import Learned
from grpo_cli.train.updates import NonFinite

if TYPE_CHECKING:
    from grpo_cli.policy.policy import Policy


@dataclass(frozen=True)
class RoundSetup:
    """The parts of each of these trainers: the run's loop and policy, the `folder` for checkpoints, the `callbacks` of
    each step, and a function that completes a checkpoint."""

    loop: Loop
    policy: Policy
    folder: Path
    callbacks: list[TrainerCallback]
    on_checkpoint: Callable[[RoundTrainer, Path], None]


class RoundTrainer(Trainer, ABC):  # type: ignore[misc]
    """Base class of methods whose steps are not TRL's; a subclass defines `_step`.

    A checkpoint is saved between two steps. The optimizer lasts for one step only, so a checkpoint consists of weights
    and counters.
    """

    kl_watch = None
    """There is no KL monitor: the losses contain the pull to the start."""

    def __init__(self, setup: RoundSetup) -> None:
        loop, policy = setup.loop, setup.policy
        self.loop, self.on_checkpoint = loop, setup.on_checkpoint
        recipe = loop.recipe
        self.guard = NonFinite("non_finite" in recipe.stop.on, lambda text: loop.display.note("warn", text))
        tokenizer: PreTrainedTokenizerBase = policy.tokenizer
        super().__init__(
            model=policy.model,
            args=TrainingArguments(
                output_dir=str(setup.folder),
                max_steps=recipe.train.steps,
                save_strategy="no",
                save_only_model=True,  # the optimizer lasts for one step only
                report_to=list(recipe.run.track),
                use_cpu=policy.device.type == "cpu",
                disable_tqdm=True,
            ),
            processing_class=tokenizer,
            callbacks=setup.callbacks,
        )
        self.remove_callback(PrinterCallback)

    def train(self, resume_from_checkpoint: str | None = None, **_: object) -> None:
        """Run the remaining steps, from the loop's current step.

        Raises:
            TrainingError: nothing to learn from, or a loss that is not finite.
        """
        if resume_from_checkpoint is not None:
            self._load_from_checkpoint(resume_from_checkpoint)
        handler, control = self.callback_handler, TrainerControl()
        # callbacks read these fields, as in any run of transformers
        self.state.max_steps, self.state.global_step = self.loop.recipe.train.steps, self.loop.steps_done
        control = handler.on_train_begin(self.args, self.state, control)
        while self.loop.steps_done < self.loop.recipe.train.steps:
            metrics = self._step()
            self.state.global_step = self.loop.steps_done
            # a callback's request holds for one step; transformers resets it in code that does not run here
            control.should_save = control.should_training_stop = False
            control = handler.on_log(self.args, self.state, control, metrics)
            if control.should_save:
                self._save_checkpoint(self.model, None)
                control = handler.on_save(self.args, self.state, control)
            if control.should_training_stop:
                return

    @abstractmethod
    def _step(self) -> dict[str, Any]:
        """Run one step, or several with a line of metrics each; returns the metrics of the last."""

    def _record(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """Count a step that drew no samples, write and show its metrics, and return them."""
        loop = self.loop
        loop.steps_done += 1
        phases, whole = loop.clock.split()
        times = {"time/update": phases["update"], "time/step": whole}
        metrics = {"step": loop.steps_done, **measured, **times}
        loop.run.write_metrics(metrics)
        loop.display.step(metrics)
        return metrics

    def sync_weights(self) -> None:
        """Nothing to do: the engine reads the weights in place."""

    def train_state(self) -> TrainState:
        """The state that a checkpoint saves in addition to the weights."""
        return self.loop.state(self.guard.skipped)

    def load_train_state(self, state: TrainState) -> None:
        """Restore the state of a checkpoint; `train` loads its weights."""
        self.loop.load_state(state)
        self.guard.skipped = state.skipped_steps

    def _save_checkpoint(self, model: object, trial: None) -> None:
        loop, folder = self.loop, Path(self.args.output_dir)
        loop.display.phase("save")
        if loop.ranks.is_main and not loop.run.path.is_dir():  # TRL would recreate the folder empty
            raise loop.run.gone()
        with loop.clock.phase("pause"), saving(folder, loop.steps_done):
            check_space(loop.run.path, checkpoint_bytes(self.model))
            super()._save_checkpoint(model, trial)
            self.on_checkpoint(self, folder / f"checkpoint-{self.state.global_step}")


class PairRounds(RoundTrainer):
    """`train.method: prefer`: each step draws samples, makes pairs of them, and learns from these."""

    def __init__(self, setup: RoundSetup) -> None:
        super().__init__(setup)
        self.learner = PairLearner(self.loop.recipe, setup.policy, setup.folder, self.guard)

    def _step(self) -> dict[str, Any]:
        loop = self.loop
        before = loop.begin()
        update = self.learner.learn(before.step, before.groups, lambda n, total: loop.display.phase("update", n, total))
        return loop.close(before, Learned({**update, "skipped_steps": self.guard.skipped}))


class PairPasses(RoundTrainer):
    """`train.method: prefer` with `prefer.data`: each step goes over the pairs of a file, and draws nothing."""

    def __init__(self, setup: RoundSetup, pairs: PairSet) -> None:
        super().__init__(setup)
        self.pairs = pairs
        self.learner = PairLearner(self.loop.recipe, setup.policy, setup.folder, self.guard)

    def _step(self) -> dict[str, Any]:
        display = self.loop.display
        display.phase("update")
        update = self.learner.learn_from(
            self.loop.steps_done, self.pairs, lambda n, total: display.phase("update", n, total)
        )
        return self._record({**update, "skipped_steps": self.guard.skipped})


# `train.method: sft`: the recipe's `sft` phases as a run of their own, measured before and after.
# Its optimizers are not saved. A run that is killed in a phase repeats the phase and ends with the same weights,
# because randomness depends on the seed alone.


class SupervisedTrainer(RoundTrainer):
    """Runs all phases without a checkpoint in between; each optimizer step is a step of the run with its line of metrics."""

    def __init__(self, setup: RoundSetup, phases: Sequence[tuple[WarmupPhase, Sequence[Row]]]) -> None:
        super().__init__(setup)
        self.policy, self.phases = setup.policy, phases

    def _step(self) -> dict[str, Any]:
        policy, seed = self.policy, self.loop.recipe.train.seed
        pad_id = policy.tokenizer.pad_token_id
        assert pad_id is not None  # `load_model` gave it one
        last: dict[str, Any] = {}
        encoded: dict[int, list[int]] = {}
        for i, (phase, rows) in enumerate(self.phases):
            shown, plan = demonstrations(policy, phase, rows, seed + i, encoded), plan_of(phase)

            # bound as defaults: a closure would see the values of the last phase
            def note(step: int, loss: float, plan: Phase = plan, count: int = len(shown)) -> None:
                last.clear()
                rate = plan.lr * schedule(step - 1, plan)
                last.update(self._record({"loss": loss, "lr": rate, "sft/demonstrations": count}))

            # a demonstration may contain tokens that samples must not
            with lifted(policy.model):
                supervise(policy.model, shown, plan, seed=seed + i, pad_id=pad_id, on_step=note)
        return last
