"""The keys of a recipe, section by section. The short forms of YAML (`model: NAME`) are widened before these see them.

`load` is the way in: it also resolves `extends` and `--set`, checks verifier options, `train.trl` and the rules
between fields. Building a `Recipe` from a plain dict checks names, types and ranges only.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.course import (
    Canary,
    Demonstration,
    Eval,
    Expect,
    Gate,
    KlMonitor,
    Launch,
    Monitor,
    Run,
    Stop,
    WarmupPhase,
)
from grpo_cli.recipe.sections.fields import Path, Section, Words
from grpo_cli.recipe.sections.inputs import (
    Data,
    EndpointSpec,
    Environment,
    HarnessSpec,
    ImagePixels,
    Lora,
    Model,
    ServerSpec,
    Source,
)
from grpo_cli.recipe.sections.method import (
    AdsSpec,
    Algorithm,
    Clip,
    CriticSpec,
    Distil,
    Estimator,
    Kl,
    Loss,
    MixSpec,
    Prefer,
    Preference,
    Prune,
    Ramp,
    Sample,
    SplitPart,
    Train,
    TurnCredit,
)
from grpo_cli.recipe.sections.rewards import By, Combine, Shaping, Verify
from grpo_cli.recipe.widening import complete
from grpo_verifiers.strict_json import loads

__all__ = [
    "AdsSpec", "Algorithm", "By", "Canary", "Clip", "Combine", "CriticSpec", "Data", "Demonstration", "Distil", "EndpointSpec",
    "Environment", "Estimator", "Eval", "Expect", "Gate", "HarnessSpec", "ImagePixels", "Kl", "KlMonitor", "Launch",
    "Lora", "Loss", "MixSpec", "Model", "Monitor", "Prefer", "Preference", "Prune", "Ramp", "Recipe", "Run", "Sample", "ServerSpec", "Shaping",
    "Source", "SplitPart", "Stage", "Stop", "Train", "TurnCredit",
    "Verify", "WarmupPhase",
]  # fmt: skip


class Stage(Section):
    """One run of a chain. Every other key is one of the recipe's, for this stage."""

    name: Words
    """Part of the stage's folder, and what later stages call its samples: `run:NAME`."""
    start: Literal["best", "last", "base"] = Field(default="best", alias="from")
    """Weights it starts from: the last stage's best checkpoint on held-out rows, its last one, or the recipe's model and warm-up."""
    keys: dict[str, Any] = Field(default_factory=dict)
    """Keys of the recipe that are this stage's own."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        own = {key: inner for key, inner in value.items() if key in ("name", "from", "start", "keys")}
        rest = {key: inner for key, inner in value.items() if key not in own}
        return own | {"keys": {**own.get("keys", {}), **rest}} if rest else own


class Recipe(Section):
    """One recipe: a model, rows, verifiers and a method."""

    grpo: Literal[1] = 1
    """Version of the recipe's schema."""
    extends: str | None = None
    """Another recipe that this one lies over, as a path beside it or a shipped name: mappings merge key by key, lists and
    values are replaced."""
    model: Model
    data: Data
    verify: dict[str, Verify] = Field(min_length=1)
    """Verifiers by name; a name is also the kind where none is said."""
    shaping: dict[Literal["overlong", "length", "repetition", "language"], Shaping] = Field(default_factory=dict)
    """Terms of the reward that are no verdicts."""
    combine: Combine = Combine()
    environment: Environment | None = None
    """A world in which the model acts turn by turn; its outcome is a verifier named `environment`. Left out, a completion is
    one answer."""
    sample: Sample = Sample()
    train: Train
    prefer: Prefer | None = None
    """How pairs are made and learned from, with `train.method: prefer`."""
    distil: Distil | None = None
    """The teacher of `train.method: distil`."""
    gate: Gate | None = None
    """What the model must show before training; left out, nothing is asked."""
    eval: Eval = Eval()
    monitor: Monitor = Monitor()
    stop: Stop = Stop()
    run: Run = Run()
    launch: Launch = Launch()
    warmup: list[WarmupPhase] | None = None
    """Supervised cold start, phase by phase; left out, training starts from the model as it is."""
    sft: list[WarmupPhase] | None = None
    """What `train.method: sft` trains on, phase by phase; a demonstration left out is the column `completion`."""
    stages: list[Stage] | None = Field(default=None, min_length=1)
    """A chain of runs, each from the best weights of the last; every stage says what is its own. See `grpo explain stages`."""

    @property
    def fines(self) -> dict[str, float]:
        """What each verifier of the environment's outcome takes off for an invalid action, before its weight."""
        fine = 0.0 if self.environment is None else self.environment.invalid_penalty
        return {name: fine for name, one in self.verify.items() if one.kind == "environment"}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        return complete(value) if isinstance(value, dict) else value


def chat_options(recipe: Recipe) -> Mapping[str, object]:
    """What the chat template gets beside the messages: `model.template_args`, or TRL's name for them
    (`train.trl.chat_template_kwargs`)."""
    given = recipe.train.trl.get("chat_template_kwargs")
    if isinstance(given, str):
        try:
            given = loads(given)
        except ValueError as err:
            raise RecipeError(f"`train.trl.chat_template_kwargs` is no JSON: {err}") from err
    return {**(given if isinstance(given, Mapping) else {}), **recipe.model.template_args}


def section(path: Path) -> type[BaseModel] | None:
    """The model class at a path, through lists and named entries."""
    model: type[BaseModel] | None = Recipe
    for part in path:
        if isinstance(part, int) or part.isdecimal():
            continue
        if model is None:
            return None
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in fields:
            model = inner_section(fields[part].annotation)
        elif model.__name__ not in {"Verify", "Shaping", "SplitPart"}:
            return None
    return model


def key_names(model: type[BaseModel]) -> list[str]:
    """The keys of a section as a user writes them."""
    return [
        field.alias or name
        for name, field in model.model_fields.items()
        if name != "options" or model.__name__ == "Source"
    ]


def choices_at(path: Path) -> list[str]:
    """The words that the key at a path takes; none where it takes others."""
    annotation = _annotation(path)
    return [str(one) for one in typing.get_args(annotation)] if typing.get_origin(annotation) is Literal else []


def takes_text(path: Path) -> bool:
    """Whether the key at a path takes text and nothing else (but null)."""
    return _is_text(_annotation(path))


def _annotation(path: Path) -> object:
    model = section(path[:-1])
    fields = model.model_fields.items() if model else ()
    return next((field.annotation for name, field in fields if (field.alias or name) == path[-1]), None)


def _is_text(annotation: object) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_text(typing.get_args(annotation)[0])
    args = typing.get_args(annotation)
    if args and (typing.get_origin(annotation) in (typing.Union, types.UnionType)):
        return all(arg is type(None) or _is_text(arg) for arg in args)
    return annotation is str


def inner_section(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    for arg in reversed(typing.get_args(annotation)):
        found = inner_section(arg)
        if found is not None:
            return found
    return None
