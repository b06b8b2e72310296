"""Measurements of the policy during a run, whose samples are not trained on: before the first step, and between steps.

`refused_by` probes for the recipe's `gate`: a run that misses a bar ends before its first step. `with_floor` measures
the noise of the scorer, for `train.std_floor: noise`. `HeldOut` measures the held-out rows and `CanaryWatch` the canary
prompts: each records its samples, writes its metrics, and hands them to display, trackers and alarms.
"""

from __future__ import annotations

from typing import Any

from grpo_cli.data.rows import Split
from grpo_cli.errors import Exit, SetupError, TrainingError
from grpo_cli.findings.held_out import (
    canary_metrics,
    correction,
    gap_metrics,
    gold_gap,
    is_doubtful,
    planned,
    shares_of,
)
from grpo_cli.jobs.open_job import OpenJob
from grpo_cli.jobs.rows import as_held_out, fit_split
from grpo_cli.jobs.train.ending import outcome_of
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.measure.evaluation import Evaluation, Evaluator
from grpo_cli.measure.gate import bars, probe_line, probe_object
from grpo_cli.measure.probe import ProbeRun, ProbeSize, sample_probe
from grpo_cli.measure.probe_result import ANSWERS, ScorerNoise
from grpo_cli.recipe.sections.course import Eval
from grpo_cli.recipe.sections.recipe import Gate, Recipe
from grpo_cli.reward.errors import ERRORS_HINT
from grpo_cli.rollout.engine import Engine, SamplingSettings
from grpo_cli.run.info import BETWEEN


class HeldOut:
    """The held-out rows of one run, always sampled with the same seed, so that scores are paired over time."""

    def __init__(self, running: RunContext, job: OpenJob, engine: Engine) -> None:
        assert job.held_out is not None
        self.running = running
        sampling = SamplingSettings.measuring(job.recipe.sample, job.recipe.train.seed)
        self.evaluator = Evaluator(
            job.recipe.eval,
            job.held_out,
            job.judge,
            engine,
            job.policy,
            sampling,
            running.ranks,
            job.recipe.environment,
        )

    def measure(self, step: int, *, is_between: bool = False) -> None:
        """Measure, record and show; `is_between`: measure only the first `eval.between` rows.

        Raises:
            TrainingError: no sample got a verdict.
        """
        running = self.running
        found = _measured(running, self.evaluator, step, "evaluate", is_between=is_between)
        metrics = self._metrics(step, found, is_between)
        running.folder.write_samples(step, found.sampled.records, split="eval")
        # the samples are already on disk and show the reason
        if found.sampled.pass_1.n == 0 and running.recipe.stop.verifier_errors < 1:
            cause = found.failures.commonest[0]
            raise TrainingError(f"no held-out sample got a verdict: {cause}", hint=ERRORS_HINT)
        running.record(metrics)
        running.display.evaluated(metrics)
        running.alarmed.evaluated(metrics)

    def _metrics(self, step: int, found: Evaluation, is_between: bool) -> dict[str, Any]:
        """The evaluation's metrics, with those that compare it to earlier ones; it is added to these."""
        evaluations, recipe = self.running.evaluations, self.running.recipe
        metrics = {"step": step, **found.as_metrics()}
        if is_between:
            evaluations.append(metrics | {BETWEEN: 1})
            return evaluations[-1]
        best = max((e["eval/pass@1"] for e in self.running.measured_whole), default=-1.0)
        metrics["eval/best"] = metrics["eval/pass@1"] > best
        gold = recipe.monitor.gold
        if gold is not None:
            metrics |= gap_metrics(found.sampled.records, gold, recipe.verify[gold].right_at)
        evaluations.append(metrics)
        metrics["eval/gold/alarm"] = None if gold is None else int(gold_gap(evaluations) is not None)
        return metrics


