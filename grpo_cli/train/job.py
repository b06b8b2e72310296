"""`grpo train` from a checked recipe to the end card: rows, golds, model, cold start, measure, train, measure again."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from transformers import TrainerCallback

from grpo_cli import __version__
from grpo_cli.data import audit_golds, drop_overlong, load_rows
from grpo_cli.data.rows import Row
from grpo_cli.display import Card, Display, RunInfo, Source
from grpo_cli.errors import Exit, SetupError, TrainingError
from grpo_cli.evaluate import Evaluator, encode
from grpo_cli.judge import Judge
from grpo_cli.recipe import Recipe, plan
from grpo_cli.run import RunFolder
from grpo_cli.run.libraries import libraries_to_log
from grpo_cli.train import checkpoint
from grpo_cli.train.coldstart import ColdStart, cold_start
from grpo_cli.train.config import batching, check_hooks, grpo_config
from grpo_cli.train.heartbeat import Beating, Heartbeat
from grpo_cli.train.interrupt import Interrupted, Interrupts
from grpo_cli.train.model import Loaded, load_model, pick_device
from grpo_cli.train.rollout.make import end_tokens, make_engine
from grpo_cli.train.step import GrpoStep
from grpo_cli.train.stopping import Deadline, StopRules
from grpo_cli.train.threads import choose_threads
from grpo_cli.train.trainer import Trainer

SAVE_EVERY_S = 300.0
"""Seconds between checkpoints where the recipe does not say."""

BIG = 50_000_000
"""Parameters from which bfloat16 autocast pays on a CPU that has it."""


@dataclass
class Outcome:
    """What a run came to; `code` is the exit code."""

    run: RunFolder
    steps: int
    before: dict[str, Any] | None = None
    """Metrics of the evaluation before step 1; None where nothing was measured."""
    after: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    code: Exit = Exit.OK
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Split:
    """Rows with the compiled golds of every verifier, in the same order."""

    rows: list[Row]
    golds: dict[str, list[Any]]


class Job:
    """One training run. `prepare` needs no model; `run` does the work and always gives things back."""

    def __init__(self, recipe: Recipe, *, label: str, base: Path | None, display: Display) -> None:
        self.recipe, self.label, self.base, self.display = recipe, label, base, display
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.judge = Judge(recipe.verify, base)
        self.interrupts = Interrupts(lambda text: display.note("warn", f"interrupted: {text}"))
        self.evaluations: list[dict[str, Any]] = []
        self.stop_rules = StopRules(recipe.stop)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the seconds inside to a phase of the summary."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def prepare(self) -> tuple[Split, Split | None]:
        """Rows and golds of both splits, checked; nothing has been written yet."""
        recipe = self.recipe
        self.judge.start()
        train = self._split("train")
        held_out = self._split("eval") if recipe.data.eval is not None else None
        plan(recipe, len(train.rows))
        checkpoint.check_writable(Path(recipe.run.dir))
        return train, held_out

    def run(self, resume: RunFolder | None = None) -> Outcome:
        """Train.

        Raises:
            UserError: as the errors module says, after everything good was saved.
        """
        try:
            with self.interrupts.handled():
                return self._run(resume)
        finally:
            self.judge.close()
            self.display.close()

    def _run(self, resume: RunFolder | None) -> Outcome:
        recipe, display = self.recipe, self.display
        with self.timed("setup"):
            check_hooks()
            torch.set_num_threads(choose_threads(recipe.run.threads)[0])
            train, held_out = self.prepare()
            device = pick_device()
            display.progress("load model", 0, 1)
            loaded = load_model(recipe.model, device=device, seed=recipe.train.seed)
            display.progress("load model", 1, 1)
            train = self._fitting(train, loaded)
            plan(recipe, len(train.rows))
            run = resume or self._create_run(device)
        display.start(self._info(run, device))
        try:
            heartbeat = Heartbeat(run, display, recipe.stop.hang_s)
            self.display = Beating(display, heartbeat)
            with libraries_to_log(run), heartbeat.watching():
                return self._trained(run, resume, loaded, device, train, held_out)
        except TrainingError:
            run.update_manifest(status="failed")
            raise
        except Interrupted as stop:
            run.update_manifest(status="interrupted")
            display.note("warn", "stopped at once", hint=self._resume_hint(run))
            return Outcome(run, 0, seconds=self._all_seconds(run), code=stop.code)

    def _trained(
        self,
        run: RunFolder,
        resume: RunFolder | None,
        loaded: Loaded,
        device: Any,
        train: Split,
        held_out: Split | None,
    ) -> Outcome:
        recipe, display = self.recipe, self.display
        start_from = self._resume_point(run) if resume else None
        # KL is to the warmed-up model, also after a resume
        if start_from is None or recipe.train.kl.beta > 0:
            self._cold_start(loaded, train)
        engine = make_engine(
            recipe.sample.engine, loaded.model, loaded.tokenizer, say=lambda text: display.note("info", text)
        )
        step = GrpoStep(recipe, train.rows, train.golds, self.judge, engine, loaded.tokenizer, run, display)
        evaluator = self._evaluator(held_out, loaded, engine)
        self.evaluations = [m for m in run.metrics() if "eval/pass@1" in m]
        if evaluator is not None and start_from is None:
            self.evaluate(evaluator, run, 0)
        batch = batching(
            recipe, device, max((len(encode(loaded.tokenizer, r)) for r in train.rows[:2000]), default=0)
        )
        is_big = sum(p.numel() for p in loaded.model.parameters()) >= BIG
        partial = run.path / "checkpoints" / ".partial"
        checkpoint.check_space(run.path, checkpoint.checkpoint_bytes(loaded.model))
        trainer = Trainer(
            step,
            model=loaded.model,
            args=grpo_config(recipe, partial, batch, device, is_big),
            tokenizer=loaded.tokenizer,
            callbacks=[watch := Watch(self, run, step, evaluator)],
            on_checkpoint=lambda t, written: self._seal(t, written, run),
        )
        if start_from is not None:
            state = checkpoint.restore(trainer, start_from.path)
            self.stop_rules.load_state(state["stop_rules"])
        step.clock.lap()
        try:
            with self.interrupts.finish_step():
                trainer.train(resume_from_checkpoint=str(start_from.path) if start_from else None)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        last = run.checkpoint_path(step.generation)
        if self.interrupts.asked is not None:
            run.update_manifest(status="interrupted", steps=step.generation)
            self._finish(run, "interrupted", next_=self._resume_hint(run))
            return self._outcome(run, step.generation, self.interrupts.asked)
        if evaluator is not None and self.evaluations[-1]["step"] != step.generation:
            self.evaluate(evaluator, run, step.generation)
        status = "stopped" if watch.reason else "done"
        run.update_manifest(status=status, steps=step.generation, reason=watch.reason)
        self._finish(run, status, next_=f"grpo eval {last}", reason=watch.reason or "")
        return self._outcome(run, step.generation, Exit.BAR_MISSED if watch.reason else Exit.OK)

    def _outcome(self, run: RunFolder, steps: int, code: Exit) -> Outcome:
        measured = {m["step"]: m for m in self.evaluations}
        last = run.checkpoint_path(steps)
        return Outcome(
            run,
            steps,
            before=measured.get(0),
            after=measured.get(steps) if steps else None,
            seconds=self._all_seconds(run),
            code=code,
            checkpoint=last if last.is_dir() else None,
        )

    def _split(self, which: str) -> Split:
        rows = load_rows(self.recipe.data, which, self.base)  # type: ignore[arg-type]
        audit = audit_golds(rows, self.judge.verifiers, self.recipe.data.on_bad_gold)
        if audit.dropped:
            first = audit.dropped[0]
            self.display.note(
                "warn",
                f"{which}: dropped {len(audit.dropped)} of {len(rows)} rows with a bad gold, first {first.place}: {first.message}",
            )
        return Split(audit.rows, audit.golds)

    def _fitting(self, split: Split, loaded: Loaded) -> Split:
        limit = self.recipe.data.max_prompt_tokens or self._room(loaded)
        fitting = drop_overlong(split.rows, lambda row: len(encode(loaded.tokenizer, row)), limit)
        if not fitting.dropped:
            return split
        self.display.note("warn", fitting.summary())
        kept = {row.id for row in fitting.rows}
        places = [i for i, row in enumerate(split.rows) if row.id in kept]
        return Split(
            [split.rows[i] for i in places], {n: [g[i] for i in places] for n, g in split.golds.items()}
        )

    def _room(self, loaded: Loaded) -> int | None:
        context = getattr(loaded.model.config, "max_position_embeddings", None)
        if context is None:
            return None
        room = int(context) - self.recipe.sample.max_tokens
        if room < 1:
            raise SetupError(
                f"`sample.max_tokens` is {self.recipe.sample.max_tokens}, the model's context only {context} tokens",
                hint="lower `sample.max_tokens`",
            )
        return room

    def _create_run(self, device: Any) -> RunFolder:
        recipe = self.recipe
        manifest = {
            "recipe": self.label,
            "argv": sys.argv,
            "recipe_sha": recipe.sha(),
            "versions": versions(),
            "device": device_name(device),
            "seed": recipe.train.seed,
            "git": git_commit(),
            "base": str((self.base or Path()).resolve()),
        }
        return RunFolder.create(
            recipe.run.dir, recipe.run.name, recipe.resolved(), manifest, label=self.label
        )

    def _info(self, run: RunFolder, device: Any) -> RunInfo:
        recipe = self.recipe
        return RunInfo(
            run=run.name,
            recipe=self.label,
            sha=recipe.sha(),
            model=recipe.model.path,
            folder=str(run.path),
            log=str(run.log_path),
            device=device_name(device),
            steps=recipe.train.steps,
            prompts=recipe.sample.prompts,
            group=recipe.sample.group,
            max_tokens=recipe.sample.max_tokens,
            seed=recipe.train.seed,
            sources=tuple(Source(name, spec.weight, spec.primary) for name, spec in recipe.verify.items()),
        )

    def _cold_start(self, loaded: Loaded, train: Split) -> ColdStart | None:
        recipe = self.recipe
        if not recipe.warmup:
            if not loaded.is_pretrained:
                self.display.note(
                    "warn", f"`{recipe.model.path}` has random weights and the recipe no `warmup`"
                )
            return None
        phases = [(phase, self._demonstration_rows(phase, train.rows)) for phase in recipe.warmup]
        with self.timed("warmup"):
            device = next(loaded.model.parameters()).device.type
            done = cold_start(
                loaded.model,
                loaded.tokenizer,
                phases,
                model_key=f"{recipe.model.model_dump_json()}/{device}/{torch.get_num_threads() if device == 'cpu' else 0}",
                seed=recipe.train.seed,
                eos_id=loaded.tokenizer.eos_token_id or min(end_tokens(loaded.model, loaded.tokenizer)),
                on_progress=lambda step, total: self.display.progress("warm-up", step, total),
            )
        how = "from the cache" if done.from_cache else f"in {done.seconds:.1f}s"
        self.display.note(
            "info", f"warm-up: {done.steps} supervised steps on {done.demonstrations:,} demonstrations, {how}"
        )
        return done

    def _demonstration_rows(self, phase: Any, rows: Sequence[Row]) -> Sequence[Row]:
        if phase.data is None:
            return rows
        return load_rows(self.recipe.data.model_copy(update={"train": [phase.data]}), "train", self.base)

    def _evaluator(self, held_out: Split | None, loaded: Loaded, engine: Any) -> Evaluator | None:
        if held_out is None:
            return None
        return Evaluator(
            self.recipe.eval,
            held_out.rows,
            held_out.golds,
            self.judge,
            engine,
            loaded.tokenizer,
            max_tokens=self.recipe.sample.max_tokens,
            temperature=self.recipe.sample.temperature,
            seed=self.recipe.train.seed,
        )

    def evaluate(self, evaluator: Evaluator, run: RunFolder, step: int) -> None:
        """Measure the held-out rows, record and show it."""
        found = evaluator.run(step, lambda done, total: self.display.phase("evaluate", done, total))
        self.seconds["evaluate"] = (
            self.seconds.get("evaluate", 0.0)
            + found.sampled.seconds
            + (found.greedy.seconds if found.greedy else 0.0)
        )
        metrics = {"step": step, **found.as_metrics()}
        best = max((e["eval/pass@1"] for e in self.evaluations), default=-1.0)
        metrics["eval/best"] = metrics["eval/pass@1"] > best
        self.evaluations.append(metrics)
        run.write_samples(step, found.sampled.records, split="eval")
        run.write_metrics(metrics)
        self.display.evaluated(metrics)

    def _seal(self, trainer: Trainer, written: Path, run: RunFolder) -> None:
        saved = checkpoint.seal(
            written,
            run.path / "checkpoints",
            trainer,
            self.recipe.resolved(),
            {"stop_rules": self.stop_rules.state()},
        )
        checkpoint.keep_newest(run.path / "checkpoints", self.recipe.run.keep)
        self.display.note("good", f"saved {saved.path}")

    def _resume_point(self, run: RunFolder) -> checkpoint.Checkpoint | None:
        found, broken = checkpoint.newest_valid(run.path / "checkpoints")
        for one, fault in broken:
            self.display.note(
                "warn", f"checkpoint {one.path.name} is broken: {fault}; the one before is used"
            )
        gone = run.move_aside(found.step if found else -1)
        said = (
            f"resuming {run.name} from {found.path.name}"
            if found
            else f"{run.name} has no checkpoint: starting over"
        )
        self.display.note(
            "info", said + (f"; records of {gone} later steps moved to *.abandoned" if gone else "")
        )
        return found

    def _resume_hint(self, run: RunFolder) -> str:
        return f"grpo train --resume {run.path}"

    def _finish(self, run: RunFolder, status: Any, next_: str, reason: str = "") -> None:
        history = tuple(m for m in run.metrics() if "reward/total/mean" in m)
        best = max(self.evaluations, key=lambda m: m["eval/pass@1"], default=None)
        self.display.finish(
            Card(
                status=status,
                wall_s=time.perf_counter() - self.began,
                history=history,
                evaluations=tuple(self.evaluations),
                device=device_name(pick_device()),
                best=str(run.checkpoint_path(best["step"]))
                if best and run.checkpoint_path(best["step"]).exists()
                else "",
                next=next_,
                reason=reason,
                seconds=self._all_seconds(run),
            )
        )

    def _all_seconds(self, run: RunFolder) -> dict[str, float]:
        lines = run.metrics()
        phases = {p: sum(m.get(f"time/{p}") or 0.0 for m in lines) for p in ("generate", "verify", "update")}
        return {"setup": 0.0, "warmup": 0.0, **self.seconds, **phases}


class Watch(TrainerCallback):  # type: ignore[misc]
    """At the end of each batch: evaluate, save, or stop, as recipe, clock and signals ask."""

    def __init__(self, job: Job, run: RunFolder, step: GrpoStep, evaluator: Evaluator | None) -> None:
        self.job, self.run, self.step, self.evaluator = job, run, step, evaluator
        self.deadline = Deadline(job.recipe.run.deadline)
        self.saved_at = time.monotonic()
        self.reason: str | None = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> Any:
        """TRL logs after each update; our trainer passes one on a batch, with that batch's metrics."""
        done, recipe, job = self.step.generation, self.job.recipe, self.job
        self.reason = job.stop_rules.see_step(logs)
        is_last = done >= recipe.train.steps
        every = recipe.eval.every
        if self.evaluator is not None and every is not None and done % every == 0 and not is_last:
            with self.step.clock.phase("pause"):
                job.evaluate(self.evaluator, self.run, done)
            self.reason = job.stop_rules.see_evaluation(job.evaluations[-1]) or self.reason
        if self.deadline.is_over() and job.interrupts.asked is None:
            job.display.note("warn", f"the deadline of {recipe.run.deadline} is over: saving, then stopping")
            job.interrupts.asked = Exit.TERMINATED
        control.should_training_stop = is_last or job.interrupts.asked is not None or self.reason is not None
        control.should_save = control.should_training_stop or self._is_due(done)
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.saved_at = time.monotonic()

    def _is_due(self, done: int) -> bool:
        every = self.job.recipe.run.save_every
        if every is not None:
            return done % every == 0
        return time.monotonic() - self.saved_at >= SAVE_EVERY_S


def versions() -> dict[str, str]:
    """What decides whether a run can be repeated."""
    return {
        "grpo": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "trl": trl.__version__,
    }


def device_name(device: Any) -> str:
    """`1x NVIDIA H100`, or the number of CPU threads."""
    if device.type == "cuda":
        return f"1x {torch.cuda.get_device_name(device)}"
    return f"cpu, {torch.get_num_threads()} threads"


def git_commit() -> str | None:
    """The commit of the working directory, where it is a git checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
