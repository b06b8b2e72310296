"""`grpo train` from a checked recipe to the end card: rows, golds, model, cold start, measure, train, measure again."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.display.protocol import Display
from grpo_cli.distributed.launch import end_rank
from grpo_cli.distributed.peers import Peers
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import UserError
from grpo_cli.findings.stopping import StopRules
from grpo_cli.jobs.train import ending
from grpo_cli.jobs.train.alarm_actions import CANARY, AlarmActions, keep_newest_and_best
from grpo_cli.jobs.train.callbacks import TrainCallback
from grpo_cli.jobs.train.canary import CanaryWatch
from grpo_cli.jobs.train.gate import refused_by, with_floor
from grpo_cli.jobs.train.held_out import HeldOut
from grpo_cli.jobs.train.result import Stopwatch, TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.train.setup import TrainParts, connect, furnish_run, make_parts, make_trainer
from grpo_cli.jobs.train.start import Seen, agree_on_cpu_bf16, create_run, record_cpu_bf16, resume_point, run_info
from grpo_cli.jobs.train.trackers import take_trackers
from grpo_cli.jobs.workplace import JudgedRows, Workplace, judge_warnings, open_rows, splits_of
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
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.libraries import libraries_to_log
from grpo_cli.run.silent import SilentRun
from grpo_cli.train.kl import keeps_reference

if TYPE_CHECKING:
    from grpo_cli.jobs.train.running import RunTrainer


class Job:
    """One training run, or one rank's part of it. What its parts share is `running`, once the run has a folder."""

    running: RunContext

    def __init__(self, recipe: Recipe, *, label: str, base: Path | None, display: Display) -> None:
        self.recipe, self.label, self.base, self.display = recipe, label, base, display
        self.said = recipe  # as it was written: `recipe` has the steps that its epochs take
        self.stopwatch = Stopwatch()
        self.ranks = Ranks.from_environment()
        self.peers = Peers(self.ranks, self.ranks.machine, recipe.stop.lost_s)
        self.interrupts = Interrupts(lambda text: display.note("warn", f"interrupted: {text}"))
        self.folder: RunFolder | None = None
        self.held_out: HeldOut | None = None

    def run(
        self, resume: RunFolder | None = None, first: JudgedRows | None = None, *, anyway: bool = False
    ) -> TrainResult:
        """Train; `first`: the rows, where they are open already; `anyway` also where a run that is resumed finds other files,
        rows or prompts than it began with.

        Raises:
            UserError: as the errors module says, after everything good was saved.
        """
        try:
            with self.interrupts.handled(), self.peers.watching(self._give_up):
                seen = Seen(resume, self.said, self.base, self.display, anyway=anyway)
                return self._open(resume, seen, first)
        except UserError as err:
            self._mark_failed(err)
            raise
        finally:
            for tracker in self.running.trackers if hasattr(self, "running") else ():
                tracker.close()
            if self.folder is not None:
                trainer = self.running.trainer if hasattr(self, "running") else None
                ending.note_phases(self.folder, self.stopwatch, trainer, resumes=resume is not None)
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
                seen.take("rows", rows_read(rows.splits, self.said))
                place, server = furnish_run(rows, self.ranks)
                seen.take_prompts(place)
                self.recipe = place.recipe
                self.folder = self._run_folder(resume, place, seen)
            return self._begin(place, server, self.folder, resumes=resume is not None)

    def _run_folder(self, resume: RunFolder | None, place: Workplace, seen: Seen) -> RunFolder:
        """Rank 0 makes or opens it, the others look on."""
        if self.ranks.is_main:
            on = device_name(place.policy.device, self.ranks.world)
            run = resume or create_run(place, self.said, seen.contents, label=self.label, device=on)
            self.lock = hold(run.path)  # kept: the lock goes when the file is collected
            if self.said.train.epochs is not None:
                run.update_manifest(epoch_steps=self.recipe.train.steps)
            record_cpu_bf16(run)
            seen.record()
            checkpoint.clear_partial(run.path / "checkpoints")  # another process might save there until now
            self.ranks.agreed(str(run.path))
            return run
        return SilentRun(Path(self.ranks.agreed("")))

    def _begin(self, place: Workplace, server: Server | None, run: RunFolder, *, resumes: bool) -> TrainResult:
        recipe, display = self.recipe, self.display
        device = device_name(place.policy.device, self.ranks.world)
        display.start(run_info(recipe, run, label=self.label, device=device, logs=self.ranks.is_main))
        for warning in judge_warnings(place.judge):
            display.note("warn", warning)
        for remark in place.judge.remarks():
            display.note("info", remark)
        heartbeat = Heartbeat(run, display, recipe.stop.hang_s, peers=self.peers)
        self.display = Beating(display, heartbeat)
        try:
            with libraries_to_log(run), heartbeat.watching():
                return self._train(replace(place, display=self.display), server, run, resumes=resumes)
        except Interrupted as stop:
            run.update_manifest(status="interrupted")
            display.note("warn", "stopped at once", hint=ending.resume_hint(run))
            return TrainResult(run, 0, seconds=self.stopwatch.of(run), code=stop.code, status="interrupted")

    def _train(self, place: Workplace, server: Server | None, run: RunFolder, *, resumes: bool) -> TrainResult:
        start = resume_point(run, self.said, self.recipe, self.display, self.ranks) if resumes else None
        if start is None or keeps_reference(self.recipe):  # KL is to the warmed-up model, also after a resume
            timed = self.stopwatch.timed("warmup") if self.recipe.warmup else nullcontext()
            with self.ranks.main_first(), timed:
                place.warm_up()
        with self.stopwatch.timed("setup"):
            parts = make_parts(place, run, self.ranks, server, self._give_up, resumes=start is not None)
        running = self.running = self._running(place, run)
        if place.held_out is not None:
            self.held_out = HeldOut(running, place, parts.engine)
        running.canary = CanaryWatch.where_asked(running, place, parts.engine)
        gate = self.recipe.gate if start is None else None
        if gate is not None and (refused := refused_by(gate, running, place, parts.engine)):
            return refused
        parts.loop.follow(with_floor(running, place, parts.engine, resumes=start is not None))
        if self.held_out is not None and start is None:
            self.evaluate(0)
        # of an alarm before the first step, or in the step after which the run died before it could act
        running.alarmed.action = self.ranks.agreed(running.alarmed.wanted)
        if start is None and running.alarmed.action is not None:
            return ending.end_paused(running, 0)
        with self.stopwatch.timed("setup"):
            watch = TrainCallback(running, parts.loop, self.evaluate if self.held_out is not None else None)
            trainer = running.trainer = make_trainer(place, parts, run, [watch], self._seal)
        running.trackers = take_trackers(trainer, run)
        self._load_train_state(trainer, parts, start)
        parts.loop.clock.start()
        self._steps(trainer, parts, start)
        return self._end(parts.loop.steps_done)

    def _running(self, place: Workplace, run: RunFolder) -> RunContext:
        return RunContext(
            recipe=self.recipe,
            folder=run,
            display=self.display,
            ranks=self.ranks,
            interrupts=self.interrupts,
            stopwatch=self.stopwatch,
            device=device_name(place.policy.device, self.ranks.world),
            stop_rules=StopRules(self.recipe.stop),
            alarmed=AlarmActions(self.recipe, run, self.display, looks=self.ranks.is_main),
            evaluations=[m for m in run.metrics() if "eval/pass@1" in m],
            canaries=[m for m in run.metrics() if CANARY in m],
            printed=lambda: place.judge.printed,
        )

    def evaluate(self, step: int, is_between: bool = False) -> None:
        """Measure the held-out rows, record and show it; where it `is_between` the first and the last, only `eval.between` of them."""
        assert self.held_out is not None
        self.held_out.measure(step, is_between=is_between)

    def _load_train_state(self, trainer: RunTrainer, parts: TrainParts, start: Path | None) -> None:
        """What trackers and display hear before the first step of this process, and the state of a resumed run."""
        running = self.running
        for tracker in running.trackers if start is None else ():
            for measured in running.evaluations:
                tracker.send(measured)
        note_kl(self.recipe, trainer, self.display)
        if start is not None:
            state = checkpoint.restore(start, self.recipe.launch.strategy, self.ranks.world)
            trainer.load_train_state(state)
            running.stop_rules.load_state(state.more["stop_rules"])
            if parts.replica:
                trainer._load_from_checkpoint(str(start))  # while the weights are whole

    def _steps(self, trainer: RunTrainer, parts: TrainParts, start: Path | None) -> None:
        running = self.running
        try:
            # the optimizer's state and that of chance are read in there, of a checkpoint that may be another's
            with self.interrupts.finish_step(), numbers_only(start or running.folder.path):
                running.display.offer(running.wishes)
                stops = running.stop_rules.reason or running.alarmed.action
                is_over = parts.loop.steps_done >= self.recipe.train.steps or stops is not None
                if start is not None and is_over:
                    trainer._load_from_checkpoint(str(start))  # trained to the end, but not measured yet
                else:
                    trainer.train(resume_from_checkpoint=str(start) if start else None)
        finally:
            shutil.rmtree(trainer.args.output_dir, ignore_errors=True)

    def _end(self, done: int) -> TrainResult:
        running = self.running
        if running.alarmed.action == "pause":
            return ending.end_paused(running, done)
        heard = self.ranks.gathered([self.interrupts.asked])
        asked = next((code for code in heard if code is not None), None)
        if asked is not None and running.alarmed.action is None:
            return ending.end_interrupted(running, done, asked)
        is_measured = self.held_out is None or done in [m["step"] for m in running.measured_whole[-1:]]
        if running.alarmed.action is None and not is_measured:
            self.evaluate(done)
        action = running.alarmed.action or self.ranks.agreed(running.alarmed.wanted)
        if action == "roll_back":
            return ending.end_rolled_back(running, done)
        return ending.end_trained(running, done, action)

    def _seal(self, trainer: RunTrainer, written: Path) -> None:
        running, folder = self.running, self.running.folder.path / "checkpoints"
        state = replace(trainer.train_state(), more={"stop_rules": running.stop_rules.state()})
        running.folder.sync()  # first: a checkpoint must not stand behind lines that a power cut took
        # a checkpoint goes to others: where runs lie on this machine is no part of it
        out = self.said.run.model_copy(update={"dir": "runs"})
        said = self.said.model_copy(update={"run": out}) if Path(self.said.run.dir).is_absolute() else self.said
        saved = checkpoint.seal(written, folder, state, to_yaml(said))
        keep_newest_and_best(folder, self.recipe.run.keep, running.measured_whole, running.canaries)
        self.display.note("good", f"saved {saved.path}")

    def _mark_failed(self, err: UserError) -> None:
        if self.folder is not None:
            ending.mark_failed(self.folder, err, self.recipe, self.display, tells=self.ranks.is_main)

    def _give_up(self, err: UserError) -> None:
        """End this process from a thread: a wait for a machine or a server that is lost cannot be left."""
        self._mark_failed(err)
        self.display.close()
        end_rank(err.render(), err.code)


def note_kl(recipe: Recipe, trainer: RunTrainer, display: Display) -> None:
    """Say where the KL to the start is not measured, or what measuring it takes."""
    if recipe.train.method != "rl":
        return
    if not keeps_reference(recipe):
        display.note("info", "the KL to the start is not measured (`monitor.kl: off`)")
    elif trainer.kl_watch is not None and trainer.kl_watch.reference.megabytes >= 100:
        size = f"{trainer.kl_watch.reference.megabytes:,.0f} MiB of main memory"
        display.note("info", f"a copy of the trained weights for the KL monitor takes {size}")
