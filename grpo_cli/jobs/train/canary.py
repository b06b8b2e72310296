"""The canary prompts of a run, loaded by `rows`: asked at the start and every few steps, looked at by the alarms."""

from __future__ import annotations

from typing import Any

from grpo_cli.data.split import Split
from grpo_cli.findings.held_out import canary_metrics, correction, is_doubtful, planned, shares_of
from grpo_cli.jobs.rows import as_held_out, fit_split
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.workplace import Workplace
from grpo_cli.measure.evaluation import Evaluator
from grpo_cli.recipe.sections.course import Eval
from grpo_cli.rollout.engine import Engine, SamplingSettings


class CanaryWatch:
    """The canary prompts of one run, asked each time with the same seed: samples are paired over time."""

    def __init__(self, running: RunContext, place: Workplace, engine: Engine, rows: Split) -> None:
        recipe, spec = place.recipe, place.recipe.monitor.canary
        assert spec is not None
        self.running, self.spec, self.display = running, spec, place.display
        fitting = fit_split(as_held_out(recipe, spec), rows, "eval", place.policy, place.display)
        self.evaluator = Evaluator(
            Eval(samples=spec.samples, k=[1], greedy=False),
            fitting,
            place.judge,
            engine,
            place.policy,
            SamplingSettings.measuring(recipe.sample, recipe.train.seed),
            running.ranks,
            recipe.environment,
        )

    @classmethod
    def where_asked(cls, running: RunContext, place: Workplace, engine: Engine) -> CanaryWatch | None:
        """None where the recipe has no canary."""
        return None if place.canary is None else cls(running, place, engine, place.canary)

    def is_due(self, step: int) -> bool:
        """Whether to ask after this step: as the recipe plans, and while the last drop is a doubtful one."""
        last = self.running.canaries[-1:]
        return planned(step, self.running.recipe.train.steps, self.spec.every) or any(map(is_doubtful, last))

    def measure(self, step: int) -> None:
        """Ask, record and look."""
        running = self.running
        with running.stopwatch.timed("evaluate"):
            if running.trainer is not None:
                running.trainer.sync_weights()
            show = running.display.phase
            found = self.evaluator.run(step, lambda done, total: show("canary", done, total))
        records = found.sampled.records
        first = records if step == 0 else list(running.folder.samples(0, "canary"))
        verifier = self.spec.verify
        factor = correction(step, running.recipe.train.steps, self.spec.every, running.canaries)
        right_at = running.recipe.verify[verifier].right_at if verifier else 1.0
        start, now = (shares_of(some, verifier, right_at) for some in (first or records, records))
        metrics: dict[str, Any] = {"step": step, **canary_metrics(start, now, factor, self.spec.drop)}
        running.folder.write_samples(step, records, split="canary")
        running.folder.write_metrics(metrics)
        for tracker in running.trackers:
            tracker.send(metrics)
        running.canaries.append(metrics)
        running.alarmed.watched(metrics)
