"""At the end of each batch: evaluate, save, or stop, as recipe, clock and signals ask. A signal to any rank counts; rank 0 decides the rest."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from grpo_cli.errors import Exit
from grpo_cli.findings.stopping import Deadline
from grpo_cli.jobs.train.alarm_actions import best_gold_step
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.run.info import Metrics
from grpo_cli.train.loop import Loop

PAUSED_S = 0.25
"""Seconds between two looks at whether a paused run should go on."""
SAVE_EVERY_S = 300.0
"""Seconds between checkpoints where the recipe does not say."""
FIRST_RATE = "no weight moved: the rate begins at 0 (`train.lr_warmup_steps`)"
"""As transformers' schedules do: without the word a first step that changes nothing looks like a mistake."""


class TrainCallback(TrainerCallback):  # type: ignore[misc]
    def __init__(self, running: RunContext, step: Loop, evaluate: Callable[[int, bool], None] | None) -> None:
        self.running, self.step, self.evaluate = running, step, evaluate
        self.deadline = Deadline(running.recipe.run.deadline)
        self.saved_at = time.monotonic()
        self.told: set[str] = set()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: object
    ) -> None:
        """The canary is asked for the first time. A run that may roll back keeps the model it started from: that may have the best gold score."""
        trainer, canary = self.running.trainer, self.running.canary
        if canary is not None and self.step.steps_done == 0:
            with self.step.clock.phase("pause"):
                canary.measure(0)
        if trainer is not None and self.running.alarmed.may_roll_back and self.step.steps_done == 0:
            trainer._save_checkpoint(model, None)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Metrics, **_: object
    ) -> TrainerControl:
        """TRL logs after each update; our trainer passes one on a batch, with that batch's metrics."""
        done, recipe, running = self.step.steps_done, self.running.recipe, self.running
        reason = running.stop_rules.see_step(logs)
        running.alarmed.step(logs)
        self._tell_printed()
        if done == 1 and logs.get("lr") == 0:
            running.display.note("info", FIRST_RATE)
        is_last = done >= recipe.train.steps
        # after the last step there is nothing to hold up
        if not is_last:
            self._wait_while_paused()
        # every rank asks at the same place: an answer that only rank 0 waited for would hang the run
        wished = running.ranks.agreed(running.wishes.take())
        every, is_best = recipe.eval.every, False
        is_measured = "evaluate" in wished or (every is not None and done % every == 0)
        # who compares evaluations needs them over the same rows
        compares = recipe.stop.patience is not None or recipe.monitor.gold is not None
        is_between = recipe.eval.between is not None and "evaluate" not in wished and not compares
        if "evaluate" in wished and self.evaluate is None:
            running.display.note("warn", "no held-out rows to measure", hint="`data.eval` names some")
        if self.evaluate is not None and is_measured and not is_last:
            with self.step.clock.phase("pause"):
                self.evaluate(done, is_between)
            if not is_between:
                reason = running.stop_rules.see_evaluation(running.evaluations[-1]) or reason
            is_best = running.alarmed.may_roll_back and best_gold_step(running.trusted) == done
        if running.canary is not None and running.canary.is_due(done):
            with self.step.clock.phase("pause"):
                running.canary.measure(done)
            is_best |= running.alarmed.may_roll_back and best_gold_step(running.trusted) == done
        if self.deadline.is_over() and running.interrupts.asked is None:
            running.display.note("warn", f"the deadline of {recipe.run.deadline} is over: saving, then stopping")
            running.interrupts.asked = Exit.TERMINATED
        is_due = is_best or "save" in wished or self._is_due(done)
        # in one exchange: each is a wait for the slowest rank
        heard = running.ranks.gathered([(running.interrupts.asked, reason, running.alarmed.wanted, is_due)])
        # not written back: a signal may have come since, and the next step hears it
        asked = next((code for code, *_ in heard if code is not None), None)
        running.stop_rules.reason, running.alarmed.action, is_due = heard[0][1:]
        stops = (asked, running.stop_rules.reason, running.alarmed.action)
        control.should_training_stop = is_last or any(why is not None for why in stops)
        control.should_save = control.should_training_stop or is_due
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Five minutes count from here."""
        self.saved_at = time.monotonic()

    def _tell_printed(self) -> None:
        """Say once of each verifier that it prints."""
        for name, lines in self.running.printed().items():
            if name not in self.told:
                self.told.add(name)
                text = f"`verify.{name}` printed {lines:,} lines so far: train.log keeps the first of each sample"
                self.running.display.note("info", text)

    def _wait_while_paused(self) -> None:
        """Between two steps, for as long as the person at rank 0 wants. A signal to any rank, or the deadline, ends it."""
        running = self.running
        with self.step.clock.phase("pause"):
            while any(running.ranks.gathered([running.wishes.is_paused and not self.deadline.is_over()])) and not any(
                running.ranks.gathered([running.interrupts.asked is not None])
            ):
                running.display.phase("paused, p goes on")
                time.sleep(PAUSED_S)

    def _is_due(self, done: int) -> bool:
        every = self.running.recipe.run.save_every
        if every is not None:
            return done % every == 0
        return time.monotonic() - self.saved_at >= SAVE_EVERY_S
