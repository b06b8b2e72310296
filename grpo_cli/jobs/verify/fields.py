"""Where a line keeps its completion, answer, prompt and group.

The keys are chosen once, at the first readable line, and hold for the whole input: lines with other keys are reported
one by one, not guessed. `find_keys` chooses the keys; `completions_of`, `row_of`, `prompt_of` and `group_of` read a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from grpo_cli.text import Json

COMPLETION = ("completion", "response", "output", "generation", "text", "model_output", "prediction", "code")
COMPLETIONS = ("completions", "responses", "outputs", "generations", "samples", "choices", "resps")
ANSWER = (
    *("answer", "gold", "solution", "target", "ground_truth", "gold_answer", "reference", "label", "gts"),
    *("reward_model.ground_truth", "extra_info.answer", "doc.answer", "metadata.answer", "expected_answer"),
    "final_answer",
)
CHAT = ("messages", "conversations", "conversation", "chat")
"""A chat that ends with the assistant: its last turn is the completion, the rest the prompt."""
WRAPPERS = ("body", "choices", "message", "generated_text", "value", "content", "text", "completion")
"""Keys of nested objects in the output of servers and loggers that contain the text, tried in this order."""
PROMPT = ("prompt", "question", "problem", "query", "instruction", "input", "messages")
GROUP = ("group", "group_id", "group_key")
ROW = (
    *("row", "row_id", "custom_id", "doc_id", "id", "problem_id", "task_id", "question_id", "prompt_id", "unique_id"),
    *("uid", "idx", "index", "request_id"),
)


class BadLine(ValueError):
    """A line that cannot be scored; the message is shown with its number."""


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """Keys named on the command line; None means that the key is to be found."""

    completion: str | None = None
    answer: str | None = None
    prompt: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The keys of this input; `completions` where a line holds a list of them. A key may be a path, `a.b`."""

    completion: str
    completions: bool = False
    answer: str | None = None
    prompt: str | None = None
    group: str | None = None
    row: str | None = None

    def described(self) -> str:
        """One line for stderr: the chosen keys."""
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


def find_keys(line: Mapping[str, Json], wanted: WantedKeys) -> FieldNames:
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


def _completion(line: Mapping[str, Json], wanted: WantedKeys) -> tuple[str, bool]:
    if wanted.completion:
        return wanted.completion, _is_many(look_up(line, wanted.completion))
    one = _first(line, COMPLETION)
    if one is not None:
        # a server's answer holds a list of choices
        choices = (f"{one}.body.choices", f"{one}.choices")
        one = next((path for path in choices if isinstance(look_up(line, path), list)), one)
        return one, _is_many(look_up(line, one))
    many = _first(line, COMPLETIONS)
    if many is not None and isinstance(line[many], list):
        return many, True
    chat = next((name for name in CHAT if _ends_with_answer(line.get(name))), None)
    if chat is not None:
        return chat, False
    keys = ", ".join(f"`{key}`" for key in list(line)[:12]) or "none"
    raise BadLine(f"no completion in the line (its keys: {keys}); name one with `--completion-key`")


def _is_many(value: Json) -> bool:
    """A list of completions, and not one chat-shaped completion."""
    return isinstance(value, list) and not (value and all(_is_message(item) for item in value))


def _ends_with_answer(value: Json) -> bool:
    last = value[-1] if isinstance(value, list) and value else None
    return isinstance(last, Mapping) and (last.get("role") == "assistant" or last.get("from") in ("gpt", "assistant"))


def _is_message(item: Json) -> bool:
    return isinstance(item, Mapping) and "role" in item and "content" in item


def _first(line: Mapping[str, Json], names: Sequence[str], but: str | None = None) -> str | None:
    return next((name for name in names if name != but and look_up(line, name) is not None), None)


def look_up(line: Mapping[str, Json], key: str) -> Json:
    """The value of a key or of a path such as `choices.0.message.content` or `choices[0].text`; None where there is none."""
    if key in line:
        return line[key]
    value: Json = line
    for part in parts_of(key):
        found = _inside(value, part)
        if found is None:
            return None
        value = found
    return value


def parts_of(key: str) -> list[str]:
    """The keys and indexes of a path."""
    return [part for part in key.replace("[", ".").replace("]", "").split(".") if part]


def _inside(value: Json, part: str) -> Json:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.removeprefix("-").isdecimal():
        at = int(part)
        return value[at] if -len(value) <= at < len(value) else None
    return None


def missing(line: Mapping[str, Json], key: str) -> str:
    """The message for a line without a value at a path: how far the path exists, and the keys there."""
    value, done = line, ""
    for part in parts_of(key):
        found = _inside(value, part)
        if found is None:
            break
        value, done = found, f"{done}.{part}".removeprefix(".")  # type: ignore[assignment]
    where = f"; `{done}` has" if done else "; the line has"
    if isinstance(value, Mapping):
        return f"no field `{key}`{where} {', '.join(f'`{k}`' for k in list(value)[:12]) or 'no keys'}"
    return f"no field `{key}`{where} {len(value)} items" if isinstance(value, list) else f"no field `{key}`"


def completions_of(line: Mapping[str, Json], keys: FieldNames) -> list[str]:
    """The texts of a line's completions.

    Raises:
        BadLine: the field is missing or is no text.
    """
    value = look_up(line, keys.completion)
    if value is None:
        said = look_up(line, "response.body.error.message") or look_up(line, "error.message") or line.get("error")
        is_failed = isinstance(said, str) and said  # the server's reason for not answering
        raise BadLine(f"the request failed: {said}" if is_failed else missing(line, keys.completion))
    if not keys.completions:
        return [text_of(value, keys.completion)]
    if not isinstance(value, list):
        raise BadLine(f"`{keys.completion}` is no list, and it was one before")
    if value and all(isinstance(item, list) and all(isinstance(t, str) for t in item) for item in value):
        value = [text for item in value for text in item]  # lm-eval: a list of answers a request
    return [text_of(item, f"{keys.completion}[{i}]") for i, item in enumerate(value)]


def text_of(value: Json, name: str) -> str:
    """The text of one completion or prompt: a string, a chat (its last message), or an object with `text`.

    Raises:
        BadLine: it is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and _is_message(value[-1]):
        content = value[-1]["content"]
        return "" if content is None else text_of(content, name)
    if isinstance(value, list) and value and all(isinstance(p, Mapping) and "text" in p for p in value):
        return "".join(text_of(part["text"], name) for part in value)
    if isinstance(value, list) and value and isinstance(value[-1], Mapping) and "from" in value[-1]:
        return text_of(value[-1].get("value"), name)
    if isinstance(value, Mapping):
        for key in WRAPPERS:
            inner = value.get(key)
            if inner is not None:
                return text_of(inner[0] if key == "choices" and isinstance(inner, list) and inner else inner, name)
        if value.get("role") == "assistant" and "content" in value:
            return ""  # a turn of tool calls has no text
    shown = {type(None): "null", dict: "an object", list: "a list", bool: "a boolean"}.get(type(value), "a number")
    raise BadLine(f"`{name}` is {shown}, not text")


def row_of(line: Mapping[str, Json], keys: FieldNames) -> dict[str, Json]:
    """The fields for verifiers: the line's own keys, those under `fields`, and the answer under its usual name."""
    row = dict(line)
    fields = line.get("fields")
    if isinstance(fields, Mapping):
        row.update(fields)
    for holder in (line.get("doc"), line.get("metadata"), line.get("extra_info")):
        if isinstance(holder, Mapping):  # lm-eval, inspect, verl: columns of the row that the sample came from
            row = {**holder, **row}
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
