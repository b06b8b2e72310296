"""The model card of an exported folder: what it was trained from and how, its held-out curve with intervals, the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_evaluation
from grpo_cli.run.info import Metrics
from grpo_cli.text import DASH, score, visible

MOST_POINTS = 25
"""Evaluations in the table: the first, the last, and some between."""


def card_of(recipe: Recipe, checkpoint: Path | None) -> str:
    """The text of `README.md`; without a run beside the checkpoint it says that nothing was measured."""
    run, step = _run_of(checkpoint)
    lines = [*_front(recipe), f"# {visible(run.name if run else 'A model trained with grpo')}", ""]
    lines.append(
        f"`{visible(recipe.model.path)}`, trained by `{recipe.train.method}`"
        f"{f' (algorithm `{recipe.train.algorithm}`)' if recipe.train.method == 'rl' else ''}"
        f" for {step if step is not None else recipe.train.steps} steps with seed {recipe.train.seed}"
        f"{', low-rank weights merged' if recipe.model.lora else ''}."
    )
    lines.append("What counts as right: " + ", ".join(_verifiers(recipe)) + ".")
    lines += ["", "## Held-out score", "", *_curve(run, step), "", "## Recipe", "", "```yaml"]
    return "\n".join([*lines, to_yaml(recipe).rstrip().replace("```", "'''"), "```", ""])


def _front(recipe: Recipe) -> list[str]:
    """What the hub reads: a base is named where it is a repository's id."""
    path = recipe.model.path
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not Path(path).exists()
    base = [f"base_model: {path}"] if is_id and visible(path).isascii() else []
    return ["---", "pipeline_tag: text-generation", *base, "tags: [grpo, rlvr]", "---", ""]


def _verifiers(recipe: Recipe) -> list[str]:
    return [
        f"`{visible(name)}` ({spec.kind}, weight {spec.weight:g}{', primary' if spec.primary else ''})"
        for name, spec in recipe.verify.items()
    ]


def _run_of(checkpoint: Path | None) -> tuple[RunFolder | None, int | None]:
    """The run that a checkpoint `RUN/checkpoints/step-N` lies in, and N."""
    if checkpoint is None:
        return None, None
    folder = checkpoint.resolve()
    run, number = folder.parent.parent, folder.name.removeprefix("step-")
    found = RunFolder(run) if (run / "run.json").is_file() else None
    return found, int(number) if number.isdigit() else None


def _curve(run: RunFolder | None, step: int | None) -> list[str]:
    measured: list[Metrics] = [] if run is None else [m for m in run.metrics() if is_evaluation(m)]
    measured = [m for m in measured if step is None or int(m.get("step") or 0) <= step]
    if not measured:
        return ["Not measured."]
    rows = [
        f"| {m.get('step')} | {score(m.get('eval/pass@1'))} | {_ends(m, 'eval/pass@1')} | {score(m.get('eval/greedy'))} "
        f"| {_ends(m, 'eval/greedy')} | {m.get('eval/n', DASH)} |"
        for m in _spread(measured)
    ]
    note = "Sampled pass@1 and greedy accuracy on rows that were not trained on; intervals are 95 %, over prompts."
    return ["| step | pass@1 | 95 % | greedy | 95 % | prompts |", "| --- " * 6 + "|", *rows, "", note]


def _ends(metrics: Metrics, key: str) -> str:
    low, high = metrics.get(f"{key}/low"), metrics.get(f"{key}/high")
    return DASH if low is None or high is None else f"{score(low)} to {score(high)}"


def _spread(points: Sequence[Metrics]) -> list[Metrics]:
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]
