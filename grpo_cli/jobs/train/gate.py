"""The recipe's `gate`: the model that training would start from is probed, and a run that may not start ends here."""

from __future__ import annotations

from grpo_cli.errors import Exit
from grpo_cli.jobs.train.ending import outcome_of
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.workplace import Workplace
from grpo_cli.measure.gate import bars, probe_line, probe_object
from grpo_cli.measure.probe import ProbeSize, sample_probe
from grpo_cli.recipe.sections.recipe import Gate
from grpo_cli.rollout.engine import Engine


def refused_by(gate: Gate, running: RunContext, place: Workplace, engine: Engine) -> TrainResult | None:
    """The outcome of a run that may not start, else None; the probe stands in the run's folder either way."""
    display, run = running.display, running.folder
    with running.stopwatch.timed("probe"):
        found = sample_probe(
            place.recipe,
            place.train,
            place.judge,
            engine,
            place.policy,
            ProbeSize.of(gate),
            shared=running.ranks,
            on_progress=lambda done, total: display.progress("probe", done, total),
        )
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
