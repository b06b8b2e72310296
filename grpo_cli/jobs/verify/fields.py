"""Where a line keeps its completion, answer, prompt and group.

The keys are chosen once, at the first line that can be read, and hold for the whole input: a file whose lines change
their minds is reported line by line rather than guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from grpo_cli.text import Json

COMPLETION = ("completion", "response", "output", "generation", "text", "model_output", "prediction", "code")
COMPLETIONS = ("completions", "responses", "outputs", "generations", "samples")
ANSWER = ("answer", "gold", "solution", "target", "ground_truth", "gold_answer", "reference", "label")
PROMPT = ("prompt", "question", "problem", "query", "instruction", "input", "messages")
GROUP = ("group", "group_id", "group_key")
ROW = (
    "row",
    "row_id",
    "id",
    "problem_id",
    "task_id",
    "question_id",
    "prompt_id",
    "unique_id",
    "uid",
    "idx",
    "index",
)


class BadLine(ValueError):
    """A line that cannot be scored; the message is shown with its number."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Keys named on the command line; None is to be found."""

    completion: str | None = None
    answer: str | None = None
    prompt: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The keys of this input; `completions` says that a line holds a list of them. A key may be a path, `a.b`."""

    completion: str
    completions: bool = False
    answer: str | None = None
    prompt: str | None = None
    group: str | None = None
    row: str | None = None

    def described(self) -> str:
        """One line for stderr: what was taken for what."""
        parts = [f"completion{'s' if self.completions else ''} `{self.completion}`"]
        parts += [f"answer `{self.answer}`"] if self.answer else []
        parts += [f"prompt `{self.prompt}`"] if self.prompt else []
        return ", ".join([*parts, f"group by {self.grouping()}"])

    def grouping(self) -> str:
        """How lines are put into groups, in words."""
        if self.group:
            return f"`{self.group}`"
        if self.row:
            return f"row id `{self.row}`"
        if self.prompt:
            return f"hash of `{self.prompt}`"
        return "line" if self.completions else "nothing (no group key, row id or prompt)"


def find_keys(line: Mapping[str, Json], wanted: Wanted) -> FieldNames:
    """The keys of an input from one of its lines.

    Raises:
        BadLine: nothing in it looks like a completion.
    """
    completion, is_list = _completion(line, wanted)
    return FieldNames(
        completion=completion,
        completions=is_list,
        answer=wanted.answer or _first(line, ANSWER, but=completion),
        prompt=wanted.prompt or _first(line, PROMPT, but=completion),
        group=wanted.group or _first(line, GROUP),
        row=None if wanted.group else _first(line, ROW),
    )


def _completion(line: Mapping[str, Json], wanted: Wanted) -> tuple[str, bool]:
    if wanted.completion:
        return wanted.completion, _is_many(look_up(line, wanted.completion))
    one = _first(line, COMPLETION)
    if one is not None:
        return one, _is_many(line[one])
    many = _first(line, COMPLETIONS)
    if many is not None and isinstance(line[many], list):
        return many, True
    keys = ", ".join(f"`{key}`" for key in list(line)[:12]) or "none"
    raise BadLine(f"no completion in the line (its keys: {keys}); name one with `--completion-key`")


def _is_many(value: Json) -> bool:
    """A list of completions, and not one chat-shaped completion."""
    return isinstance(value, list) and not (value and all(_is_message(item) for item in value))


def _is_message(item: Json) -> bool:
    return isinstance(item, Mapping) and "role" in item and "content" in item


def _first(line: Mapping[str, Json], names: Sequence[str], but: str | None = None) -> str | None:
    return next((name for name in names if name in line and name != but), None)


def look_up(line: Mapping[str, Json], key: str) -> Json:
    """The value of a key or of a path such as `reward_model.ground_truth`; None where there is none."""
    if key in line:
        return line[key]
    value: Json = line
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def completions_of(line: Mapping[str, Json], keys: FieldNames) -> list[str]:
    """The texts of a line's completions.

    Raises:
        BadLine: the field is missing or is no text.
    """
    value = look_up(line, keys.completion)
    if value is None:
        raise BadLine(f"no field `{keys.completion}`")
    if not keys.completions:
        return [text_of(value, keys.completion)]
    if not isinstance(value, list):
        raise BadLine(f"`{keys.completion}` is no list, and it was one before")
    return [text_of(item, f"{keys.completion}[{i}]") for i, item in enumerate(value)]


def text_of(value: Json, name: str) -> str:
    """The text of one completion or prompt: a string, a chat (its last message), or an object with `text`.

    Raises:
        BadLine: it is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and _is_message(value[-1]):
        return text_of(value[-1]["content"], name)
    if isinstance(value, list) and value and all(isinstance(p, Mapping) and "text" in p for p in value):
        return "".join(text_of(part["text"], name) for part in value)
    if isinstance(value, Mapping):
        for key in ("content", "text", "completion"):
            if key in value:
                return text_of(value[key], name)
    shown = {type(None): "null", dict: "an object", list: "a list", bool: "a boolean"}.get(
        type(value), "a number"
    )
    raise BadLine(f"`{name}` is {shown}, not text")


def row_of(line: Mapping[str, Json], keys: FieldNames) -> dict[str, Json]:
    """What verifiers read: the line's own keys, those under `fields`, and the answer under its usual name."""
    row = dict(line)
    fields = line.get("fields")
    if isinstance(fields, Mapping):
        row.update(fields)
    if keys.answer is not None and keys.answer != "answer":
        answer = look_up(row, keys.answer)
        if answer is not None:
            row["answer"] = answer
    return row


def prompt_of(line: Mapping[str, Json], keys: FieldNames) -> str:
    """The prompt's text, empty where there is none."""
    value = look_up(line, keys.prompt) if keys.prompt else None
    if value is None:
        return ""
    try:
        return text_of(value, keys.prompt or "")
    except BadLine:
        return ""


def group_of(line: Mapping[str, Json], keys: FieldNames, number: int) -> int:
    """A 63-bit hash of the line's group: its group key (within its step), else its row id, else its prompt."""
    if keys.group and (value := look_up(line, keys.group)) is not None:
        step = line.get("step") if keys.group == "group" else None
        return _hash("group", step, value)
    if keys.row and (value := look_up(line, keys.row)) is not None:
        return _hash("row", None, value)
    if keys.prompt and (value := look_up(line, keys.prompt)) is not None:
        return _hash("prompt", None, value)
    return _hash("line", None, number)


def _hash(kind: str, step: Json, value: Json) -> int:
    is_plain = step is None and isinstance(value, str | int)
    text = f"{kind} {value!r}" if is_plain else json.dumps([kind, step, value], sort_keys=True)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
