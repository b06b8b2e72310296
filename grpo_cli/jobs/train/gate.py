"""What the model that training would start from is asked before the first step: the recipe's `gate`, where a run that may not
start ends, and how far its scorer is from itself, with `train.std_floor: noise`."""

from __future__ import annotations

from grpo_cli.errors import Exit, SetupError
from grpo_cli.jobs.train.ending import outcome_of
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.jobs.workplace import Workplace
from grpo_cli.measure.gate import bars, probe_line, probe_object
from grpo_cli.measure.probe import ProbeRun, ProbeSize, sample_probe
from grpo_cli.measure.probe_result import ANSWERS, ScorerNoise
from grpo_cli.recipe.sections.recipe import Gate, Recipe
from grpo_cli.rollout.engine import Engine

LEAST = 1e-6
"""The floor of a scorer without noise: the default of `train.std_floor`."""
NOISE = "noise"
"""In `run.json`: what `std_floor: noise` came to."""
SAMPLES = 4
"""Of each prompt whose answers are scored twice."""


def refused_by(gate: Gate, running: RunContext, place: Workplace, engine: Engine) -> TrainResult | None:
    """The outcome of a run that may not start, else None; the probe stands in the run's folder either way."""
    display, run = running.display, running.folder
    found = _probed(running, place, engine, ProbeSize.of(gate))
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


def with_floor(running: RunContext, place: Workplace, engine: Engine, *, resumes: bool) -> Recipe:
    """The recipe with a number for `train.std_floor: noise`; one that `resumes` goes on with the number it began with.

    Raises:
        SetupError: no answer was scored twice.
    """
    recipe, ranks, run = running.recipe, running.ranks, running.folder
    if recipe.train.std_floor != "noise":
        return recipe
    noted = ranks.agreed(run.manifest().get(NOISE) if resumes and ranks.is_main else None)
    if noted is None:
        noise = _probed(running, place, engine, ProbeSize(ANSWERS // SAMPLES, SAMPLES), is_noisy=True).probe.noise
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


def _probed(
    running: RunContext, place: Workplace, engine: Engine, size: ProbeSize, *, is_noisy: bool = False
) -> ProbeRun:
    display = running.display
    with running.stopwatch.timed("probe"):
        return sample_probe(
            place.recipe,
            place.train,
            place.judge,
            engine,
            place.policy,
            size,
            shared=running.ranks,
            base=place.base,
            is_noisy=is_noisy,
            on_progress=lambda done, total: display.progress("probe", done, total),
        )
