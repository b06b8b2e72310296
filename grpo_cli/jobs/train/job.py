"""`grpo train` from a checked recipe to the end card: rows, golds, model, cold start, measure, train, measure again.

`Job.run` calls in order: `_open` (rows, prompts and model, everything that can be refused, then the folder), `_begin` (display and
heartbeat), `_train` (warm-up, engine and loop, gate, first evaluation, trainer), `_steps` (TRL's loop, which calls
`grpo_cli.train.step`) and `_end`. `TrainCallback` runs after each step: it evaluates, saves or stops as recipe, clock and signals
ask. A signal to any rank counts; rank 0 decides everything else, and all ranks ask for its decision at the same point.
"""

from __future__ import annotations

import logging
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from grpo_cli.display.protocol import Display
from grpo_cli.distributed.launch import end_rank
from grpo_cli.distributed.peers import Peers
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import Exit, UserError, out_of_memory
from grpo_cli.findings.stopping import Deadline, StopRules
from grpo_cli.jobs.open_job import JudgedRows, OpenJob, judge_warnings, open_rows, splits_of
from grpo_cli.jobs.train import ending
from grpo_cli.jobs.train.alarm_actions import CANARY, AlarmActions, best_gold, best_gold_step, best_saved
from grpo_cli.jobs.train.measurements import CanaryWatch, HeldOut, refused_by, with_floor
from grpo_cli.jobs.train.result import Stopwatch, TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.train.setup import TrainParts, connect, make_parts, make_trainer, open_train_job
from grpo_cli.jobs.train.start import Seen, agree_on_cpu_bf16, create_run, record_cpu_bf16, resume_point, run_info
from grpo_cli.jobs.train.trackers import take_trackers
from grpo_cli.policy.loading.failures import numbers_only
from grpo_cli.policy.model import device_name
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.resilience.contents import rows_read
from grpo_cli.resilience.heartbeat import Beating, Heartbeat
from grpo_cli.resilience.interrupt import Interrupted, Interrupts
from grpo_cli.resilience.lock import hold
from grpo_cli.rollout.vllm.server import Server
from grpo_cli.run.folder import RunFolder, SilentRun
from grpo_cli.run.info import Metrics
from grpo_cli.train.kl import keeps_reference
from grpo_cli.train.loop import Loop

if TYPE_CHECKING:
    from grpo_cli.jobs.train.running import RunTrainer


class _ToRunLog(logging.Handler):
    def __init__(self, run: RunFolder) -> None:
        super().__init__(logging.INFO)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.log("lib", f"{record.name}: {record.getMessage()}")


@contextmanager
def libraries_to_log(run: RunFolder) -> Iterator[None]:
    """Inside, warnings (each text once) and log records of all libraries go to the run's log."""
    handler, root, seen = _ToRunLog(run), logging.getLogger(), set[str]()
    loggers = [root, *(logging.getLogger(name) for name in ("transformers", "trl", "accelerate", "datasets", "peft"))]
    kept = [(logger, logger.handlers[:], logger.propagate) for logger in loggers]

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = f"{category.__name__}: {message}"
        if text not in seen:
            seen.add(text)
            run.log("lib", f"{text} ({filename}:{lineno})")

    with warnings.catch_warnings():
        warnings.showwarning = show
        for logger in loggers:
            logger.handlers, logger.propagate = ([handler] if logger is root else []), True
        try:
            yield
        finally:
            for logger, handlers, propagate in kept:
                logger.handlers, logger.propagate = handlers, propagate


PAUSED_S = 0.25
"""Seconds between two checks whether a paused run should continue."""
SAVE_EVERY_S = 300.0
"""Seconds between checkpoints where the recipe sets none."""
FIRST_RATE = "no weight moved: the rate begins at 0 (`train.lr_warmup_steps`)"
"""The first step has a learning rate of 0, as in transformers' schedules; without this note it would look like a
mistake."""


