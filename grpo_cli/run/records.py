"""One sample on disk: a line of `samples/*.jsonl` that `grpo verify` reads back to the same numbers.

The row's own columns lie at the top level of the line, beside ours; only a column whose name is one of
ours goes under `fields`, so a data set with a `prompt` or `step` column loses nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from grpo_verifiers.thinking import opening_at_end
from grpo_verifiers.verdict import Outcome, Verdict

OWN_KEYS = frozenset(
    [
        "step",
        "row",
        "group",
        "prompt",
        "completion",
        "verdicts",
        "outcome",
        "reward",
        "advantage",
        "tokens",
        "truncated",
        "begun",
        "fields",
    ]
)
TURN_KEYS = frozenset(["turns", "env_tokens"])
"""Ours too, on the line of an episode; elsewhere a row's columns may be named so."""

ENDPOINT_KEYS = frozenset(["rows", "endpoint"])
"""Ours on the line of a harness's episode: a list and an object."""

LATER_KEYS = frozenset(["values", "outcome_reward"])
"""Ours on lines that have `fields`, if they hold what we write: a number for the answer or for each turn, and a number."""

OUTCOMES = {outcome.value: outcome for outcome in Outcome}

MOST = 2**53
"""The largest whole number in our files: what a float counts exactly."""

T = TypeVar("T")
D = TypeVar("D")
WORDS: dict[type, str] = {str: "text", dict: "an object", list: "a list"}

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers that are not finite are spelled in our files, since JSON has no word for them."""


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One completion with its verdicts. `reward` is None where a verifier failed: no verdict is never a zero."""

    step: int
    row: str
    group: int | str
    prompt: str
    completion: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    outcome: Outcome | None = None
    reward: float | None = None
    advantage: float | None = None
    tokens: int = 0
    truncated: bool = False
    assistant_prefix: str = ""
    """The part of the assistant's turn in the prompt: a thinking tag opened by the chat template, and the prefill."""
    turns: Sequence[Mapping[str, Any]] = ()
    """An episode's turns: `text, observation, tokens, reward, state_hash, milestone, valid, advantage` of each."""
    values: Sequence[float] = ()
    """The critic's value before the answer, or before each turn of an episode; empty where there is none."""
    env_tokens: int = 0
    """Tokens that an environment put between the turns; `tokens` are the model's own."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Of a harness's episode, `parent, at, why` of each row that is learned from: why it began behind how many messages of which."""
    endpoint: Mapping[str, int] = field(default_factory=dict)
    """What the endpoint counted of it."""
    outcome_reward: float | None = None
    """The part of the reward that the outcome pays; None if training did not pay it, and in lines of older versions."""
    primary: str = field(default="", compare=False)
    """Name of the primary verifier; not on disk, where the recipe has it."""

    @property
    def answer(self) -> str | None:
        """The answer that is called right or wrong: the primary verifier's.

        Where another one judged in its place (`combine: by`), or it is not known which was primary, the first found.
        """
        judged = self.verdicts.get(self.primary)
        if judged is not None:
            return judged.answer
        return next((v.answer for v in self.verdicts.values() if v.answer is not None), None)

    @property
    def is_judged(self) -> bool:
        """Whether the primary verifier gave a verdict."""
        return self.outcome not in (None, Outcome.ERROR)

    @property
    def is_failed(self) -> bool:
        """Whether some verifier failed on it: as `statistics.failures` counts."""
        return any(verdict.score is None for verdict in self.verdicts.values())

    @property
    def is_right(self) -> bool:
        """Whether the primary verifier calls it right."""
        return self.outcome is Outcome.RIGHT

    def as_json(self, has_columns: bool = True) -> dict[str, Any]:
        """The line as a dict, with the row's own columns or without."""
        fields = self.fields if has_columns else {}
        line: dict[str, Any] = {
            "step": self.step,
            "row": self.row,
            "group": self.group,
            "prompt": self.prompt,
            "completion": self.completion,
        }
        own = OWN_KEYS | TURN_KEYS if self.turns else OWN_KEYS
        if has_rows := bool(self.turns and self.rows):
            own |= ENDPOINT_KEYS
        is_later = bool(self.values) or self.outcome_reward is not None
        if is_later or not own.isdisjoint(fields):
            own |= LATER_KEYS
        hidden = {name: value for name, value in fields.items() if name in own}
        line.update({name: value for name, value in fields.items() if name not in own})
        if hidden or is_later:
            line["fields"] = hidden
        line["verdicts"] = {name: verdict.as_json() for name, verdict in self.verdicts.items()}
        line["outcome"] = self.outcome.value if self.outcome is not None else None
        line["reward"] = self.reward
        if self.outcome_reward is not None:
            line["outcome_reward"] = self.outcome_reward
        line["advantage"] = self.advantage
        line["tokens"] = self.tokens
        line["truncated"] = self.truncated
        if self.assistant_prefix or opening_at_end(self.prompt):
            line["begun"] = self.assistant_prefix
        if self.turns:
            line["turns"], line["env_tokens"] = [dict(turn) for turn in self.turns], self.env_tokens
        if has_rows:
            line["rows"], line["endpoint"] = [dict(row) for row in self.rows], dict(self.endpoint)
        if self.values:
            line["values"] = list(self.values)
        return line

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> SampleRecord:
        """The record of a line; every key that is not ours is a column of the row.

        Raises:
            ValueError: a key of ours that holds something else than it should.
        """
        episode = "turns" in line and "env_tokens" in line
        is_later = "fields" in line
        turns = _of(line, "turns", list, []) if episode else ()
        for turn in turns:
            if not isinstance(turn, dict):
                raise ValueError("`turns` must be a list of objects")
            for key in ("text", "observation"):
                _of(turn, key, str, "")
            for key in ("reward", "advantage"):
                read_number(turn.get(key))
            _whole(turn, "tokens")
        values = line.get("values") if is_later else None
        # a number before each turn, or before the one answer; a list of anything else is a column
        if not isinstance(values, list) or [type(one) for one in values] != [float] * (len(turns) if episode else 1):
            values = ()
        outcome_reward = line.get("outcome_reward") if is_later else None
        own = OWN_KEYS
        if episode:
            own |= TURN_KEYS
        rows, endpoint = line.get("rows"), line.get("endpoint")
        has_rows = episode and isinstance(rows, list) and isinstance(endpoint, dict)
        if has_rows:
            own |= ENDPOINT_KEYS
        if values:
            own |= {"values"}
        if type(outcome_reward) is float:
            own |= {"outcome_reward"}
        fields = {name: value for name, value in line.items() if name not in own}
        fields.update(_of(line, "fields", dict, {}))
        outcome = _of(line, "outcome", str, None)
        group = line.get("group", line.get("row", ""))
        return cls(
            step=_whole(line, "step"),
            row=str(line.get("row", "")),
            group=group if isinstance(group, str | int) else str(group),
            prompt=_of(line, "prompt", str, ""),
            completion=_of(line, "completion", str, ""),
            fields=fields,
            verdicts={name: read_verdict(one) for name, one in _of(line, "verdicts", dict, {}).items()},
            outcome=read_outcome(outcome) if outcome is not None else None,
            reward=read_number(line.get("reward")),
            outcome_reward=outcome_reward if type(outcome_reward) is float else None,
            advantage=read_number(line.get("advantage")),
            tokens=_whole(line, "tokens"),
            truncated=bool(line.get("truncated", False)),
            assistant_prefix=_of(line, "begun", str, ""),
            turns=turns,
            values=values,
            env_tokens=_whole(line, "env_tokens") if episode else 0,
            rows=rows if has_rows and rows is not None else (),
            endpoint={name: _whole(endpoint, name) for name in endpoint} if has_rows and endpoint is not None else {},
        )


