"""Types that recipe fields share. Strict: `"8"` is no number and `1` no switch."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, WrapValidator

from grpo_verifiers.verdict import LARGEST

ONE, MANY = "[one]", "[many]"
"""Tags of a key that takes one of a kind or a list; they stand in pydantic's places of errors and are taken out there."""
MOST = 2**31 - 1
"""What seeds and counters of the libraries below can hold."""
Whole = Annotated[int, Field(gt=0, le=MOST)]
"""A whole number of at least 1."""
Count = Annotated[int, Field(ge=0, le=MOST)]
"""A whole number of at least 0."""
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Least0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Words = Annotated[str, Field(min_length=1)]


class Names(Enum):
    """What the text of a key names outside of the recipe; `recipe.named` walks a recipe by it."""

    CODE = "code"
    """`FILE.py:NAME`, `MODULE:NAME` or a module."""
    MODEL = "model"
    """A folder or a file of weights, or a name of the hub."""
    ROWS = "rows"
    """A source of rows."""
    FOLDERS = "folders"
    """A folder that code is imported from."""
    FILE = "file"
    """A file, where there is one of that name: keys that take anything."""
    KIND = "kind"
    """A kind of verifier, which may come with another package."""


class Placed(str):
    """A path as this process opens it. `written` is the same path from the recipe's folder, which is what a run keeps."""

    written: str

    def __new__(cls, text: str, written: str) -> Placed:
        made = super().__new__(cls, text)
        made.written = written
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.written


def written(text: str) -> str:
    """A path as it counts from the recipe's folder."""
    return text.written if isinstance(text, Placed) else text


Written = PlainSerializer(written, return_type=str)
CodeName = Annotated[Words, Names.CODE, Written]
ModelName = Annotated[Words, Names.MODEL, Written]
RowsName = Annotated[Words, Names.ROWS, Written]


class Section(BaseModel):
    """A section of the recipe: unknown keys are refused, values are never changed after loading."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="constants"
    )


def one_of(expectation: str) -> WrapValidator:
    """Turn the branch errors of a union into one, a ValueError: "must be EXPECTATION"."""

    def check(value: Any, inner: Callable[[Any], Any]) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise ValueError(f"must be {expectation}") from None

    return WrapValidator(check)


Path = tuple[str | int, ...]


def dotted(path: Iterable[str | int]) -> str:
    """`a.b.0` for messages."""
    return ".".join(str(p) for p in path)


def ancestors(path: Path) -> Iterator[Path]:
    """The path, then its parents, down to the root."""
    for end in range(len(path), -1, -1):
        yield path[:end]


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field of a section, by the field's name; fields without one are left out."""
    return _module_docs(model.__module__).get(model.__name__, {})


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in (one for one in tree.body if isinstance(one, ast.ClassDef)):
        for field, text in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found.setdefault(node.name, {})[field.target.id] = inspect.cleandoc(text.value.value)
    return found
