"""A checkpoint written as a plain Hugging Face folder, and such a folder sent to the hub.

`write_folder` loads the weights, merges adapters, and saves model, tokenizer and recipe, with a card (`card_of`) that names base
model, verifiers and the held-out curve of the run; with `gguf` a `.gguf` file and a Modelfile too. `push_folder` uploads it to a
repository of the hub.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from grpo_cli.data.sources import leave_hub
from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.jobs.export.gguf import check_gguf, modelfile, write_gguf
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.model_source import ModelSource, open_model
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_evaluation
from grpo_cli.run.info import Metrics
from grpo_cli.run.lines import open_as
from grpo_cli.run.reading import spread
from grpo_cli.text import DASH, real_path, score, visible

# The model card of an exported folder: what it was trained from and how, its held-out curve with intervals,
# the recipe.

MOST_POINTS = 25
"""Evaluations in the table: the first, the last, and some between."""


def card_of(recipe: Recipe, checkpoint: Path | None) -> str:
    """The text of `README.md`; if the checkpoint belongs to no run, it states that nothing was measured."""
    run: RunFolder | None = None
    step: int | None = None
    if checkpoint is not None:  # `RUN/checkpoints/step-N`
        whole, number = real_path(checkpoint).parents[1], real_path(checkpoint).name.removeprefix("step-")
        run = RunFolder(whole) if (whole / "run.json").is_file() else None
        step = int(number) if number.isdigit() else None
    # the hub reads this field: name the base only if it is a repository
    path = recipe.model.path
    is_id = path.count("/") == 1 and not path.startswith((".", "/", "~")) and not Path(path).exists()
    base = [f"base_model: {path}"] if is_id and visible(path).isascii() else []
    task = "image-text-to-text" if recipe.model.kind == "vision" else "text-generation"
    lines = [
        *("---", f"pipeline_tag: {task}", *base, "tags: [grpo, rlvr]", "---", ""),
        f"# {visible(run.name if run else 'A model trained with grpo')}",
        "",
    ]
    lines.append(
        f"`{visible(recipe.model.path)}`, trained by `{recipe.train.method}`"
        f"{f' (algorithm `{recipe.train.algorithm}`)' if recipe.train.method == 'rl' else ''}"
        f" for {step if step is not None else recipe.train.steps} steps with seed {recipe.train.seed}"
        f"{', low-rank weights merged' if recipe.model.lora else ''}."
    )
    judges = ", ".join(
        f"`{visible(name)}` ({spec.kind}, weight {spec.weight:g}{', primary' if spec.primary else ''})"
        for name, spec in recipe.verify.items()
    )
    lines.append(f"What counts as right: {judges}.")
    lines += ["", "## Held-out score", "", *_curve(run, step), "", "## Recipe", "", "```yaml"]
    return "\n".join([*lines, to_yaml(recipe).rstrip().replace("```", "'''"), "```", ""])


def _curve(run: RunFolder | None, step: int | None) -> list[str]:
    measured: list[Metrics] = [] if run is None else [m for m in run.metrics() if is_evaluation(m)]
    measured = [m for m in measured if step is None or int(m.get("step") or 0) <= step]
    if not measured:
        return ["Not measured."]
    rows = [
        f"| {m.get('step')} | {score(m.get('eval/pass@1'))} | {_ends(m, 'eval/pass@1')} | {score(m.get('eval/greedy'))} "
        f"| {_ends(m, 'eval/greedy')} | {m.get('eval/n', DASH)} |"
        for m in (measured[i] for i in spread(range(len(measured)), MOST_POINTS))
    ]
    note = "Sampled pass@1 and greedy accuracy on rows that were not trained on; intervals are 95 %, over prompts."
    return ["| step | pass@1 | 95 % | greedy | 95 % | prompts |", "| --- " * 6 + "|", *rows, "", note]


def _ends(metrics: Metrics, key: str) -> str:
    low, high = metrics.get(f"{key}/low"), metrics.get(f"{key}/high")
    return DASH if low is None or high is None else f"{score(low)} to {score(high)}"


HUB_HINT = "is `hf auth login` done and the hub reachable?"


def write_folder(source: ModelSource, out: Path, gguf: str | None = None) -> Policy:
    """Write the model of a source, LoRA merged into its base, with tokenizer, recipe and model card; return what was written.

    With `gguf`, a precision of `write_gguf`, also `OUT.gguf` for llama.cpp and a `Modelfile` for Ollama.

    Raises:
        SetupError: its weights cannot be loaded, the folder cannot be written, or no GGUF of this model.
    """
    # an adapter goes into its base as it was before it was quantised: merged into 4 bits it would be rounded away
    model = source.recipe.model.model_copy(update={"load_in_4bit": False})
    whole = replace(source, recipe=source.recipe.model_copy(update={"model": model}))
    policy = open_model(whole, torch.device("cpu"))
    if hasattr(policy.model, "peft_config"):
        policy = replace(policy, model=policy.model.merge_and_unload())
    if gguf is not None:
        check_gguf(policy)
    try:
        policy.model.save_pretrained(out)
        policy.tokenizer.save_pretrained(out)
        if policy.vision is not None:
            policy.vision.save(out)
        # remove addresses, which may be secret, before uploading
        recipe = source.recipe.model_copy(update={"run": source.recipe.run.model_copy(update={"webhook": None})})
        (out / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
        (out / "README.md").write_text(card_of(source.recipe, source.folder), encoding="utf-8")
        open_as(out / "README.md", out)
        if gguf is not None:
            file = out / f"{real_path(out).name}.gguf"
            write_gguf(policy, file, gguf)
            (out / "Modelfile").write_text(modelfile(policy, source.recipe, file.name), encoding="utf-8")
    except OSError as err:
        raise SetupError(f"cannot write `{out}`: {why_unwritten(err)}") from err
    return policy


def is_there(repository: str) -> bool:
    """Whether the hub has this repository and the user may see it.

    Raises:
        SetupError: the hub cannot be asked.
    """
    if (why := leave_hub()) is not None:
        raise SetupError(f"cannot ask for `{repository}`: {why}", hint=HUB_HINT)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().repo_exists(repository)
    except (HfHubHTTPError, OSError, ValueError) as err:
        raise SetupError(f"cannot ask for `{repository}`: {err}", hint=HUB_HINT) from err


def push_folder(folder: Path, repository: str) -> None:
    """Send an exported folder to a repository of the hub, which is made where it is not there.

    Raises:
        SetupError: the hub does not take it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().create_repo(repository, exist_ok=True)
        HfApi().upload_folder(repo_id=repository, folder_path=folder)
    except (HfHubHTTPError, OSError, ValueError) as err:
        raise SetupError(f"cannot push to `{repository}`: {err}", hint=HUB_HINT) from err
