"""Checks from files and packages whether the model can be loaded, and reads its layers without weights.

For families laid out like Llama, the files alone show the layers for an adapter and whether the engine supports the
model. Other models are created without weights (torch's device `meta`), which takes the seconds of importing torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError, UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.policy.ban import no_plain_head
from grpo_cli.policy.loading.adapter import adapter_folder, attach_shapes, base_of
from grpo_cli.policy.loading.coverage import Coverage, coverage, coverage_of_shapes
from grpo_cli.policy.loading.failures import loading_failures
from grpo_cli.policy.loading.files import BUILT_IN, base_files, model_files
from grpo_cli.policy.loading.inspection import flaws, of_other
from grpo_cli.policy.loading.weights import linear_shapes
from grpo_cli.policy.tiny import TINY_VISION, VISION, sizes
from grpo_cli.recipe.sections.recipe import Model, Recipe

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM

KNOWN = (None, "eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
"""Kinds of `model.attention` that transformers has for every family here."""


def check_model(recipe: Recipe, *, is_full: bool = False) -> Iterator[CheckFinding]:
    """One finding for each obstacle; without obstacles, one for the model and those for its layers. `is_full`: create
    the model without weights even if its files would be enough."""
    is_sound = True
    critic, distil = recipe.train.critic, recipe.distil
    other = critic.model(recipe.model) if critic is not None else None
    teacher = distil.model(recipe.model) if distil is not None else None
    for name, model in (("model", recipe.model), ("critic", other), ("teacher", teacher)):
        for flaw in flaws(model) if model is not None else ():
            is_sound = False
            error = flaw.error()
            if name == "critic" and critic is not None and isinstance(error, SetupError):
                error = of_other("train.critic.from", critic.source, error)
            if name == "teacher" and teacher is not None and isinstance(error, SetupError):
                error = of_other("distil.teacher", teacher.path, error)
            found = failed(name, error)
            yield found if flaw.is_fatal else replace(found, level=Level.WARN)
    if is_sound:
        config = base_files(recipe.model).json("config.json")
        kind = f", of the type `{config.get('model_type')}`" if config else ""
        code = "; the code that comes with it (`auto_map`) is not run" if config and config.get("auto_map") else ""
        if recipe.model.path in BUILT_IN:
            kind = f" ({BUILT_IN[recipe.model.path].licence})"
        said = f"`{recipe.model.path}`{kind} can be loaded, as far as its files show{code}"
        yield CheckFinding("model", Level.OK, said)
        yield from _check_layers(recipe, is_full=is_full)


def _check_layers(recipe: Recipe, *, is_full: bool) -> Iterator[CheckFinding]:
    """One finding for the adapter, where there is one, and one for what cannot be."""
    model, folder = recipe.model, adapter_folder(recipe.model)
    config = _config(model)
    text = (config or {}).get("text_config") or config or {}
    if recipe.sample.ban and text.get("final_logit_softcapping") is not None:
        yield failed("model", no_plain_head())
    is_adapted = model.lora is not None or folder is not None
    kind = recipe.sample.engine_kind.fallback
    needs_graph = kind.is_selective or (recipe.environment is not None and not kind.has_own_seeds)
    needs_graph = needs_graph and model.path != "builtin:tiny"
    # a GGUF file describes its model itself, and the tiny one has none to describe
    is_made = is_full and config is not None and not model.path.startswith("builtin:tiny")
    if not (is_adapted or needs_graph or is_made or model.attention not in KNOWN):
        return
    if config is None:
        name = "adapter" if is_adapted else "engine"
        yield CheckFinding(name, Level.UNKNOWN, "unknown: no `config.json` of this model on this disk")
        return
    try:
        by_files = folder is None and model.attention in KNOWN
        shapes = linear_shapes(model_files(base_of(model, 0).model), config) if by_files else {}
        if model.lora is not None and shapes:
            targets = None if model.lora.targets == "all-linear" else model.lora.targets
            yield _covered(coverage_of_shapes(shapes, targets))
            if not (needs_graph or is_made):
                return
        yield from _made(recipe, is_adapted=is_adapted and not shapes, needs_graph=needs_graph)
    except UserError as err:
        yield failed("adapter" if is_adapted else "model", err)


def _made(recipe: Recipe, *, is_adapted: bool, needs_graph: bool) -> Iterator[CheckFinding]:
    """The findings for a model that is created without weights."""
    from transformers.utils import logging

    from grpo_cli.policy.model import attach_lora, meta_model
    from grpo_cli.rollout.decoding.supports import declared

    logging.set_verbosity_error()
    made: CausalLM = meta_model(recipe.model)
    if needs_graph and (reason := declared(made)) is not None:
        from grpo_cli.rollout.engine import CannotDrive
        from grpo_cli.rollout.episodes.play import one_stream

        kind = recipe.sample.engine_kind.fallback
        yield failed("engine", CannotDrive(kind.name, reason) if kind.is_selective else one_stream(kind.name))
    folder = adapter_folder(recipe.model)
    if not is_adapted:
        return
    with loading_failures(f"cannot load the model `{recipe.model.path}`"):
        if folder is not None:
            adapted = attach_shapes(made, folder)
        else:
            assert recipe.model.lora is not None
            adapted = attach_lora(made, recipe.model.lora)
    yield _covered(coverage(adapted))


def _covered(found: Coverage) -> CheckFinding:
    # of a stack of experts the parameters themselves are named
    has_frozen_stack = any("." in name for name in found.left)
    level = Level.NOTE if has_frozen_stack else Level.OK
    data = {"covered": dict(found.covered), "left": dict(found.left), "share_left": found.share_left}
    return CheckFinding("adapter", level, found.text(), data=data)


def _config(model: Model) -> dict[str, Any] | None:
    """The configuration of the whole model; None where it is not here, or in a GGUF file."""
    whole = base_of(model, 0).model
    if whole.path == TINY_VISION:
        return {"model_type": "qwen2_vl", **VISION}
    if whole.path == "builtin:tiny":
        return {"model_type": "llama", **sizes(whole.context)}
    return model_files(whole).json("config.json")
