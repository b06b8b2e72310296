"""Where a model comes from (a checkpoint, a run, or any model by name), opened for measuring or exporting, with the
recipe that goes with it.

Finding it imports no torch, and a recipe only where there is one: a wrong name is refused before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_cli.resilience.checkpoint import RECIPE, STATE, newest_checkpoint, read_state
from grpo_cli.run.find import LAST, find_run, list_runs
from grpo_cli.text import path_of
from grpo_verifiers.names import nearest

if TYPE_CHECKING:
    import torch

    from grpo_cli.policy.model import Accept
    from grpo_cli.policy.policy import Policy
    from grpo_cli.recipe.sections.recipe import Model, Recipe

RUNS = "runs"


@dataclass(frozen=True)
class ModelSource:
    """The folder of a model, the recipe that measures it, and the folder its data paths count from."""

    name: str
    recipe: Recipe
    base: Path | None
    folder: Path | None


def find_model_source(named: str, recipe: str | None, sets: Sequence[str]) -> ModelSource:
    """What `named` means: a checkpoint folder, a run (its folder, its name under `runs/`, or `last`; its newest whole
    checkpoint is taken), or a model by name.

    Raises:
        RecipeError: no recipe in the folder and none given.
        SetupError: a folder without a model.
        DataError: a run without a whole checkpoint; a checkpoint whose state cannot be read; neither a run nor a model
        that is here, and nearly a run's name.
    """
    folder: Path | None = path_of(named)
    assert folder is not None
    # a folder of that name goes before a run of that name
    if not folder.exists() and (named == LAST or (Path(RUNS) / named / "run.json").is_file()):
        folder = find_run(named, RUNS).path
    if (folder / "run.json").is_file():
        folder = newest_checkpoint(folder).path
    if not folder.is_dir():
        folder = None
        if near := nearest(named, [run.name for run in list_runs(Path(RUNS))], 0.6):
            from grpo_cli.policy.loading.files import model_files
            from grpo_cli.recipe.sections.inputs import Model

            # a folder, a file, the hub's cache or the program itself may hold a model of this name
            is_here = named.startswith("builtin:") or path_of(named).exists()
            if not is_here and model_files(Model(path=named)).path("config.json") is None:
                raise DataError(f"no run and no model `{named}` is here", hint=f"did you mean the run `{near}`?")
    elif not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise SetupError(f"`{folder}` holds no model", hint="name a folder with `config.json`, or a run")
    if recipe is None and (folder is None or not (folder / RECIPE).is_file()):
        raise RecipeError(f"`{named}` holds no recipe", hint="give one with `--recipe FILE`")
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.recipe.reading.source import folder_of

    if recipe is not None or folder is None:
        assert recipe is not None
        return ModelSource(named, load(recipe, sets), folder_of(recipe), folder)
    where = folder_of(str(folder / RECIPE))
    if where == folder and (folder / STATE).is_file() and (base := read_state(folder).get("base")):
        where = Path(base)  # a checkpoint by itself, of a version that noted where its run began
    return ModelSource(named, load(str(folder / RECIPE), sets, base=where, of_run=True), where, folder)


def find_model_to_talk(named: str, recipe: str | None, sets: Sequence[str]) -> ModelSource | None:
    """The same for `grpo chat`, which needs no recipe: None for a model without one.

    Raises:
        RecipeError, DataError: as `find_model_source`.
    """
    try:
        return find_model_source(named, recipe, sets)
    except RecipeError:
        if recipe is not None or sets:
            raise
        return None


def model_of(source: ModelSource) -> Model:
    """The model to load for a source: a full folder, an adapter on the recipe's base, or a model by name."""
    spec = source.recipe.model
    own: dict[str, None] = {"lora": None}
    if source.folder is not None:
        # the folder has its own weights, tokenizer and configuration: the recipe's settings for the initial model do
        # not apply
        own |= dict.fromkeys(("gguf_file", "revision", "tokenizer"))
    elif source.name != spec.path:
        # another model: what names files of the recipe's own does not hold for it
        own |= dict.fromkeys(("gguf_file", "revision", "tokenizer", "base"))
    return spec.model_copy(update={"path": str(source.folder or source.name), **own})


def open_model(source: ModelSource, device: torch.device, accept: Accept | None = None) -> Policy:
    """The weights of a source.

    Raises:
        SetupError: they cannot be loaded.
    """
    from grpo_cli.policy.model import load_model

    seed = source.recipe.train.seed
    pixels = source.recipe.data.image_pixels
    return load_model(model_of(source), device=device, seed=seed, training=False, accept=accept, pixels=pixels)
