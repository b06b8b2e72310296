"""The actions of a run on findings: a health finding is noted; for an alarm the evidence is also saved, and the run
pauses or rolls back if the recipe asks for it.

Only rank 0 checks. An alarm that has already stopped the run once does not stop it again: `acted` in `run.json` names
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_cli.display.protocol import Display
from grpo_cli.display.webhook import tell_webhook
from grpo_cli.findings.alarms import MONITORS, Alarms, ConstantParts
from grpo_cli.findings.evidence import diagnosis
from grpo_cli.findings.finding import Finding
from grpo_cli.findings.health import Health
from grpo_cli.findings.held_out import HeldOutScores, trusted_score
from grpo_cli.findings.run_data import collect
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_step
from grpo_cli.run.info import Metrics
from grpo_cli.text import Json

GOLD = "eval/gold/pass@1"
CANARY = "canary/pass@1"
MOST_SAMPLES = 20
"""Number of completions saved in the evidence of an alarm."""
PENDING = "rolling_back_to"
"""The key in `run.json` during a roll-back: a resume finishes the roll-back first."""


class AlarmActions:
    """The alarms of one run. `raised` are those that stop it, `action` is the action that all ranks agreed on."""

    def __init__(self, recipe: Recipe, run: RunFolder, display: Display, *, looks: bool) -> None:
        self.run, self.display, self.looks = run, display, looks
        self.actions, self.webhook = recipe.monitor.on_alarm, recipe.run.webhook
        parts = {n: spec.right_at for n, spec in recipe.verify.items() if spec.weight and not spec.primary}
        self.alarms, self.health = Alarms(parts), Health()
        self.constant = ConstantParts([name for name, spec in recipe.verify.items() if spec.weight])
        expect = recipe.eval.expect
        self.held_out = HeldOutScores(expect.step, expect.pass_1) if expect else HeldOutScores()
        self.raised: list[Finding] = []
        self.action: str | None = None
        self.told: set[tuple[str, int]] = set()
        if looks:
            acted = run.manifest().get("acted", [])
            self.told = {(alarm["code"], alarm["step"]) for act in acted for alarm in act["alarms"]}
            lines = run.metrics()
            last = max((int(m["step"]) for m in lines), default=0)
            # replay earlier steps: a resumed run must have the same findings, and rules look back over many steps
            for metrics in filter(is_step, lines):
                self.health.step(metrics)
                self.constant.step(metrics)
            for metrics in lines:
                if "eval/pass@1" in metrics:
                    self.held_out.evaluated(metrics)
            # an alarm of the last step before the run died was recorded, but not acted on
            self.raised = [f for f in self.alarms.recall(lines) if f.step == last and self._stops(f)]

    def step(self, metrics: Metrics) -> None:
        """A step was recorded."""
        if not self.looks:
            return
        self._advise([*self.health.step(metrics), *self.constant.step(metrics)])
        for finding in self.alarms.step(metrics):
            self._raise(finding)

    def evaluated(self, metrics: Metrics) -> None:
        """An evaluation was recorded."""
        self._advise(self.held_out.evaluated(metrics) if self.looks else ())
        for finding in self.alarms.evaluated(metrics) if self.looks else ():
            self._raise(finding)

    def watched(self, metrics: Metrics) -> None:
        """The canary prompts were asked."""
        for finding in self.alarms.watched(metrics) if self.looks else ():
            self._raise(finding)

    def _advise(self, found: Sequence[Finding]) -> None:
        for finding in found:
            self.display.note("warn", finding.text, f"{finding.hint}  [{finding.code}]")

    @property
    def wanted(self) -> str | None:
        """The action for the run now: `roll_back` takes precedence over `pause`; None if there is none."""
        wanted = {self._action(finding) for finding in self.raised}
        return next((action for action in ("roll_back", "pause") if action in wanted), None)

    @property
    def may_roll_back(self) -> bool:
        """Whether an alarm of the recipe can roll the run back."""
        return "roll_back" in (self.actions.values() if isinstance(self.actions, Mapping) else [self.actions])

    @property
    def reason(self) -> str:
        """The alarms that stop the run, in one line."""
        return "; ".join(f"{f.code} at step {f.step}: {f.text}" for f in self.raised)

    @property
    def evidence(self) -> str:
        """The file behind the first of them."""
        return next((str(self.run.alarm_path(f.step, f.code)) for f in self.raised), "")

    def acted(self, action: str, **more: Json) -> dict[str, Any]:
        """What `run.json` records of the stop, in addition to earlier ones."""
        alarms = [asdict(finding) for finding in self.raised]
        act = {"action": action, "alarms": alarms, "evidence": self.evidence, **more}
        return {"acted": [*self.run.manifest().get("acted", []), act], "reason": self.reason}

    def _action(self, finding: Finding) -> str:
        if isinstance(self.actions, Mapping):
            return self.actions.get(MONITORS[finding.code], "warn")  # type: ignore[call-overload,no-any-return]
        return self.actions

    def _stops(self, finding: Finding) -> bool:
        return self._action(finding) != "warn" and (finding.code, finding.step) not in self.told

    def _raise(self, finding: Finding) -> None:
        found = diagnosis(collect(self.run), finding, MOST_SAMPLES).as_json()
        path = self.run.write_alarm(finding.step, finding.code, found)
        hint = f"{finding.hint}; evidence in {path}  [{finding.code}]"
        self.display.note("warn", f"step {finding.step}: {finding.text}", hint)
        more: dict[str, Json] = {"code": finding.code, "step": finding.step, "evidence": str(path)}
        text = f"{self.run.name}: {finding.code} at step {finding.step}: {finding.text}"
        tell_webhook(self.webhook, "alarm", self.run, self.display, text, more)
        if self._stops(finding):
            self.raised.append(finding)


def best_gold_step(evaluations: Sequence[Metrics]) -> int | None:
    """The step of the best gold score so far, the earliest of equals."""
    scores = gold_scores(evaluations)
    return max(scores, key=lambda step: scores[step], default=None)


def gold_scores(evaluations: Sequence[Metrics]) -> dict[int, float]:
    """The gold score of each step that has one; if no step has one, the score of the canary."""
    key = GOLD if any(e.get(GOLD) is not None for e in evaluations) else CANARY
    return {int(e["step"]): e[key] for e in evaluations if e.get(key) is not None}


def best_gold(folder: Path, evaluations: Sequence[Metrics]) -> checkpoint.Checkpoint | None:
    """The checkpoint with the best gold score on held-out rows, the earliest of equals; None where no such step was saved."""
    scores = gold_scores(evaluations)
    saved = [c for c in checkpoint.all_checkpoints(folder) if c.step in scores]
    return max(saved, key=lambda c: scores[c.step], default=None)


def best_saved(folder: Path, evaluations: Sequence[Metrics]) -> checkpoint.Checkpoint | None:
    """The checkpoint with the best held-out score (the gold verifier's where that was measured), the earliest of equals."""
    scores = {int(e["step"]): trusted_score(e) for e in evaluations}
    saved = [c for c in checkpoint.all_checkpoints(folder) if c.step in scores]
    return max(saved, key=lambda c: scores[c.step], default=None)


def best_valid_gold(folder: Path, evaluations: Sequence[Metrics]) -> checkpoint.Checkpoint | None:
    """The best checkpoint among undamaged ones; damaged ones are renamed."""
    while (found := best_gold(folder, evaluations)) is not None and checkpoint.find_fault(found.path):
        checkpoint.set_aside(found)
    return found


def roll_back(run: RunFolder, step: int) -> int:
    """Restore a run's folder to the checkpoint of a step: later data moves to `*.abandoned`. Returns the number of
    abandoned steps.

    Safe to repeat: until it is done, `run.json` names the step.
    """
    run.update_manifest(**{PENDING: step})
    for later in checkpoint.all_checkpoints(run.path / "checkpoints"):
        if later.step > step:
            checkpoint.set_aside(later, is_whole=True)
    gone = run.move_aside(step)
    run.update_manifest(**{PENDING: None})
    return gone


def finish_roll_back(run: RunFolder) -> None:
    """Finish a roll-back during which the run died."""
    if (step := run.manifest().get(PENDING)) is not None:
        roll_back(run, step)
