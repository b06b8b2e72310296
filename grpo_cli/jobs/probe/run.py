"""`grpo probe`: the policy as training would start it, warm-up included, sampled on training rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from grpo_cli.display.protocol import Display
from grpo_cli.errors import SetupError
from grpo_cli.jobs.workplace import JudgedRows, Workplace, open_start
from grpo_cli.measure.probe import ProbeRun, ProbeSize, sample_probe
from grpo_cli.measure.probe_result import is_noisy
from grpo_cli.policy.loading.adapter import base_of
from grpo_cli.policy.loading.sizes import full_sizes
from grpo_cli.policy.model import device_name
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing.cards import card_of
from grpo_cli.sizing.duration import StepCost
from grpo_cli.sizing.fit import CardQuestion, Fit, cards_of, fit, lengths_of, unfit
from grpo_cli.sizing.work import Work
from grpo_cli.text import Json

MOST_PROMPTS = 256
"""Prompts whose tokens are counted for the sum."""


@dataclass(frozen=True)
class Probed:
    """What was found, and whether the run fits the cards that were asked about; `unsaid` is why nothing is said of that."""

    run: ProbeRun
    fit: Fit | None = None
    unsaid: str | None = None

    def asked_json(self) -> dict[str, Json]:
        """What `--json` has more where cards were asked about; `fit` is null where nothing can be said."""
        if self.fit is None and self.unsaid is None:
            return {}
        return {"fit": None if self.fit is None else self.fit.as_json()}


def run_probe(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    size: ProbeSize,
    seed: int | None,
    ask: CardQuestion | None,
    first: JudgedRows | None = None,
) -> Probed:
    """`probe_for_cards` where some were asked about, else `probe_recipe`; `first`: the training rows, if they are open already."""
    if ask is None:
        return Probed(probe_recipe(recipe, base, display, size, seed, first))
    return probe_for_cards(recipe, base, display, size, ask, seed, first)


def probe_recipe(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    size: ProbeSize,
    seed: int | None = None,
    first: JudgedRows | None = None,
) -> ProbeRun:
    """Load rows, golds and model, warm it up where the recipe says so, and sample.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """
    with open_start(recipe, base, display, splits=["train"], first=first) as place:
        return _sampled(place, size, seed)


def probe_for_cards(
    recipe: Recipe,
    base: Path | None,
    display: Display,
    size: ProbeSize,
    ask: CardQuestion,
    seed: int | None = None,
    first: JudgedRows | None = None,
) -> Probed:
    """The same, and whether the run fits these cards, by the lengths that were drawn; where one of them is here, by a step that
    is measured.

    Raises:
        RecipeError, DataError, SetupError: as `probe_recipe`.
        UsageError: the recipe launches another number of cards.
    """
    cards_of(recipe, ask.cards)
    with open_start(recipe, base, display, splits=["train"], trains=True, first=first) as place:
        return _asked(place, _sampled(place, size, seed), ask)


def _sampled(place: Workplace, size: ProbeSize, seed: int | None) -> ProbeRun:
    return sample_probe(
        place.recipe,
        place.train,
        place.judge,
        place.engine,
        place.policy,
        size,
        seed=seed,
        base=place.base,
        is_noisy=is_noisy(place.recipe),
        device=device_name(place.policy.device),
        on_progress=lambda n, total: place.display.progress("probe", n, total),
    )


def _asked(place: Workplace, found: ProbeRun, ask: CardQuestion) -> Probed:
    recipe, drawn = place.recipe, found.probe
    sizes = full_sizes(base_of(recipe.model, 0).model)
    why = "the sizes of this model are not known here" if sizes is None else unfit(recipe, sizes)
    if sizes is None or why is not None:
        return Probed(found, unsaid=why)
    rows = place.train.rows
    chosen = Random(recipe.train.seed).sample(rows, min(MOST_PROMPTS, len(rows)))
    counts = [len(place.policy.encode(row)) for row in chosen]
    longest = max((record.tokens for record in found.records), default=recipe.sample.max_tokens)
    lengths = lengths_of(counts, recipe.sample.max_tokens, drawn.mean_tokens, longest)
    here = device_name(place.policy.device)
    measure = partial(_measured, place) if card_of(here) == ask.cards.card else None
    return Probed(found, fit(recipe, sizes, plan(recipe, len(rows)), lengths, ask, measure=measure))


def _measured(place: Workplace, work: Work) -> StepCost | None:
    from grpo_cli.jobs.probe.step_cost import measure_step, why_unmeasured

    why = why_unmeasured(place, work)
    if why is not None:
        place.display.note("info", f"no step is measured: {why}")
        return None
    try:
        return measure_step(place, work)
    except SetupError as err:  # the samples are there, and the sum says as much
        place.display.note("warn", str(err))
        return None
