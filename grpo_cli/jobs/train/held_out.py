"""Held-out rows measured in the middle of a run: recorded, shown, and looked at by the alarms."""

from __future__ import annotations

from typing import Any

from grpo_cli.errors import TrainingError
from grpo_cli.findings.held_out import gap_alarm, gap_metrics
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.workplace import Workplace
from grpo_cli.measure.evaluation import Evaluation, Evaluator
from grpo_cli.reward.errors import ERRORS_HINT
from grpo_cli.rollout.engine import Engine, SamplingSettings
from grpo_cli.run.info import BETWEEN


class HeldOut:
    """The held-out rows of one run, asked again and again with the same seed: scores are paired over time."""

    def __init__(self, running: RunContext, place: Workplace, engine: Engine) -> None:
        assert place.held_out is not None
        self.running = running
        sampling = SamplingSettings.measuring(place.recipe.sample, place.recipe.train.seed)
        self.evaluator = Evaluator(
            place.recipe.eval,
            place.held_out,
            place.judge,
            engine,
            place.policy,
            sampling,
            running.ranks,
            place.recipe.environment,
        )

    def measure(self, step: int, *, is_between: bool = False) -> None:
        """Measure, record and show; one that `is_between` is of the first `eval.between` rows.

        Raises:
            TrainingError: no sample got a verdict.
        """
        running = self.running
        with running.stopwatch.timed("evaluate"):
            # before there is a trainer the model that generates is the one that was loaded
            if running.trainer is not None:
                running.trainer.sync_weights()
            show = running.display.phase
            found = self.evaluator.run(step, lambda done, total: show("evaluate", done, total), is_between=is_between)
            if running.recipe.sample.engine_kind.through_trl:
                self.evaluator.engine.release()  # the memory is vLLM's between evaluations
        metrics = self._metrics(step, found, is_between)
        running.folder.write_samples(step, found.sampled.records, split="eval")
        # the samples are on disk already: they say why
        if found.sampled.pass_1.n == 0 and running.recipe.stop.verifier_errors < 1:
            cause = found.failures.commonest[0]
            raise TrainingError(f"no held-out sample got a verdict: {cause}", hint=ERRORS_HINT)
        running.folder.write_metrics(metrics)
        for tracker in running.trackers:
            tracker.send(metrics)
        running.display.evaluated(metrics)
        running.alarmed.evaluated(metrics)

    def _metrics(self, step: int, found: Evaluation, is_between: bool) -> dict[str, Any]:
        """Those of the evaluation, with what follows from the ones before; it joins them."""
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
        metrics["eval/gold/alarm"] = None if gold is None else int(gap_alarm(evaluations) is not None)
        return metrics
