"""The types of the JSON files of a run, checked once, when they are read.

How this works: a run folder may be cut off, edited by hand or somebody else's. Every reader of its files gets the types
declared below, or a ValueError that names the key; no later code checks again. Missing keys come from older versions
and unknown keys from newer ones: both are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grpo_cli.run.records import MOST, NON_FINITE, parse_line

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, le=MOST)]
COUNTS = re.compile(
    r"step|samples|tokens|(?:eval|eval/greedy|canary)/n|verify/[^/]+/(?:calls|right|wrong|no_answer|over_limit|error)"
    r"|(?:drawn/)?group/(?:count|size|all_wrong|mixed|all_right|no_verdict|with_signal|hist/\d+)"
)
"""Keys of `metrics.jsonl` that count something: never null, and never a fraction."""
_count_key = cache(COUNTS.fullmatch)
MOST_TEXT, MOST_VALUES, MOST_DEEP = 1_000_000, 50_000, 60
"""Characters, values and levels of a recipe."""
TEXTS = ("at", "stage")
"""Keys of `metrics.jsonl` whose values are texts."""


class _Read(BaseModel):
    """Strict, and open to keys of other versions."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Spent(_Read):
    wall_s: Seconds
    cpu_s: Seconds


class _Alarm(_Read):
    code: str
    step: Count
    text: str


class _Act(_Read):
    action: str
    evidence: str
    alarms: list[_Alarm]


class _Sandbox(_Read):
    tier: str
    warnings: list[str]


class _Stage(_Read):
    name: str
    folder: str = ""
    steps: Count = 0
    before: dict[str, float | None] | None = None
    after: dict[str, float | None] | None = None


class _Manifest(_Read):
    run: str | None = None
    started: str | None = None
    status: str | None = None
    recipe: str | None = None
    argv: list[str] = []
    recipe_sha: str | None = None
    versions: dict[str, str] = {}
    device: str | None = None
    seed: Count | None = None
    git: str | None = None
    sandbox: dict[str, _Sandbox] = {}
    warnings: list[str] = []
    base: str | None = None
    steps: Count | None = None
    epoch_steps: Count | None = None
    reason: str | None = None
    phases: dict[str, _Spent] = {}
    acted: list[_Act] = []
    pace: list[dict[str, Any]] = []
    stages: list[_Stage] = []
    contents: dict[str, dict[str, dict[str, str]]] = {}
    changed: list[str] = []
    rolling_back_to: Count | None = None
    cpu_bfloat16: bool | None = None


class _CheckpointManifest(_Read):
    """Size and SHA-256 of every file, by its path in the checkpoint."""

    files: dict[str, Annotated[tuple[Count, str], Field(strict=False)]] = Field(min_length=1)


class _State(_Read):
    base: str | None = None
    processes: Count | None = None
    generation: Count = 0
    select: dict[str, Any] = {}
    samples_seen: Count = 0
    skipped_steps: Count = 0
    errors_seen: Count = 0
    stop_rules: dict[str, Any] = {}


class _Section(_Read):
    """The values read from a recipe that is not checked: a run of an older version may have keys that no longer
    exist."""

    path: str = ""
    steps: Count | None = None
    prompts: Count | None = None
    group: Count | None = None
    max_tokens: Count | None = None
    seed: Count | None = None
    inner_epochs: Count = 0
    mini_batches: Count = 0
    control: str | None = None


class _Term(_Read):
    kind: str = ""
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    primary: bool = False


class _Recipe(_Read):
    model: _Section = _Section()
    sample: _Section = _Section()
    train: _Section = _Section()
    verify: dict[str, _Term] = {}
    shaping: dict[str, _Term] = {}


FILES: dict[str, type[_Read]] = {"run.json": _Manifest, "manifest.json": _CheckpointManifest, "grpo.json": _State}


def read_typed(name: Literal["run.json", "manifest.json", "grpo.json"], text: str | bytes) -> dict[str, Any]:
    """A run's manifest, or the files of a checkpoint and its state, by what they are called on disk.

    Raises:
        ValueError: no object, or a key that holds something else than it should.
    """
    return _typed(FILES[name], parse_line(text))


def recipe_of_text(text: str) -> dict[str, Any]:
    """A resolved recipe, checked for the types of what readers need and no more: old ones stay readable.

    Raises:
        ValueError: no mapping in YAML, a key that holds something else than it should, or aliases that blow it up.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if len(text) > MOST_TEXT:
        raise ValueError("too large for a recipe")
    try:
        found = YAML(typ="safe").load(text)
    except (YAMLError, TypeError, AttributeError, RecursionError) as err:  # the parser raises the last three bare
        raise ValueError(str(err).partition("\n")[0] or type(err).__name__) from None
    if not isinstance(found, dict):
        raise ValueError("must be a mapping")
    _measure(found, [MOST_VALUES], 0)
    return _typed(_Recipe, found)


def _measure(value: object, left: list[int], depth: int) -> None:
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEEP:
        raise ValueError("too many values, or nested too deeply")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key must be a word")
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        _measure(inner, left, depth + 1)


def metrics_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of `metrics.jsonl`, numbers that are not finite as such.

    Raises:
        ValueError: it has no `step`, or a key that holds no number.
    """
    found: dict[str, Any] = {}
    for key, value in line.items():
        kind = type(value)
        if kind is str and key not in TEXTS:
            if value not in NON_FINITE:
                raise ValueError(f"`{key}` must be a number")
            value = NON_FINITE[value]
        elif kind is int and abs(value) > MOST:
            raise ValueError(f"`{key}` is too large a number")
        elif kind not in (int, float, bool, str, type(None)):
            raise ValueError(f"`{key}` must be a number")
        if not (kind is int and value >= 0) and _count_key(key):
            raise ValueError(f"`{key}` must be a whole number of at least 0")
        found[key] = value
    if "step" not in found:
        raise ValueError("`step` is missing")
    return found


def _typed(kind: type[_Read], found: dict[str, Any]) -> dict[str, Any]:
    try:
        kind.model_validate(found)
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"`{place}`: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    return found
