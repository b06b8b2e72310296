"""Starting from a LoRA folder: find its base model, attach its weights to that base, and check `model.lora` against it.

Every job loads a LoRA folder in the same way, so every job measures base and adapter together.
`base_of` finds the base; `attach_saved` and `attach_shapes` put the adapter on a model with or without weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.loading.failures import numbers_only, quiet_peft
from grpo_cli.recipe.sections.recipe import Lora, Model
from grpo_cli.text import path_of

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM

CONFIG, RECIPE = "adapter_config.json", "recipe.yaml"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MOST_STACKED = 8
"""The longest chain of adapters started from adapters; a longer one is taken for a circle."""


class AdapterBase(NamedTuple):
    """The whole model under an adapter. `seed` is the seed of the adapter's run: a base with random weights is made
    from it."""

    model: Model
    seed: int


def adapter_folder(spec: Model) -> Path | None:
    """The LoRA folder that a model names; None where it names a whole model."""
    folder = path_of(spec.path)
    return folder if (folder / CONFIG).is_file() and not (folder / "config.json").is_file() else None


def base_of(spec: Model, seed: int) -> AdapterBase:
    """The whole model of a recipe: the model itself, or the base of the LoRA folder that it names.

    The base is what `model.base` names, else the model in the recipe in the adapter's folder (a checkpoint has one), else the
    name in its `adapter_config.json`. How it is loaded (`dtype`, `attention`, `load_in_4bit`) is as the recipe has it.

    Raises:
        SetupError: the base is named nowhere, or is not here.
        RecipeError: `model.base` with a whole model.
    """
    if spec.base is not None and adapter_folder(spec) is None:
        raise RecipeError(
            f"`model.base` is that of a LoRA folder, and `{spec.path}` is none",
            place="`model.base`",
            hint="leave it out",
        )
    for _ in range(MOST_STACKED):
        folder = adapter_folder(spec)
        if folder is None:
            return AdapterBase(spec, seed)
        spec, seed = _below(spec, folder, seed)
    raise SetupError(f"`{spec.path}` is an adapter of an adapter, {MOST_STACKED} deep", hint="name `model.base`")


def _below(spec: Model, folder: Path, seed: int) -> tuple[Model, int]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    # this run's recipe decides how the base is loaded, not the adapter's recipe
    kept = {name: getattr(spec, name) for name in ("dtype", "attention", "load_in_4bit", "kind", "freeze_vision")}
    if spec.base is not None:
        return Model(path=spec.base, **kept), seed
    try:
        made_by = YAML(typ="safe").load((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError):
        made_by = None  # an adapter of somebody else's has none
    recipe: dict[str, Any] = made_by if isinstance(made_by, dict) else {}
    named = _config(folder).get("base_model_name_or_path")
    # the recipe goes before peft's own name: it holds the seed that a base with random weights is made from
    found = recipe.get("model")
    if isinstance(found, dict) and _is_here(found.get("path")):
        own = Model.model_validate(found | {"lora": None} | kept)
        train = recipe.get("train")
        return own, int(train.get("seed", seed)) if isinstance(train, dict) else seed
    if isinstance(named, str) and named and _is_here(named):
        return Model(path=named, **kept), seed
    what = f"names `{named}` as its base, which is not here" if named else "does not name its base"
    raise SetupError(f"the adapter in `{folder}` {what}", hint="say where it is: `model: {path: ADAPTER, base: MODEL}`")


def attach_saved(model: CausalLM, folder: Path, *, training: bool) -> CausalLM:
    """The adapter of a folder on its base; frozen where not `training`.

    Raises:
        SetupError: it holds other tensors than an adapter of its configuration on this base has.
    """
    from peft import PeftModel

    with quiet_peft():
        adapted: CausalLM = PeftModel.from_pretrained(model, str(folder), is_trainable=training)
    # peft itself only warns of missing tensors, and keeps a fresh adapter's random values for them
    _refuse_tensors(adapted, folder)
    return adapted


def attach_shapes(model: CausalLM, folder: Path) -> CausalLM:
    """Attach the adapter to a model without weights. The adapter's tensors are compared by name, not read.

    Raises:
        SetupError: as `attach_saved`.
    """
    from peft import PeftConfig, get_peft_model

    with quiet_peft():
        adapted: CausalLM = get_peft_model(model, PeftConfig.from_pretrained(str(folder)))
    _refuse_tensors(adapted, folder)
    return adapted


def _refuse_tensors(adapted: CausalLM, folder: Path) -> None:
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    wanted = {name: tuple(tensor.shape) for name, tensor in state.items()}
    saved = _tensor_shapes(folder)
    # other tensors in the file (embeddings that were saved with the adapter) do no harm
    lacks = sorted(wanted.keys() - saved.keys())
    wrong = lacks or sorted(name for name in saved.keys() - wanted.keys() if "lora_" in name)
    hint = "is it whole, and is this the base it was trained on? `model.base` names another"
    if wrong:
        which = "lacks" if lacks else "has no place on this base for"
        raise SetupError(f"the adapter in `{folder}` {which} {len(wrong)} tensors, first `{wrong[0]}`", hint=hint)
    if other := sorted(name for name, shape in wanted.items() if saved[name] != shape):
        raise SetupError(
            f"the adapter in `{folder}` has {len(other)} tensors of another shape than its `{CONFIG}` and this base ask for,"
            f" first `{other[0]}`: {list(saved[other[0]])}, not {list(wanted[other[0]])}",
            hint=hint,
        )


def refuse_adapter(lora: Lora | None, folder: Path) -> None:
    """Check what can be checked of an adapter without its base.

    Raises:
        SetupError: its configuration cannot be read, or it has no weights.
        RecipeError: `model.lora` describes another adapter than the one that is trained further.
    """
    there = _config(folder)
    if (rank := there.get("r")) is not None and (type(rank) is not int or rank < 1):
        raise SetupError(f"`{folder / CONFIG}`: `r` is {json.dumps(rank)}: it is a rank, a whole number above 0")
    _weights_file(folder)  # for its error
    # the saved adapter is trained further as it is; a `model.lora` with the same settings does not contradict it
    if lora is None:
        return
    wanted: dict[str, Any] = {"r": lora.r, "alpha": lora.alpha or 2 * lora.r, "dropout": lora.dropout}
    found = {"r": there.get("r"), "alpha": there.get("lora_alpha"), "dropout": there.get("lora_dropout", 0.0)}
    if lora.targets != "all-linear":
        wanted["targets"], found["targets"] = sorted(lora.targets), sorted(there.get("target_modules") or [])
    for name, value in wanted.items():
        if value != found[name]:
            raise RecipeError(
                f"the adapter in `{folder}` has `{name}` {found[name]}, and `model.lora` asks for {value}: it goes on as it is",
                place="`model.lora`",
                hint="leave `model.lora` out, or start a new adapter from the base itself",
            )


def saved_rank(spec: Model) -> int | None:
    """The rank of the LoRA folder that a model starts from; None where it is none."""
    folder = adapter_folder(spec)
    rank = _config(folder).get("r") if folder is not None else None
    return None if folder is None else rank if type(rank) is int else 0


def describe(folder: Path, base: AdapterBase) -> str:
    """One sentence for the log: which adapter is trained further, on which model."""
    there = _config(folder)
    return f"training goes on with the adapter in {folder} (rank {there.get('r')}) on {base.model.path}"


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        raise SetupError(f"`{folder / CONFIG}` cannot be read: {err}") from err
    if not isinstance(found, dict):
        raise SetupError(f"`{folder / CONFIG}` holds no configuration")
    return found


def _is_here(name: object) -> bool:
    """Whether a base of this name may be openable: a folder that exists, or what may be a hub id."""
    if not isinstance(name, str) or not name:
        return False
    looks_local = name.startswith(("/", ".", "~")) or name.endswith(".gguf") or name.count("/") > 1
    return not looks_local or path_of(name).exists()


def _weights_file(folder: Path) -> Path:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise SetupError(f"`{folder}` holds no weights of an adapter", hint=f"it needs {' or '.join(WEIGHTS)}")
    return file


def _tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    file = _weights_file(folder)
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    import torch

    # only names and shapes are wanted, but a pickle has no header to read them from
    with numbers_only(file):
        found = torch.load(file, map_location="cpu", weights_only=True)
    return {name: tuple(tensor.shape) for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}
