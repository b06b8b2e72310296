"""The program from Python: `load_recipe`, `train`, `evaluate`, `verify`. What is not named here may move.

    recipe = load_recipe("my.yaml", ["train.steps=20"])
    summary = train(recipe, base="folder/of/the/recipe")
    verify(["so \\\\boxed{4}"], [{"answer": "4"}], {"math": {}})[0].outcome     # "right"

Everything runs in this process and on one device; mistakes are raised as `grpo_cli.errors.UserError`. torch is imported by
`train` and `evaluate` when they are called, not with this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import DataError, Mistake

if TYPE_CHECKING:
    from grpo_cli.measure.evaluation import Evaluation
    from grpo_cli.recipe.sections.recipe import Recipe
    from grpo_verifiers import Outcome, Verdict

__all__ = ["ScoredCompletion", "evaluate", "load_recipe", "train", "verify"]


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """One completion: every verifier's verdict, the outcome of the primary, and the reward (None: no verdict)."""

    verdicts: Mapping[str, Verdict]
    outcome: Outcome
    reward: float | None


def load_recipe(source: str | Path, sets: Sequence[str] = ()) -> Recipe:
    """The recipe of a path or a shipped name, with `KEY=VALUE` overrides.

    Raises:
        RecipeError: every mistake in it, each with its place.
    """
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.resilience.checkpoint import pinned

    return pinned(load(source, sets))


def train(
    recipe: Recipe | str | Path,
    sets: Sequence[str] = (),
    *,
    base: str | Path | None = None,
    name: str = "api",
    display: str = "none",
) -> dict[str, Any]:
    """Train as `grpo train` does; the object that `grpo train --json` prints (its `run` is the run's folder).

    Args:
        recipe: a loaded recipe, or a path or shipped name to load with `sets`.
        base: folder from which a loaded recipe's files count; by default this one, or the folder of the recipe's file.
        name: stands in the run's name where the recipe gives none.
        display: `none`, `plain`, `live` or `json`.

    Raises:
        UserError: what the recipe, its rows or this machine do not allow.
    """
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.jobs.train.result import summary

    checked, folder = _checked(recipe, sets, base)
    return summary(Job(checked, label=name, base=folder, display=make_display(display)).run(None))


def evaluate(
    checkpoint: str | Path, recipe: str | None = None, sets: Sequence[str] = (), *, seed: int = 0
) -> Evaluation:
    """Measure a run, a checkpoint or a model on the held-out rows, as `grpo eval` does.

    Raises:
        UserError: it cannot be opened or measured.
    """
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.evaluate import measure_model
    from grpo_cli.resilience.model_source import find_model_source

    shown = make_display("none")
    try:
        return measure_model(find_model_source(str(checkpoint), recipe, list(sets)), shown, seed)
    finally:
        shown.close()


def verify(
    completions: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    verifiers: Mapping[str, Mapping[str, Any]] | str | Path,
    prompts: Sequence[str] | None = None,
) -> list[ScoredCompletion]:
    """Score completions against the rows of the same places.

    Args:
        verifiers: `{kind: options}`, or a recipe (path or shipped name) whose `verify` and `combine` are meant.

    Raises:
        DataError: a row that its verifier cannot use, by its place in `rows`.
        UserError: unknown kinds or options, or a verifier that cannot run here.
    """
    from grpo_cli.reward.plan import ScoringEntry, ScoringPlan, from_recipe
    from grpo_verifiers.combine import RewardTerm, combine, judges_of, outcome
    from grpo_verifiers.kinds.environment import recorded
    from grpo_verifiers.verdict import Outcome
    from grpo_verifiers.verifier import BadGold, Sample

    if not len(completions) == len(rows) == len(prompts or rows):
        raise ValueError(f"{len(completions)} completions, {len(rows)} rows, {len(prompts or rows)} prompts")
    if isinstance(verifiers, str | Path):
        plan = from_recipe(str(verifiers))
    else:
        terms = {name: RewardTerm(primary=n == 0) for n, name in enumerate(verifiers)}
        plan = ScoringPlan(
            {name: ScoringEntry(name, dict(options), terms[name]) for name, options in verifiers.items()}, ""
        )
    started = plan.start()
    try:
        held: list[dict[str, Verdict]] = [{} for _ in rows]
        for name, verifier in started.items():
            indices = [i for i, row in enumerate(rows) if name in judges_of(row, plan.terms, plan.rule)]
            samples, mistakes = [], []
            for i in indices:
                try:
                    gold = verifier.compile(rows[i])
                except BadGold as err:
                    mistakes.append(Mistake(f"rows[{i}]", f"verifier `{name}`: {err}"))
                    continue
                prompt = prompts[i] if prompts else ""
                samples.append(Sample(completions[i], gold, prompt, played=recorded(rows[i], name)))
            if mistakes:
                raise DataError(mistakes)
            for i, verdict in zip(indices, verifier.judge(samples) if samples else [], strict=True):
                held[i][name] = verdict
    finally:
        for verifier in started.values():
            verifier.close()
    return [
        ScoredCompletion(one, outcome(one, plan.terms) or Outcome.ERROR, combine(one, plan.terms, None, plan.rule))
        for one in held
    ]


def _checked(recipe: Recipe | str | Path, sets: Sequence[str], base: str | Path | None) -> tuple[Recipe, Path]:
    from grpo_cli.recipe.reading.source import folder_of

    if isinstance(recipe, str | Path):
        return load_recipe(recipe, sets), Path(base) if base else folder_of(str(recipe))
    if sets:
        raise ValueError("`sets` belong to a recipe that is loaded here: give them to `load_recipe`")
    return recipe, Path(base) if base else Path()
