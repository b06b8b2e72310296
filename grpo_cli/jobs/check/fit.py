"""Whether the run fits the cards that were asked about, as a check's answer."""

from __future__ import annotations

from grpo_cli.errors import Exit, UsageError
from grpo_cli.jobs.check.findings import CheckFinding, Level
from grpo_cli.jobs.check.lengths import PromptLengths
from grpo_cli.policy.loading.sizes import ModelSizes
from grpo_cli.recipe.arithmetic import BatchPlan
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing.fit import CardQuestion, fit, lengths_of, unfit

LEVELS = {
    "fits": Level.OK,
    "without graphs": Level.OK,
    "tight": Level.NOTE,
    "does not fit": Level.WARN,
}


def check_fit(
    recipe: Recipe,
    sizes: ModelSizes | None,
    plan: BatchPlan,
    lengths: PromptLengths | None,
    ask: CardQuestion,
    held_out: int,
) -> CheckFinding:
    """The answer for these cards; `held_out` rows are measured in each evaluation."""
    why = "no `config.json` of this model on this disk" if sizes is None else unfit(recipe, sizes)
    if why is not None or sizes is None:
        return CheckFinding("fit", Level.UNKNOWN, f"unknown: {why}")
    counts = lengths.counts if lengths is not None else []
    try:
        found = fit(recipe, sizes, plan, lengths_of(counts, recipe.sample.max_tokens), ask, held_out)
    except UsageError as err:
        return CheckFinding("fit", Level.FAIL, str(err), hint=err.hint, code=Exit.USAGE)
    lines = found.lines() + ([] if counts else ["the tokens of prompts are unknown here and not in the sum"])
    level = LEVELS[found.answer]
    return CheckFinding("fit", level, found.message(), tuple(lines), found.as_json(), found.hint())
