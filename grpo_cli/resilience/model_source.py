"""Where a model comes from (a checkpoint, a run, or any model by name), opened for measuring or exporting, with the recipe that goes with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.load import find, load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import RECIPE, STATE
from grpo_cli.resilience.starts import newest_checkpoint
from grpo_cli.run.find import LAST, find_run, list_runs
from grpo_verifiers.names import nearest

if TYPE_CHECKING:
    import torch

    from grpo_cli.policy.model import Accept


RUNS = "runs"


@dataclass(frozen=True)
class ModelSource:
    """Where a model lies, the recipe that measures it, and the folder its data paths count from."""

    name: str
    recipe: Recipe
    base: Path | None
    folder: Path | None


def find_model_source(named: str, recipe: str | None, sets: Sequence[str]) -> ModelSource:
    """What `named` means: a checkpoint folder, a run (its folder, its name under `runs/`, or `last`; its newest whole checkpoint
    is taken), or a model by name.

    Raises:
        RecipeError: no recipe in the folder and none given.
        DataError: a run without a whole checkpoint.
    """
    folder: Path | None = Path(named).expanduser()
    assert folder is not None
    if not folder.exists() and (named == LAST or (Path(RUNS) / named / "run.json").is_file()):
        folder = find_run(named, RUNS).path
    if (folder / "run.json").is_file():
        folder = newest_checkpoint(folder).path
    if not folder.is_dir():
        folder = None
    if recipe is not None:
        return ModelSource(named, load(recipe, sets), find(recipe).parent, folder)
    if folder is None or not (folder / RECIPE).is_file():
        near = nearest(named, [run.name for run in list_runs(Path(RUNS))], 0.6) if folder is None else None
        hint = f"did you mean the run `{near}`?" if near else "give one with `--recipe FILE`"
        raise RecipeError(f"`{named}` holds no recipe", hint=hint)
    base = None
    if (folder / STATE).is_file():
        base = json.loads((folder / STATE).read_text()).get("base")
    return ModelSource(named, load(str(folder / RECIPE), sets), Path(base) if base else None, folder)


def open_model(source: ModelSource, device: torch.device, accept: Accept | None = None) -> Policy:
    """The weights of a source: a full folder, an adapter on the recipe's own base, or a model by name.

    Raises:
        SetupError: it cannot be loaded.
    """
    seed, spec = source.recipe.train.seed, source.recipe.model
    if source.folder is None:
        named = spec.model_copy(update={"path": source.name, "lora": None})
        if (
            source.name != spec.path
        ):  # another model: what names files of the recipe's own does not hold for it
            named = named.model_copy(
                update={"gguf_file": None, "revision": None, "tokenizer": None, "base": None}
            )
        return load_model(named, device=device, seed=seed, training=False, accept=accept)
    if not any((source.folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise SetupError(f"`{source.folder}` holds no model", hint="name a folder with `config.json`")
    here = spec.model_copy(
        update={
            "path": str(source.folder),
            "lora": None,
            "gguf_file": None,
            "revision": None,
            "tokenizer": None,
        }
    )
    return load_model(here, device=device, seed=seed, training=False, accept=accept)
