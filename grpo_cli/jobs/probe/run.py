"""`grpo probe`: the policy as training would start it, warm-up included, sampled on training rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.display.protocol import Display
from grpo_cli.jobs.workplace import open_workplace
from grpo_cli.measure.probe import Probed, ProbeSize, sample_probe
from grpo_cli.policy.model import device_name, load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Recipe

if TYPE_CHECKING:
    import torch

    from grpo_cli.policy.model import Accept


def probe_recipe(
    recipe: Recipe, base: Path | None, display: Display, size: ProbeSize, seed: int | None = None
) -> Probed:
    """Load rows, golds and model, warm it up where the recipe says so, and sample.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """

    def load(device: torch.device, accept: Accept) -> Policy:
        # one that is warmed up is loaded as for training, so that the cached weights fit and are the same
        trains = bool(recipe.warmup)
        return load_model(recipe.model, device=device, seed=recipe.train.seed, training=trains, accept=accept)

    with open_workplace(recipe, base, display, splits=["train"], load=load) as place:
        place.warm_up()
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
