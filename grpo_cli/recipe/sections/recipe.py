"""What a recipe may say, key by key. The short forms of YAML (`model: NAME`) are widened before these see them.

`load` is the way in: it also resolves `extends` and `--set`, checks verifier options, `train.trl` and the rules
between fields. Building a `Recipe` from a plain dict checks names, types and ranges only.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from grpo_cli.recipe.presets import fill
from grpo_cli.recipe.sections.ads import AdsSpec
from grpo_cli.recipe.sections.course import (
    Canary,
    Demonstration,
    Eval,
    Gate,
    KlMonitor,
    Launch,
    Monitor,
    Run,
    Stop,
    WarmupPhase,
)
from grpo_cli.recipe.sections.critic import CriticSpec
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.recipe.sections.fields import Section
from grpo_cli.recipe.sections.inputs import Data, Lora, Model, Source
from grpo_cli.recipe.sections.method import (
    Algorithm,
    Clip,
    Estimator,
    Kl,
    Loss,
    Prefer,
    Preference,
    Prune,
    Sample,
    Train,
    TurnCredit,
)
from grpo_cli.recipe.sections.rewards import By, Combine, Shaping, Verify
from grpo_cli.recipe.sections.shorthand import widen, widen_checked
from grpo_cli.recipe.sections.stages import Stage

__all__ = [
    "AdsSpec",
    "Algorithm",
    "By",
    "Canary",
    "Clip",
    "Combine",
    "CriticSpec",
    "Data",
    "Demonstration",
    "Environment",
    "Estimator",
    "Eval",
    "Gate",
    "Kl",
    "KlMonitor",
    "Launch",
    "Lora",
    "Loss",
    "Model",
    "Monitor",
    "Prefer",
    "Preference",
    "Prune",
    "Recipe",
    "Run",
    "Sample",
    "Shaping",
    "Source",
    "Stage",
    "Stop",
    "Train",
    "TurnCredit",
    "Verify",
    "WarmupPhase",
]


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


def complete(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with short forms widened, the preset filled in, the learning rate chosen and one verifier primary."""
    out = widen_checked(widen(data))
    evaluation = out.get("eval")
    if isinstance(evaluation, dict) and "k" not in evaluation:
        samples = evaluation.get("samples", 4)
        out["eval"] = evaluation | {"k": [1, samples] if type(samples) is int and samples > 1 else [1]}
    train = out.get("train")
    if isinstance(train, dict):
        model = out.get("model")
        lora = isinstance(model, dict) and isinstance(model.get("lora"), dict)
        out["train"] = {"lr": 1e-5 if lora else 1e-6} | fill(train)
        if train.get("method") == "prefer" and out.get("prefer") is None:
            out["prefer"] = {}
        phases = out.get("sft")
        if train.get("method") == "sft" and isinstance(phases, list):
            steps = [phase.get("steps") for phase in phases if isinstance(phase, dict)]
            out["train"]["steps"] = sum(n for n in steps if isinstance(n, int)) or 1
    out = _with_outcome(out)
    verify = out.get("verify")
    if isinstance(verify, dict) and not any(isinstance(v, dict) and v.get("primary") for v in verify.values()):
        for name, one in verify.items():
            if isinstance(one, dict):
                out["verify"] = verify | {name: one | {"primary": True}}
                break
    return out


def _with_outcome(data: dict[str, Any]) -> dict[str, Any]:
    """With a verifier for the outcome of the environment, where there is one and none is said."""
    verify = data.get("verify", {})
    if not isinstance(data.get("environment"), dict) or not isinstance(verify, dict):
        return data
    if any(isinstance(one, dict) and one.get("kind") == "environment" for one in verify.values()):
        return data
    if verify and ("tools" in data["environment"] or "trl" in data["environment"]):
        return data  # the answer is judged
    return data | {"verify": verify | {"environment": {"kind": "environment"}}}
