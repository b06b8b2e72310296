"""At the end of each batch: evaluate, save, or stop, as recipe, clock and signals ask. A signal to any rank counts; rank 0 decides the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from grpo_cli.errors import Exit
from grpo_cli.findings.stopping import Deadline
from grpo_cli.jobs.train.alarm_actions import best_gold_step
from grpo_cli.measure.evaluator import Evaluator
from grpo_cli.train.step import GrpoStep

if TYPE_CHECKING:
    from grpo_cli.jobs.train.job import Job

SAVE_EVERY_S = 300.0
"""Seconds between checkpoints where the recipe does not say."""


class Watch(TrainerCallback):  # type: ignore[misc]
    def __init__(self, job: Job, step: GrpoStep, evaluator: Evaluator | None) -> None:
        self.job, self.step, self.evaluator = job, step, evaluator
        self.deadline = Deadline(job.recipe.run.deadline)
        self.saved_at = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """A run that may roll back keeps the model it started from: that may have the best gold score."""
        trainer = self.job.trainer
        if trainer is not None and self.job.alarmed.may_roll_back and self.step.generation == 0:
            trainer._save_checkpoint(model, None)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> Any:
        """TRL logs after each update; our trainer passes one on a batch, with that batch's metrics."""
        done, recipe, job = self.step.generation, self.job.recipe, self.job
        reason = job.stop_rules.see_step(logs)
        job.alarmed.step(logs)
        is_last = done >= recipe.train.steps
        every, is_best = recipe.eval.every, False
        if self.evaluator is not None and every is not None and done % every == 0 and not is_last:
            with self.step.clock.phase("pause"):
                job.evaluate(self.evaluator, done)
            reason = job.stop_rules.see_evaluation(job.evaluations[-1]) or reason
            is_best = job.alarmed.may_roll_back and best_gold_step(job.evaluations) == done
        if self.deadline.is_over() and job.interrupts.asked is None:
            job.display.note("warn", f"the deadline of {recipe.run.deadline} is over: saving, then stopping")
            job.interrupts.asked = Exit.TERMINATED
        is_due = is_best or self._is_due(done)
        heard = job.ranks.gathered([(job.interrupts.asked, reason, job.alarmed.wanted, is_due)])
        # not written back: a signal may have come since, and the next step hears it
        asked = next((code for code, *_ in heard if code is not None), None)
        job.stop_rules.reason, job.alarmed.action, is_due = heard[0][1:]
        stops = (asked, job.stop_rules.reason, job.alarmed.action)
        control.should_training_stop = is_last or any(why is not None for why in stops)
        control.should_save = control.should_training_stop or is_due
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Five minutes count from here."""
        self.saved_at = time.monotonic()

    def _is_due(self, done: int) -> bool:
        every = self.job.recipe.run.save_every
        if every is not None:
            return done % every == 0
        return time.monotonic() - self.saved_at >= SAVE_EVERY_S
