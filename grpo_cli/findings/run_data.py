"""The data of a report: the files of one run, and arms, which are runs that differ only in their seed.

How this works: `collect` reads metrics, recipe and manifest of a run and finds what is wrong in it. `arms_of` puts runs
together whose recipes agree and labels each arm by the keys in which they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import DataError
from grpo_cli.findings.alarms import alarms_over_run
from grpo_cli.findings.finding import Finding
from grpo_cli.findings.health import over_run
from grpo_cli.findings.trends import trends
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_evaluation, is_step
from grpo_cli.run.info import Metrics, RunInfo, info_of
from grpo_cli.run.typed import recipe_of_text
from grpo_cli.text import Json

NOT_AN_ARM = ("train.seed", "run.", "eval.every", "eval.between", "launch.", "stop.", "gate")
"""Keys that may differ inside one arm."""


@dataclass(frozen=True)
class RunData:
    """One run: its step lines and evaluation lines in order, and what its recipe and manifest hold."""

    folder: RunFolder
    info: RunInfo
    manifest: Metrics
    recipe: Mapping[str, Any]
    steps: tuple[Metrics, ...]
    evaluations: tuple[Metrics, ...]
    findings: tuple[Finding, ...]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    def curve(self, key: str) -> list[float | None]:
        """A metric over the steps."""
        return [m.get(key) for m in self.steps]

    @property
    def step_numbers(self) -> list[int]:
        """The steps."""
        return [int(m.get("step") or 0) for m in self.steps]

    def names(self, prefix: str, suffix: str) -> list[str]:
        """The middle parts of keys such as `reward/NAME/mean`, in the recipe's order."""
        keys = (key for metrics in (*self.steps[:1], *self.steps[-1:]) for key in metrics)
        middles = (k[len(prefix) : len(k) - len(suffix)] for k in keys if k.startswith(prefix) and k.endswith(suffix))
        return list(dict.fromkeys(middle for middle in middles if "/" not in middle))


@dataclass(frozen=True)
class Arm:
    """Runs of one recipe with different seeds; a placebo is the arm that should not learn."""

    label: str
    runs: tuple[RunData, ...]
    is_placebo: bool = False


def collect(folder: RunFolder) -> RunData:
    """The data of one run, without its samples.

    Raises:
        DataError: nothing was recorded yet, or a line is broken.
    """
    lines = folder.metrics()
    steps = tuple(m for m in lines if is_step(m))
    if not lines:
        reason = folder.manifest().get("reason")
        hint = f"it stopped: {reason}" if reason else "`grpo watch` shows a run that is starting"
        raise DataError(f"`{folder.path}` has no metrics yet", hint=hint)
    evaluations = tuple(m for m in lines if is_evaluation(m))
    canaries = [m for m in lines if "canary/pass@1" in m]
    recipe = flat_recipe(folder.recipe_text)
    found = [*over_run(steps), *trends(steps), *alarms_over_run(steps, evaluations, recipe, canaries)]
    return RunData(
        folder=folder,
        info=info_of(folder),
        manifest=folder.manifest(),
        recipe=recipe,
        steps=steps,
        evaluations=evaluations,
        findings=tuple(sorted(found, key=lambda finding: finding.step)),
    )


def arms_of(runs: Sequence[RunData], placebos: Sequence[RunData] = ()) -> list[Arm]:
    """Runs whose recipes agree, but for the seed and the folder, share an arm; labels name what differs.

    Placebos are those named so, and runs with a `train.control`.
    """
    groups: dict[tuple[bool, str], list[RunData]] = {}
    for run in [*runs, *placebos]:
        key = repr(sorted((k, repr(v)) for k, v in run.recipe.items() if not k.startswith(NOT_AN_ARM)))
        is_placebo = run in placebos or run.recipe.get("train.control") is not None
        groups.setdefault((is_placebo, key), []).append(run)
    firsts = [members[0] for (is_placebo, _), members in groups.items() if not is_placebo]
    varying = differing_keys([run.recipe for run in firsts])
    arms = []
    for (is_placebo, _), members in groups.items():
        control = members[0].recipe.get("train.control")
        label = f"placebo: {control}" if control else "placebo"  # `placebo: random`
        label = label if is_placebo else label_of(members[0], varying)
        arms.append(Arm(label, tuple(members), is_placebo))
    return arms


def label_of(run: RunData, varying: Sequence[str]) -> str:
    """`kl.beta=0.01, lr=1e-6`; a single arm is labelled by its recipe's name or the run's."""
    if not varying:
        return run.info.recipe.rsplit("/", 1)[-1] or run.name
    return ", ".join(f"{key.removeprefix('train.')}={run.recipe.get(key)}" for key in varying[:3])


def differing_keys(recipes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not the same in all recipes, apart from the folder and seed of a run."""
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    own = [key for key in keys if not key.startswith(NOT_AN_ARM)]
    varying = [key for key in own if len({repr(recipe.get(key)) for recipe in recipes}) > 1]
    # a key that only some recipes have may come from a newer schema: use it last to label an arm
    return sorted(varying, key=lambda key: not all(key in recipe for recipe in recipes))


def flat_recipe(text: str) -> dict[str, Any]:
    """Values of a resolved recipe by dotted key, including keys added by later versions; empty if it cannot be read."""
    from grpo_cli.recipe.reading.dump import filled_up

    try:
        return dict(_leaves(filled_up(recipe_of_text(text)), ""))
    except ValueError:
        return {}


def _leaves(value: Json, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def diff_from_defaults(run: RunData) -> list[tuple[str, Any, Any]] | None:
    """Keys that were set to something else than their default, as (key, default, value); None where that is unknown.
    The value of a key that names a secret is `****`."""
    from grpo_cli.errors import UserError, names_secret
    from grpo_cli.recipe.reading.dump import to_yaml
    from grpo_cli.recipe.sections.recipe import Recipe

    recipe = run.recipe
    model = {"path": recipe.get("model.path")}
    data = {name: recipe.get(f"data.{name}") for name in ("train", "prompt", "answer")}
    names = dict.fromkeys(key.split(".")[1] for key in recipe if key.startswith("verify."))
    verify = {name: {"kind": recipe.get(f"verify.{name}.kind", name)} for name in names}
    train = {"steps": recipe.get("train.steps"), "algorithm": recipe.get("train.algorithm", "default")}
    try:
        plain = Recipe.model_validate({"grpo": 1, "model": model, "data": data, "verify": verify, "train": train})
        defaults = flat_recipe(to_yaml(plain))
    except (UserError, ValueError):  # an older recipe, or one whose verifiers need options
        return None
    return [
        (key, defaults.get(key), "****" if names_secret(key.split(".")) else value)
        for key, value in recipe.items()
        if repr(defaults.get(key)) != repr(value)
    ]