class TrainCallback(TrainerCallback):  # type: ignore[misc]
    def __init__(self, running: RunContext, step: Loop, held_out: HeldOut | None) -> None:
        self.running, self.step, self.held_out = running, step, held_out
        self.deadline = Deadline(running.recipe.run.deadline)
        self.saved_at = time.monotonic()
        self.told: set[str] = set()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: object
    ) -> None:
        """Measure the canary for the first time. A run that may roll back saves its initial model, which may have the
        best gold score."""
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
        for name, lines in self.running.printed().items():
            if name not in self.told:
                self.told.add(name)
                text = f"`verify.{name}` printed {lines:,} lines so far: train.log keeps the first of each sample"
                self.running.display.note("info", text)
        if done == 1 and logs.get("lr") == 0:
            running.display.note("info", FIRST_RATE)
        is_last = done >= recipe.train.steps
        # after the last step there is nothing to pause
        if not is_last:
            with self.step.clock.phase("pause"):
                while any(
                    running.ranks.gathered([running.wishes.is_paused and not self.deadline.is_over()])
                ) and not any(running.ranks.gathered([running.interrupts.asked is not None])):
                    running.display.phase("paused, p goes on")
                    time.sleep(PAUSED_S)
        # all ranks must ask at the same point: if only rank 0 waited, the run would hang
        wished = running.ranks.agreed(running.wishes.take())
        every, is_best = recipe.eval.every, False
        is_measured = "evaluate" in wished or (every is not None and done % every == 0)
        # evaluations can be compared only over the same rows
        compares = recipe.stop.patience is not None or recipe.monitor.gold is not None
        is_between = recipe.eval.between is not None and "evaluate" not in wished and not compares
        if "evaluate" in wished and self.held_out is None:
            running.display.note("warn", "no held-out rows to measure", hint="`data.eval` names some")
        if self.held_out is not None and is_measured and not is_last:
            with self.step.clock.phase("pause"):
                self.held_out.measure(done, is_between=is_between)
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
        saves = recipe.run.save_every
        is_old = time.monotonic() - self.saved_at >= SAVE_EVERY_S if saves is None else done % saves == 0
        is_due = is_best or "save" in wished or is_old
        # in one exchange, because each one waits for the slowest rank
        heard = running.ranks.gathered([(running.interrupts.asked, reason, running.alarmed.wanted, is_due)])
        # do not write it back: a signal may have arrived since, which the next step handles
        asked = next((code for code, *_ in heard if code is not None), None)
        running.stop_rules.reason, running.alarmed.action, is_due = heard[0][1:]
        stops = (asked, running.stop_rules.reason, running.alarmed.action)
        control.should_training_stop = is_last or any(why is not None for why in stops)
        control.should_save = control.should_training_stop or is_due
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Five minutes count from here."""
        self.saved_at = time.monotonic()


class Job:
    """One training run, or one rank's part of it. `running` is the state that its parts share, once the run has a
    folder."""

    running: RunContext

    def __init__(self, recipe: Recipe, *, label: str, base: Path | None, display: Display) -> None:
        self.recipe, self.label, self.base, self.display = recipe, label, base, display
        self.recipe_as_written = recipe  # `recipe` has the steps that its epochs take
        self.stopwatch = Stopwatch()
        self.ranks = Ranks.from_environment()
        self.peers = Peers(self.ranks, self.ranks.machine, recipe.stop.lost_s)
        self.interrupts = Interrupts(lambda text: display.note("warn", f"interrupted: {text}"))
        self.folder: RunFolder | None = None
        self.held_out: HeldOut | None = None

    def run(
        self, resume: RunFolder | None = None, first: JudgedRows | None = None, *, anyway: bool = False
    ) -> TrainResult:
        """Train. `first`: the rows, if they are already open. `anyway`: resume even if files, rows or prompts differ
        from those that the run began with.

        Raises:
            UserError: as described in the errors module; everything valid was saved before.
        """
        try:
            with self.interrupts.handled(), self.peers.watching(self._abort):
                seen = Seen(resume, self.recipe_as_written, self.base, self.display, anyway=anyway)
                return self._open(resume, seen, first)
        except UserError as err:
            self._mark_failed(err)
            raise
        except Exception as err:
            if (told := out_of_memory(err)) is None:
                raise
            self._mark_failed(told)
            raise told from err
        finally:
            for tracker in self.running.trackers if hasattr(self, "running") else ():
                tracker.close()
            if self.folder is not None:
                trainer = self.running.trainer if hasattr(self, "running") else None
                steps = trainer.loop.clock.spent if trainer is not None else {}
                with suppress(UserError):  # a full disk: the cause of the end was already shown
                    earlier = self.folder.manifest().get("phases", {}) if resume is not None else {}
                    self.folder.update_manifest(phases=self.stopwatch.phases(earlier, steps))
            self.display.close()

    def _open(self, resume: RunFolder | None, seen: Seen, first: JudgedRows | None) -> TrainResult:
        with ExitStack() as opened:
            with self.stopwatch.timed("setup"):
                connect(self.recipe, self.ranks, resumes=resume is not None)
                agree_on_cpu_bf16(resume, self.ranks, self.display)
                if first is None:
                    opening = open_rows(self.recipe, self.base, self.display, splits_of(self.recipe))
                    first = opened.enter_context(opening)
                rows = first.shown_by(self.display)
                seen.take("rows", rows_read(rows.splits, self.recipe_as_written))
                job, server = open_train_job(rows, self.ranks)
                seen.take_prompts(job)
                self.recipe = job.recipe
                self.folder = self._run_folder(resume, job, seen)
            return self._begin(job, server, self.folder, resumes=resume is not None)

    def _run_folder(self, resume: RunFolder | None, job: OpenJob, seen: Seen) -> RunFolder:
        """Rank 0 creates or opens the folder; the others only read it."""
        if self.ranks.is_main:
            on = device_name(job.policy.device, self.ranks.world)
            run = resume or create_run(job, self.recipe_as_written, seen.contents, label=self.label, device=on)
            self.lock = hold(run.path)  # keep the file object: the lock is released when it is garbage-collected
            if self.recipe_as_written.train.epochs is not None:
                run.update_manifest(epoch_steps=self.recipe.train.steps)
            record_cpu_bf16(run)
            seen.record()
            checkpoint.clear_partial(run.path / "checkpoints")  # another process might save there until now
            self.ranks.agreed(str(run.path))
            return run
        return SilentRun(Path(self.ranks.agreed("")))

    def _begin(self, job: OpenJob, server: Server | None, run: RunFolder, *, resumes: bool) -> TrainResult:
        recipe, display = self.recipe, self.display
        device = device_name(job.policy.device, self.ranks.world)
        display.start(run_info(recipe, run, label=self.label, device=device, logs=self.ranks.is_main))
        for warning in judge_warnings(job.judge):
            display.note("warn", warning)
        for remark in job.judge.remarks():
            display.note("info", remark)
        heartbeat = Heartbeat(run, display, recipe.stop.hang_s, peers=self.peers)
        self.display = Beating(display, heartbeat)
        try:
            with libraries_to_log(run), heartbeat.watching():
                return self._train(replace(job, display=self.display), server, run, resumes=resumes)
        except Interrupted as stop:
            run.update_manifest(status="interrupted")
            display.note("warn", "stopped at once", hint=ending.resume_hint(run))
            return TrainResult(run, 0, seconds=self.stopwatch.of(run), code=stop.code, status="interrupted")

    def _train(self, job: OpenJob, server: Server | None, run: RunFolder, *, resumes: bool) -> TrainResult:
        start = resume_point(run, self.recipe_as_written, self.recipe, self.display, self.ranks) if resumes else None
        if start is None or keeps_reference(self.recipe):
            # the KL reference is the warmed-up model, also after a resume
            timed = self.stopwatch.timed("warmup") if self.recipe.warmup else nullcontext()
            with self.ranks.main_first(), timed:
                done = job.warm_up()
            if done is not None and start is None:
                run.update_manifest(warmup=done.metrics())
        with self.stopwatch.timed("setup"):
            parts = make_parts(job, run, self.ranks, server, self._abort, resumes=start is not None)
        running = self.running = RunContext(
            recipe=self.recipe,
            folder=run,
            display=self.display,
            ranks=self.ranks,
            interrupts=self.interrupts,
            stopwatch=self.stopwatch,
            device=device_name(job.policy.device, self.ranks.world),
            stop_rules=StopRules(self.recipe.stop),
            alarmed=AlarmActions(self.recipe, run, self.display, looks=self.ranks.is_main),
            evaluations=[m for m in run.metrics() if "eval/pass@1" in m],
            canaries=[m for m in run.metrics() if CANARY in m],
            printed=lambda: job.judge.printed,
        )
        if job.held_out is not None:
            self.held_out = HeldOut(running, job, parts.engine)
        if job.canary is not None:
            running.canary = CanaryWatch(running, job, parts.engine, job.canary)
        gate = self.recipe.gate if start is None else None
        if gate is not None and (refused := refused_by(gate, running, job, parts.engine)):
            return refused
        parts.loop.follow(with_floor(running, job, parts.engine, resumes=start is not None))
        if self.held_out is not None and start is None:
            self.held_out.measure(0)
        # for an alarm before the first step, or in the last step before the run died
        running.alarmed.action = self.ranks.agreed(running.alarmed.wanted)
        if start is None and running.alarmed.action is not None:
            return ending.end_paused(running, 0)
        with self.stopwatch.timed("setup"):
            watch = TrainCallback(running, parts.loop, self.held_out)
            trainer = running.trainer = make_trainer(job, parts, run, [watch], self._finalise_checkpoint)
        running.trackers = take_trackers(trainer, run)
        for tracker in running.trackers if start is None else ():
            for measured in running.evaluations:
                tracker.send(measured)
        if self.recipe.train.runs_grpo:
            if not keeps_reference(self.recipe):
                self.display.note("info", "the KL to the start is not measured (`monitor.kl: off`)")
            elif trainer.kl_watch is not None and trainer.kl_watch.reference.megabytes >= 100:
                size = f"{trainer.kl_watch.reference.megabytes:,.0f} MiB of main memory"
                self.display.note("info", f"a copy of the trained weights for the KL monitor takes {size}")
        if start is not None:
            state = checkpoint.restore(start, self.recipe.launch.strategy, self.ranks.world)
            trainer.load_train_state(state)
            running.stop_rules.load_state(state.more["stop_rules"])
            if parts.replica:
                trainer._load_from_checkpoint(str(start))  # before the weights are sharded
        parts.loop.clock.start()
        self._steps(trainer, parts, start)
        return self._end(parts.loop.steps_done)

    def _steps(self, trainer: RunTrainer, parts: TrainParts, start: Path | None) -> None:
        running = self.running
        try:
            # it loads optimizer and random states from a checkpoint that may come from elsewhere
            with self.interrupts.finish_step(), numbers_only(start or running.folder.path):
                running.display.offer(running.wishes)
                stops = running.stop_rules.reason or running.alarmed.action
                is_over = parts.loop.steps_done >= self.recipe.train.steps or stops is not None
                if start is not None and is_over:
                    # training is complete, but the last evaluation is missing
                    trainer._load_from_checkpoint(str(start))
                else:
                    trainer.train(resume_from_checkpoint=str(start) if start else None)
            self.ranks.wait()  # at its end transformers lists the folder that goes here, on every rank
        finally:
            shutil.rmtree(trainer.args.output_dir, ignore_errors=True)

    def _end(self, done: int) -> TrainResult:
        running = self.running
        if running.alarmed.action == "pause":
            return ending.end_paused(running, done)
        heard = self.ranks.gathered([self.interrupts.asked])
        asked = next((code for code in heard if code is not None), None)
        if asked is not None and running.alarmed.action is None:
            running.folder.update_manifest(status="interrupted", steps=done)
            ending.finish(running, "interrupted", next_=ending.resume_hint(running.folder))
            return ending.outcome_of(running, done, asked, "interrupted")
        is_measured = done in [m["step"] for m in running.measured_whole[-1:]]
        if running.alarmed.action is None and self.held_out is not None and not is_measured:
            self.held_out.measure(done)
        action = running.alarmed.action or self.ranks.agreed(running.alarmed.wanted)
        if action == "roll_back":
            return ending.end_rolled_back(running, done)
        return ending.end_trained(running, done, action)

    def _finalise_checkpoint(self, trainer: RunTrainer, written: Path) -> None:
        running, folder = self.running, self.running.folder.path / "checkpoints"
        state = replace(trainer.train_state(), more={"stop_rules": running.stop_rules.state()})
        running.folder.sync()  # flush records first: a checkpoint must not be ahead of lines that a power cut lost
        recipe = self.recipe_as_written
        # checkpoints are given to others: leave out the path of runs on this machine
        if Path(recipe.run.dir).is_absolute():
            recipe = recipe.model_copy(update={"run": recipe.run.model_copy(update={"dir": "runs"})})
        saved = checkpoint.seal(written, folder, state, to_yaml(recipe))
        # also keep the best ones: by held-out score, and by the gold verifier or the canary
        best = (best_gold(folder, running.trusted), best_saved(folder, running.measured_whole))
        checkpoint.keep_newest(folder, self.recipe.run.keep, [one.path for one in best if one is not None])
        self.display.note("good", f"saved {saved.path}")

    def _mark_failed(self, err: UserError) -> None:
        if self.folder is not None:
            ending.mark_failed(self.folder, err, self.recipe, self.display, tells=self.ranks.is_main)

    def _abort(self, err: UserError) -> None:
        """End this process from a thread: the main thread cannot leave a wait for a lost machine or server."""
        self._mark_failed(err)
        self.display.close()
        end_rank(err.render(), err.code)
