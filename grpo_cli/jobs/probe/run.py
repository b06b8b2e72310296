"""`grpo probe`: the policy as training would start it, warm-up included, sampled on training rows."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.display.protocol import Display
from grpo_cli.jobs.workplace import open_start
from grpo_cli.measure.probe import ProbeRun, ProbeSize, sample_probe
from grpo_cli.policy.model import device_name
from grpo_cli.recipe.sections.recipe import Recipe


def probe_recipe(
    recipe: Recipe, base: Path | None, display: Display, size: ProbeSize, seed: int | None = None
) -> ProbeRun:
    """Load rows, golds and model, warm it up where the recipe says so, and sample.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """
    with open_start(recipe, base, display, splits=["train"]) as place:
        return sample_probe(
            recipe,
            place.train,
            place.judge,
            place.engine,
            place.policy,
            size,
            seed=seed,
            device=device_name(place.policy.device),
            on_progress=lambda n, total: display.progress("probe", n, total),
        )
