"""`grpo train` from a checked recipe to the end card: rows, golds, model, cold start, measure, train, measure again."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_cli.display.protocol import Display
from grpo_cli.distributed.launch import end_rank
from grpo_cli.distributed.peers import Peers
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.distributed.replica import Replica
from grpo_cli.errors import Exit, TrainingError, UserError
from grpo_cli.findings.gold import gap_alarm, gap_metrics, trusted_score
from grpo_cli.findings.stopping import StopRules
from grpo_cli.jobs.train.alarm_actions import Alarmed, best_gold, end_paused, end_rolled_back
from grpo_cli.jobs.train.callbacks import Watch
from grpo_cli.jobs.train.start import create_run, resume_point, run_info
from grpo_cli.jobs.train.trackers import Tracker, check_trackers, take_trackers
from grpo_cli.jobs.workplace import JudgedRows, Workplace, furnish, judge_warnings, open_rows, splits_of
from grpo_cli.measure.evaluator import Evaluator
from grpo_cli.measure.gate import bars, probe_line, probe_object
from grpo_cli.measure.probe import ProbeSize, sample_probe
from grpo_cli.policy.model import device_name, load_model, pick_device
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.threads import set_threads
from grpo_cli.recipe.arithmetic import IDLE_HINT, idle_reuse, plan
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Gate, Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.resilience.heartbeat import Beating, Heartbeat
from grpo_cli.resilience.interrupt import Interrupted, Interrupts
from grpo_cli.resilience.lock import hold
from grpo_cli.rollout.engine import Engine, SamplingSettings
from grpo_cli.rollout.make import policy_engine
from grpo_cli.rollout.reuse.engine import PrefixReuse
from grpo_cli.rollout.vllm.engine import VllmEngine, check_vllm, openable
from grpo_cli.rollout.vllm.server import ServerWatch, check_model, server_of, watched
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Card, Status
from grpo_cli.run.libraries import libraries_to_log
from grpo_cli.run.silent import SilentRun
from grpo_cli.train.kl_monitor import keeps_reference
from grpo_cli.train.step import ERRORS_HINT, GrpoStep, why_no_verdict
from grpo_cli.train.trainer import Trainer
from grpo_cli.train.trl_config import batching, check_hooks, grpo_config


@dataclass
class Outcome:
    """What a run came to; `before` and `after` are evaluation metrics, `code` is the exit code."""

    run: RunFolder
    steps: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    code: Exit = Exit.OK
    checkpoint: Path | None = None
    status: Status = "done"


class Job:
    """One training run, or one rank's part of it."""

    def __init__(self, recipe: Recipe, *, label: str, base: Path | None, display: Display) -> None:
        self.recipe, self.label, self.base, self.display = recipe, label, base, display
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {"setup": 0.0, "warmup": 0.0}
        self.ranks = Ranks.from_environment()
        self.peers = Peers(self.ranks, self.ranks.machine, recipe.stop.lost_s)
        self.interrupts = Interrupts(lambda text: display.note("warn", f"interrupted: {text}"))
        self.evaluations: list[dict[str, Any]] = []
        self.stop_rules = StopRules(recipe.stop)
        self.trackers: list[Tracker] = []
        self.trainer: Trainer | None = None

    def run(self, resume: RunFolder | None = None) -> Outcome:
        """Train.

        Raises:
            UserError: as the errors module says, after everything good was saved.
        """
        try:
            with self.interrupts.handled(), self.peers.watching(self._give_up):
                return self._open(resume)
        except UserError as err:
            self._mark_failed(err)
            raise
        finally:
            for tracker in self.trackers:
                tracker.close()
            self.display.close()

    def _open(self, resume: RunFolder | None) -> Outcome:
        recipe = self.recipe
        with ExitStack() as opened:
            with self._timed("setup"):
                self._connect()
                rows = opened.enter_context(open_rows(recipe, self.base, self.display, splits_of(recipe)))
                place = self._furnish(rows)
                self.folder = self._run_folder(resume, place)
            return self._begin(place, resumes=resume is not None)

    def _connect(self) -> None:
        recipe = self.recipe
        check_hooks()
        if recipe.sample.engine == "vllm":
            mode = recipe.sample.vllm.get("mode", "colocate")
            check_vllm(mode, self.ranks.world, pick_device(self.ranks.local).type)
        check_trackers(recipe.run.track)
        set_threads(recipe.run.threads)
        self.ranks.connect()

    def _furnish(self, rows: JudgedRows) -> Workplace:
        """Everything that can be refused is refused here, before the run has a folder."""
        recipe, display = self.recipe, self.display
        plan(recipe, len(rows.train.rows))
        checkpoint.check_writable(Path(recipe.run.dir))
        self.server = server_of(recipe.sample, display.progress)
        self.device = pick_device(self.ranks.local)
        display.progress("load model", 0, 1)
        policy = load_model(recipe.model, device=self.device, seed=recipe.train.seed)
        display.progress("load model", 1, 1)
        if self.server is not None:
            check_model(self.server, policy.model, policy.tokenizer, rows.train.rows[0].prompt)
        place = furnish(rows, policy, self.server.context if self.server is not None else None)
        plan(recipe, len(place.train.rows))
        return place

    def _begin(self, place: Workplace, *, resumes: bool) -> Outcome:
        recipe, display = self.recipe, self.display
        display.start(
            run_info(recipe, self.folder, label=self.label, device=self._device_name, logs=self.ranks.is_main)
        )
        for warning in judge_warnings(place.judge):
            display.note("warn", warning)
        heartbeat = Heartbeat(self.folder, display, recipe.stop.hang_s, peers=self.peers)
        self.display = Beating(display, heartbeat)
        try:
            with libraries_to_log(self.folder), heartbeat.watching():
                return self._train(place, resumes=resumes)
        except Interrupted as stop:
            self.folder.update_manifest(status="interrupted")
            display.note("warn", "stopped at once", hint=self.resume_hint())
            return Outcome(self.folder, 0, seconds=self._all_seconds(), code=stop.code, status="interrupted")

    def _mark_failed(self, err: UserError) -> None:
        """Leave word in the run's folder, and say where the last checkpoint is and how to go on from it."""
        if not hasattr(self, "folder"):
            return
        with suppress(UserError):  # a full disk: what stopped the run is told, not this
            self.folder.log("error", err.render())
            self.folder.update_manifest(status="failed", reason=str(err))
        saved = checkpoint.all_checkpoints(self.folder.path / "checkpoints")
        if saved and self.ranks.is_main:
            last = f"{saved[-1].path.name} is saved; with the cause mended `{self.resume_hint()}` goes on from it"
            err.hint = f"{err.hint}\n      {last}" if err.hint else last

    def _give_up(self, err: UserError) -> None:
        """End this process from a thread: a wait for a machine or a server that is lost cannot be left."""
        self._mark_failed(err)
        self.display.close()
        end_rank(err.render(), err.code)

    def _train(self, place: Workplace, *, resumes: bool) -> Outcome:
        recipe, run, policy = self.recipe, self.folder, place.policy
        start = resume_point(run, self.display, self.ranks) if resumes else None
        if start is None or keeps_reference(recipe):  # KL is to the warmed-up model, also after a resume
            with self.ranks.main_first():
                self._cold_start(place)
        through_vllm = recipe.sample.engine == "vllm"
        replica = Replica.where_needed(
            recipe.launch.strategy, policy.model, policy.autocast, self.display.note
        )
        whole = replace(policy, model=replica.model) if replica else policy
        engine = policy_engine(
            "auto" if through_vllm else recipe.sample.engine,  # vLLM has no part in evaluation
            whole,
            lambda text: self.display.note("info", text),
        )
        self.server_watch = ServerWatch.of(self.server, recipe.stop.lost_s, self._give_up)
        step = GrpoStep(
            recipe,
            place.train.rows,
            place.train.golds,
            place.judge,
            VllmEngine.of(policy, self.server_watch) if through_vllm else engine,
            policy.tokenizer,
            run,
            self.display,
            self.ranks,
            self._reuse(engine, whole, place),
        )
        evaluator = self._evaluator(place, engine)
        if recipe.gate is not None and start is None:
            refused = self._gate(recipe.gate, place, engine)
            if refused is not None:
                return refused
        self.evaluations = [m for m in run.metrics() if "eval/pass@1" in m]
        self.alarmed = Alarmed(recipe, run, self.display, looks=self.ranks.is_main)
        if evaluator is not None and start is None:
            self.evaluate(evaluator, 0)
        # of an alarm before the first step, or in the step after which the run died before it could act
        self.alarmed.action = self.ranks.agreed(self.alarmed.wanted)
        if start is None and self.alarmed.action is not None:
            return end_paused(self, 0)
        trainer = self._trainer(place, step, evaluator, replica)
        for tracker in self.trackers if start is None else ():
            for measured in self.evaluations:
                tracker.send(measured)
        if not keeps_reference(recipe):
            self.display.note("info", "the KL to the start is not measured (`monitor.kl: off`)")
        elif trainer.kl_watch is not None and trainer.kl_watch.reference.megabytes >= 100:
            size = f"{trainer.kl_watch.reference.megabytes:,.0f} MiB of main memory"
            self.display.note("info", f"a copy of the trained weights for the KL monitor takes {size}")
        if start is not None:
            self.stop_rules.load_state(checkpoint.restore(trainer, start)["stop_rules"])
            if replica:
                trainer._load_from_checkpoint(str(start))  # while the weights are whole
        step.clock.lap()
        try:
            with self.interrupts.finish_step():
                stops = self.stop_rules.reason or self.alarmed.action
                is_over = step.generation >= recipe.train.steps or stops is not None
                if start is not None and is_over:
                    trainer._load_from_checkpoint(str(start))  # trained to the end, but not measured yet
                else:
                    trainer.train(resume_from_checkpoint=str(start) if start else None)
        finally:
            shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
        done, last = step.generation, run.checkpoint_path(step.generation)
        if self.alarmed.action == "pause":
            return end_paused(self, done)
        heard = self.ranks.gathered([self.interrupts.asked])
        asked = next((code for code in heard if code is not None), None)
        if asked is not None and self.alarmed.action is None:
            run.update_manifest(status="interrupted", steps=done)
            self.finish("interrupted", next_=self.resume_hint())
            return self.outcome(done, asked, "interrupted")
        if evaluator is not None and self.alarmed.action is None and self.evaluations[-1]["step"] != done:
            self.evaluate(evaluator, done)
        action = self.alarmed.action or self.ranks.agreed(self.alarmed.wanted)
        if action == "roll_back":
            return end_rolled_back(self, done)
        status: Status = "stopped" if self.stop_rules.reason else "done"
        reason = self.stop_rules.reason or self.alarmed.reason or None
        run.update_manifest(status=status, steps=done, reason=reason)
        self.finish(status, next_=f"grpo eval {last}", reason=reason or "")
        return self.outcome(done, Exit.BAR_MISSED if reason or action else Exit.OK, status)

    def _reuse(self, engine: Engine, policy: Policy, place: Workplace) -> PrefixReuse | None:
        """Around the engine where the recipe asks for it; says so where no row will be drawn twice."""
        recipe, asked = self.recipe, self.recipe.sample.reuse
        if asked is None:
            return None
        idle = idle_reuse(recipe, plan(recipe, len(place.train.rows)))
        if idle:
            self.display.note("warn", idle, hint=IDLE_HINT)
        return PrefixReuse(engine, policy.model, asked.lenience, autocast=policy.autocast)

    def _gate(self, gate: Gate, place: Workplace, engine: Engine) -> Outcome | None:
        """Probe the model that training would start from; the outcome of a run that may not start, else None."""
        with self._timed("probe"):
            found = sample_probe(
                self.recipe,
                place.train,
                place.judge,
                engine,
                place.policy,
                ProbeSize.of(gate),
                shared=self.ranks,
                on_progress=lambda done, total: self.display.progress("probe", done, total),
            )
        missed = [bar for bar in bars(found.probe, gate) if not bar.is_met]
        self.folder.write_probe(probe_object(found, gate), found.records)
        said = probe_line(found.probe, gate)
        if not missed:
            self.display.note("good", said)
            return None
        hint = f"its samples are in {self.folder.path / 'probe.jsonl'}; `--set gate=null` trains anyway"
        self.display.note("error", said, hint=hint)
        self.folder.update_manifest(status="stopped", steps=0, reason=said)
        return self.outcome(0, Exit.BAR_MISSED, "stopped")

    def _trainer(
        self,
        place: Workplace,
        step: GrpoStep,
        evaluator: Evaluator | None,
        replica: Replica | None,
    ) -> Trainer:
        policy = place.policy
        seen = (
            place.train.rows[:2000] if self.device.type == "cuda" else []
        )  # a CPU takes the batch as a whole
        longest = max((len(policy.encode(row)) for row in seen), default=0)
        batch = batching(self.recipe, self.device, longest, self.ranks.world)
        partial = self.folder.path / "checkpoints" / checkpoint.PARTIAL
        checkpoint.check_space(self.folder.path, checkpoint.checkpoint_bytes(policy.model))
        through_vllm = isinstance(step.engine, VllmEngine)
        opened = openable(policy.model, policy.tokenizer) if through_vllm else nullcontext()
        with opened, watched(self.server_watch):
            trainer = Trainer(
                step,
                model=policy.model,
                args=grpo_config(self.recipe, partial, batch, self.device, policy.autocast is not None),
                tokenizer=policy.tokenizer,
                callbacks=[Watch(self, step, evaluator)],
                on_checkpoint=self._seal,
                replica=replica,
            )
        self.trainer, self.trackers = trainer, take_trackers(trainer, self.folder)
        if isinstance(step.engine, VllmEngine):
            step.engine.attach(trainer)
        return trainer

    def _run_folder(self, resume: RunFolder | None, place: Workplace) -> RunFolder:
        """Rank 0 makes or opens it, the others look on."""
        if self.ranks.is_main:
            made = resume or create_run(
                self.recipe, place.judge, label=self.label, base=self.base, device=self._device_name
            )
            self.held = hold(made.path)
            checkpoint.clear_partial(made.path / "checkpoints")
            self.ranks.agreed(str(made.path))
            return made
        return SilentRun(Path(self.ranks.agreed("")))

    def _cold_start(self, place: Workplace) -> None:
        with self._timed("warmup") if self.recipe.warmup else nullcontext():
            place.warm_up()

    def _evaluator(self, place: Workplace, engine: Engine) -> Evaluator | None:
        if place.held_out is None:
            return None
        sample, seed = self.recipe.sample, self.recipe.train.seed
        sampling = SamplingSettings(sample.max_tokens, sample.temperature, seed=seed)
        return Evaluator(
            self.recipe.eval, place.held_out, place.judge, engine, place.policy, sampling, self.ranks
        )

    def evaluate(self, evaluator: Evaluator, step: int) -> None:
        """Measure the held-out rows, record and show it."""
        with self._timed("evaluate"):
            if self.trainer is not None:
                self.trainer.catch_up()
            found = evaluator.run(step, lambda done, total: self.display.phase("evaluate", done, total))
            if self.recipe.sample.engine == "vllm":
                evaluator.engine.release()  # the memory is vLLM's between evaluations
        metrics = {"step": step, **found.as_metrics()}
        best = max((e["eval/pass@1"] for e in self.evaluations), default=-1.0)
        metrics["eval/best"] = metrics["eval/pass@1"] > best
        gold = self.recipe.monitor.gold
        if gold is not None:
            metrics |= gap_metrics(found.sampled.records, gold, self.recipe.verify[gold].right_at)
        self.evaluations.append(metrics)
        metrics["eval/gold/alarm"] = None if gold is None else int(gap_alarm(self.evaluations) is not None)
        self.folder.write_samples(step, found.sampled.records, split="eval")
        if found.sampled.pass_1.n == 0 and self.recipe.stop.verifier_errors < 1:
            cause = why_no_verdict(record.verdicts for record in found.sampled.records)
            raise TrainingError(f"no held-out sample got a verdict: {cause}", hint=ERRORS_HINT)
        self.folder.write_metrics(metrics)
        for tracker in self.trackers:
            tracker.send(metrics)
        self.display.evaluated(metrics)
        self.alarmed.evaluated(metrics)

    def _seal(self, trainer: Trainer, written: Path) -> None:
        folder = self.folder.path / "checkpoints"
        state = {"stop_rules": self.stop_rules.state()}
        self.folder.sync()
        saved = checkpoint.seal(written, folder, trainer, to_yaml(self.recipe), state)
        best = best_gold(folder, self.evaluations)
        checkpoint.keep_newest(folder, self.recipe.run.keep, spare=best.path if best else None)
        self.display.note("good", f"saved {saved.path}")

    @property
    def _device_name(self) -> str:
        return device_name(self.device, self.ranks.world)

    def resume_hint(self) -> str:
        """The command that goes on from here."""
        return f"grpo train --resume {shlex.quote(str(self.folder.path))}"

    def finish(self, status: Status, next_: str, **more: str) -> None:
        """Show the end card."""
        run = self.folder
        best = max(self.evaluations, key=trusted_score, default=None)
        best_path = run.checkpoint_path(best["step"]) if best else None
        self.display.finish(
            Card(
                status=status,
                wall_s=time.perf_counter() - self.began,
                history=tuple(m for m in run.metrics() if "reward/total/mean" in m),
                evaluations=tuple(self.evaluations),
                device=self._device_name,
                best=str(best_path) if best_path and best_path.exists() else "",
                next=next_,
                **more,
                seconds={phase: s for phase, s in self._all_seconds().items() if phase != "total"},
            )
        )

    def outcome(self, steps: int, code: Exit, status: Status) -> Outcome:
        """What `run` returns, once every rank is here."""
        self.ranks.wait()  # the first rank that ends with a code above 0 has torchrun end the others
        measured = {m["step"]: m for m in self.evaluations}
        last = self.folder.checkpoint_path(steps)
        return Outcome(
            self.folder,
            steps,
            before=measured.get(0),
            after=measured.get(steps) if steps else None,
            seconds=self._all_seconds(),
            code=code,
            checkpoint=last if last.is_dir() else None,
            status=status,
        )

    def _all_seconds(self) -> dict[str, float]:
        lines = self.folder.metrics()
        phases = {p: sum(m.get(f"time/{p}") or 0.0 for m in lines) for p in ("generate", "verify", "update")}
        return {**self.seconds, **phases, "total": time.perf_counter() - self.began}

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began