def _of(line: Mapping[str, Any], key: str, kind: type[T], missing: D) -> T | D:
    """The value of a key; `missing` if the key is absent or null.

    Raises:
        ValueError: a value of another type.
    """
    value = line.get(key)
    if value is None:
        return missing
    if not isinstance(value, kind):
        raise ValueError(f"`{key}` must be {WORDS[kind]}")
    return value


def _whole(line: Mapping[str, Any], key: str) -> int:
    value = line.get(key) or 0
    if not isinstance(value, int | float) or not 0 <= value <= MOST or value != int(value):
        raise ValueError(f"`{key}` must be a whole number of at least 0")
    return int(value)


def read_verdict(line: object) -> Verdict:
    """A verdict from the shape that `Verdict.as_json` writes.

    Raises:
        ValueError: another shape.
    """
    if not isinstance(line, dict):
        raise ValueError("a verdict must be an object")
    seconds = read_number(line.get("seconds")) or 0.0
    if not 0 <= seconds <= MOST:
        raise ValueError("`seconds` must be a time")
    return Verdict(
        outcome=read_outcome(_of(line, "outcome", str, "")),
        score=read_number(line.get("score")),
        answer=_of(line, "extracted", str, None),
        reason=_of(line, "reason", str, ""),
        seconds=seconds,
        detail=_of(line, "detail", str, ""),
        way=_of(line, "way", str, ""),
    )


def read_outcome(word: str) -> Outcome:
    """The outcome by its name.

    Raises:
        ValueError: there is none of that name.
    """
    return OUTCOMES.get(word) or Outcome(word)  # a call of the enum takes four times as long as the table


def read_number(value: object) -> float | None:
    """A number, None, or one of the strings that stand for a number that is not finite.

    Raises:
        ValueError: something else.
    """
    if value is None:
        return None
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) > MOST):
        raise ValueError(f"{json.dumps(value)[:40]} is no number")
    return float(value)


def dump_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON with its newline; numbers that are not finite are written as strings, never as null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    except ValueError:
        return json.dumps(_spelled(value), ensure_ascii=False, allow_nan=False, default=_plain) + "\n"


def parse_line(text: str | bytes) -> dict[str, Any]:
    """The dict of one line, or of a whole file.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _spelled(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    return value


def _plain(value: object) -> object:
    """Numpy scalars and arrays as Python values; dates and anything else as text."""
    for name in ("item", "tolist") if getattr(value, "ndim", 0) == 0 else ("tolist",):
        if (convert := getattr(value, name, None)) is not None:
            return convert()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)
