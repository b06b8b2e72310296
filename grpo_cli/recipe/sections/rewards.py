"""The sections `verify`, `shaping` and `combine`. Options stand beside the entry's own keys in YAML and are gathered here.

`KINDS` are the kinds of verifiers that a recipe may name: those of `grpo_verifiers`, those of installed packages, and the one
that needs torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from grpo_cli.recipe.sections.fields import MANY, ONE, Finite, Names, Section, Words
from grpo_cli.text import Json
from grpo_verifiers.registry import KINDS, kind_class, register

__all__ = ["KINDS", "kind_class"]

# lives with the trainer; an entry point names it too, which a source tree has only once installed
register("reward_model", "grpo_cli.reward.reward_model:RewardModelVerifier")


def gather_options(value: Json, own: tuple[str, ...]) -> Json:
    """A mapping with every key outside `own` moved under `options`."""
    if not isinstance(value, dict):
        return value
    given = value.get("options", {})
    if not isinstance(given, dict):
        return value
    rest = {k: v for k, v in value.items() if k not in own and k != "options"}
    return {k: v for k, v in value.items() if k in own} | {"options": given | rest}


class Verify(Section):
    """One verifier. Keys that are not listed here are options of its kind, see `grpo explain KIND`."""

    kind: Annotated[Words, Names.KIND]
    """Which verifier; left out, the name it stands under."""
    weight: Finite = 1.0
    """Factor of its score in the reward; 0 records verdicts without rewarding them."""
    primary: bool = False
    """Its verdict says what "right" means; where none is marked it is the first."""
    right_at: Finite = 1.0
    """Score from which a sample counts as right: any finite number, as scores are."""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_keys(cls, value: Json) -> Json:
        return gather_options(value, ("kind", "weight", "primary", "right_at"))


class Shaping(Section):
    """A term of the reward that is no verdict, in [-1, 1]. Keys that are not listed here are its options."""

    weight: Finite = 1.0
    """Factor in the reward."""
    only: Literal["right"] | None = None
    """`right` pays it for right answers alone; left out, for all."""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_keys(cls, value: Json) -> Json:
        return gather_options(value, ("weight", "only"))


class By(Section):
    """Which verifier judges a row, by the value of a column."""

    column: Words
    """The column, such as `data_source`."""
    values: dict[str, Words] = Field(default_factory=dict)
    """Its values to verifiers; left out, the column names verifiers itself."""
    default: Words | None = None
    """The verifier of every other row; left out, such a row is an error."""


class Combine(Section):
    """How verdicts become one reward. `combine: min` means `method`; `gate` or `by` alone say their method too."""

    method: Literal["sum", "gate", "first", "min", "by"] = "sum"
    """`sum` of weighted scores; `gate`, see there; `first` verifier that found an answer; lowest score (`min`); or `by` row."""
    gate: dict[str, Literal["needs_right", "must_pass"]] = Field(default_factory=dict)
    """Verifier to condition: `needs_right` counts it only where the primary is right, `must_pass` pays nothing without it."""
    by: (
        Annotated[
            Annotated[Words, Tag(ONE)] | Annotated[By, Tag(MANY)],
            Discriminator(lambda value: ONE if isinstance(value, str) else MANY),
        ]
        | None
    ) = None
    """Column that names the verifier of a row, for mixed data; or a mapping of `column`, `values` and `default`."""
