"""Calls of tools in what a model said, read by the form of its chat template. Never raises: a call that is none says why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_cli.environments.tools.form import CallForm, as_mapping

MOST = 32
"""Calls of one turn that are read; more is a model that loops."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: a name and arguments, or `error`, what is wrong with how it is written. `is_text`: the arguments are texts,
    whatever their type is meant to be."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    is_text: bool = False

    def as_json(self) -> dict[str, Any]:
        """For the way into a worker."""
        return {"name": self.name, "arguments": self.arguments, "error": self.error, "is_text": self.is_text}


def read_calls(text: str, form: CallForm) -> list[ToolCall]:
    """The calls in a turn, in order; none where it is an answer. `text` holds special tokens too.

    A form without an opening is a call only where nothing stands before it.
    """
    if form.opens:
        # what a model thinks is no call, even where it tries one out
        said = re.sub(r"<think>.*?</think>", "", text, flags=re.S)
        parts = said.split(form.opens)[1:]
    else:
        bare = text.strip().removeprefix("<|python_tag|>").lstrip()
        parts = [bare] if bare[:1] in ("{", "[") else []
    found: list[ToolCall] = []
    for part in parts:
        found += _OF_STYLE[form.style](part, form)
        if len(found) > MOST:
            return [
                *found[:MOST],
                ToolCall("", error=f"more than {MOST} calls in one turn: the others were not made"),
            ]
    return found


def _objects(part: str, form: CallForm) -> Iterator[ToolCall]:
    text = part.lstrip()
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError as err:
        yield ToolCall("", error=f"the call is no JSON: {err}")
        return
    except RecursionError:
        yield ToolCall("", error="the call is no JSON: it is nested too deeply")
        return
    for one in value if isinstance(value, list) else [value]:
        inner = one.get(form.inside) if form.inside and isinstance(one, dict) else one
        name = inner.get(form.name_key) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not isinstance(name, str):
            yield ToolCall("", error=f"the call is no object with `{form.name_key}` and `{form.args_key}`")
            continue
        yield _checked(name, inner.get(form.args_key, {}), form.args_key)


def _named(part: str, form: CallForm) -> Iterator[ToolCall]:
    # models write less between name and arguments than templates do: all up to the brace is skipped
    head = re.match(r"\s*([\w.\-]+)([^{]*)", part)
    if head is None:
        yield ToolCall("", error="the call names no tool")
        return
    try:
        value, _ = json.JSONDecoder().raw_decode(part, head.end())
    except (ValueError, RecursionError) as err:
        yield ToolCall(head[1], error=f"the arguments are no JSON: {err}")
        return
    yield _checked(head[1], value, "arguments")


def _pairs(part: str, form: CallForm) -> Iterator[ToolCall]:
    _, opens, middle, closes = form.marks
    name = re.match(r"\s*([\w.\-]+)", part)
    if name is None:
        yield ToolCall("", error="the call names no tool")
        return
    found: dict[str, Any] = {}
    for piece in part[name.end() :].split(opens)[1:]:
        key, split, rest = piece.partition(middle.rstrip() or middle)
        value, end, _ = rest.partition(closes)
        if not split or not end:
            yield ToolCall(name[1], error=f"the argument `{key.strip()[:40]}` is not closed with `{closes}`")
            return
        found[key.strip()] = value.strip("\n")
    yield ToolCall(name[1], found, is_text=True)


def _checked(name: str, arguments: object, key: str) -> ToolCall:
    held = as_mapping(arguments)
    if held is None:
        return ToolCall(name, error=f"`{key}` of `{name}` is no object of names and values")
    return ToolCall(name, held)


def as_action(calls: Sequence[ToolCall]) -> str:
    """What `ToolWorld.step` takes."""
    return json.dumps([call.as_json() for call in calls])


_OF_STYLE = {"object": _objects, "named": _named, "pairs": _pairs}