class CanaryWatch:
    """The canary prompts of one run, always sampled with the same seed, so that samples are paired over time."""

    def __init__(self, running: RunContext, job: OpenJob, engine: Engine, rows: Split) -> None:
        recipe, spec = job.recipe, job.recipe.monitor.canary
        assert spec is not None
        self.running, self.spec, self.display = running, spec, job.display
        fitting = fit_split(as_held_out(recipe, spec), rows, "eval", job.policy, job.display)
        self.evaluator = Evaluator(
            Eval(samples=spec.samples, k=[1], greedy=False),
            fitting,
            job.judge,
            engine,
            job.policy,
            SamplingSettings.measuring(recipe.sample, recipe.train.seed),
            running.ranks,
            recipe.environment,
        )

    def is_due(self, step: int) -> bool:
        """Whether to measure after this step: as the recipe plans, and while the last drop is large but not
        significant."""
        last = self.running.canaries[-1:]
        return planned(step, self.running.recipe.train.steps, self.spec.every) or any(map(is_doubtful, last))

    def measure(self, step: int) -> None:
        """Measure, record, and check for alarms."""
        running = self.running
        records = _measured(running, self.evaluator, step, "canary").sampled.records
        first = records if step == 0 else list(running.folder.samples(0, "canary"))
        verifier = self.spec.verify
        factor = correction(step, running.recipe.train.steps, self.spec.every, running.canaries)
        right_at = running.recipe.verify[verifier].right_at if verifier else 1.0
        start, now = (shares_of(some, verifier, right_at) for some in (first or records, records))
        metrics: dict[str, Any] = {"step": step, **canary_metrics(start, now, factor, self.spec.drop)}
        running.folder.write_samples(step, records, split="canary")
        running.record(metrics)
        running.canaries.append(metrics)
        running.alarmed.watched(metrics)


def _measured(
    running: RunContext, evaluator: Evaluator, step: int, word: str, *, is_between: bool = False
) -> Evaluation:
    with running.stopwatch.timed("evaluate"):
        # before there is a trainer, the loaded model generates
        if running.trainer is not None:
            running.trainer.sync_weights()
        show = running.display.phase
        found = evaluator.run(step, lambda done, total: show(word, done, total), is_between=is_between)
        if running.recipe.sample.engine_kind.through_trl:
            evaluator.engine.release()  # vLLM needs the memory between evaluations
    return found


LEAST = 1e-6
"""The floor of a scorer without noise: the default of `train.std_floor`."""
NOISE = "noise"
"""The key in `run.json` for the measured `std_floor: noise`."""
SAMPLES = 4
"""Number of answers of each prompt that are scored twice."""


def refused_by(gate: Gate, running: RunContext, job: OpenJob, engine: Engine) -> TrainResult | None:
    """The outcome of a run that may not start, else None; the probe is saved in the run's folder in both cases."""
    display, run = running.display, running.folder
    found = _probed(running, job, engine, ProbeSize.of(gate))
    missed = [bar for bar in bars(found.probe, gate) if not bar.is_met]
    run.write_probe(probe_object(found, gate), found.records)
    said = probe_line(found.probe, gate)
    if not missed:
        display.note("good", said)
        return None
    hint = f"its samples are in {run.path / 'probe.jsonl'}; `--set gate=null` trains anyway"
    display.note("error", said, hint=hint)
    run.update_manifest(status="stopped", steps=0, reason=said)
    return outcome_of(running, 0, Exit.BAR_MISSED, "stopped")


def with_floor(running: RunContext, job: OpenJob, engine: Engine, *, resumes: bool) -> Recipe:
    """The recipe with a measured number for `train.std_floor: noise`; a resumed run uses the number that it began with.

    Raises:
        SetupError: no answer was scored twice.
    """
    recipe, ranks, run = running.recipe, running.ranks, running.folder
    if recipe.train.std_floor != "noise":
        return recipe
    noted = ranks.agreed(run.manifest().get(NOISE) if resumes and ranks.is_main else None)
    if noted is None:
        noise = _probed(running, job, engine, ProbeSize(ANSWERS // SAMPLES, SAMPLES), is_noisy=True).probe.noise
    else:
        noise = ScorerNoise(float(noted["sigma"]), int(noted["n"]))
    if noise is None:
        raise SetupError(
            "`train.std_floor: noise` could not be measured: none of the answers was scored twice",
            hint="say a number, such as 0.1; the outcome of an episode is not scored again",
        )
    train = recipe.train.model_copy(
        update={"std_floor": max(noise.floor(recipe.sample.group, recipe.train.std_ddof), LEAST)}
    )
    if noted is None:
        run.update_manifest(**{NOISE: noise.as_json() | {"floor": train.std_floor}})
        running.display.note(
            "info",
            f"the score of one answer has a deviation of {noise.sigma:.3g} (n {noise.n}): a group that spreads by less than"
            f" {train.std_floor:.3g} has none (`train.std_floor: noise`)",
        )
    return recipe.model_copy(update={"train": train})


def _probed(running: RunContext, job: OpenJob, engine: Engine, size: ProbeSize, *, is_noisy: bool = False) -> ProbeRun:
    display = running.display
    with running.stopwatch.timed("probe"):
        return sample_probe(
            job.recipe,
            job.train,
            job.judge,
            engine,
            job.policy,
            size,
            ranks=running.ranks,
            base=job.base,
            is_noisy=is_noisy,
            on_progress=lambda done, total: display.progress("probe", done, total),
        )
