"""Parses tool calls in a model's text, in the format of its chat template.

How this works: `learn_call_form` renders two calls with the template and finds how it writes them:

    object   <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>       name and arguments in one JSON object, or in a list
    named    to=functions.add<|message|>{"a": 1}<|call|>                         the name, then the arguments as JSON
    pairs    <function=add><parameter=a>1</parameter></function>                 each argument by itself, as text

So no table of models is needed: a template that can render a tool call defines the format. `read_calls` then finds the
calls of a turn. It never raises: a malformed call carries the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], bool], str]
"""Text of messages with these tools, with or without the opening of the model's turn; raises ValueError where it cannot."""

NAMES = ("first_qx", "second_qz")
ARGS = (("where_qk", "north_qv"), ("when_qj", "today_qw"))

SHORTEST = 5
"""Fewest letters of an opening: a shorter one would occur in ordinary answers."""


class UnknownCallForm(ValueError):
    """The template renders no calls, or in an unknown format; the message states which."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """The format of calls. `opens` stands before a call; if empty, a turn that is a call contains nothing else."""

    style: Literal["object", "named", "pairs"]
    opens: str
    name_key: str = ""
    args_key: str = ""
    inside: str = ""
    """A key whose value holds name and arguments (`function`), or empty."""
    marks: tuple[str, ...] = ()
    """named: the text between name and arguments. pairs: the texts before an argument's name, after it, and after its
    value."""
    as_text: bool = False
    """Whether the template takes the arguments of a call as text only."""


def learn_call_form(render: Render) -> CallForm:
    """The format of a chat template's calls.

    Raises:
        UnknownCallForm: it has none.
    """
    as_text = False
    try:
        one, two = _shown(render, dict(ARGS))
    except ValueError as err:
        try:
            one, two = _shown(render, json.dumps(dict(ARGS)))  # some templates write arguments exactly as they get them
            as_text = True
        except ValueError:
            raise UnknownCallForm(f"it refuses a call of a tool: {err}") from err
    if not all(part in one for part in (NAMES[0], *ARGS[0])):
        raise UnknownCallForm("it leaves the calls of a turn out")
    found = _form_of_object(one) or _form_of_named(one, two) or _form_of_pairs(one, two)
    if found is None or (found.style != "object" and len(found.opens) < SHORTEST):
        raise UnknownCallForm(f"it writes calls in a form that is not read here: {one.strip()[:120]!r}")
    return replace(found, as_text=as_text)


def _shown(render: Render, arguments: dict[str, str] | str) -> tuple[str, str]:
    """A rendered turn with one call, and one with two; the second is empty if the template allows one call a turn.

    Raises:
        ValueError: the template renders no calls.
    """
    kinds = {arg: {"type": "string", "description": "a word"} for arg, _ in ARGS}
    parameters = {"type": "object", "properties": kinds, "required": list(kinds)}
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": name, "description": "nothing", "parameters": parameters}}
        for name in NAMES
    ]
    user = {"role": "user", "content": "go"}
    opened, before = render([user], tools, True), render([user], tools, False)

    def turn(names: Sequence[str]) -> str:
        whole = render([user, turn_with_calls(names, arguments, "")], tools, False)
        # some templates begin a new turn differently from a past one: with a thought, for example
        return whole.removeprefix(opened) if whole.startswith(opened) else whole.removeprefix(before)

    one = turn(NAMES[:1])
    try:
        return one, turn(NAMES)
    except ValueError:
        return one, ""


def turn_with_calls(names: Sequence[str], arguments: dict[str, str] | str, content: str) -> dict[str, Any]:
    """An assistant turn with tool calls, in the form used by data sets and templates; ids have nine letters, as Mistral
    requires."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": call_id(i), "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, name in enumerate(names)
        ],
    }


def call_id(i: int) -> str:
    """The id of a turn's i-th call."""
    return f"call{i:05}"


def _form_of_object(turn: str) -> CallForm | None:
    for at, letter in enumerate(turn):
        if letter not in "{[" or at > turn.index(NAMES[0]):
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(turn, at)
        except ValueError:
            continue
        value = value[0] if isinstance(value, list) and value else value
        # which keys hold name and arguments, and inside which
        inner = {k: v for k, v in value.items() if isinstance(v, dict)} if isinstance(value, dict) else {}
        for inside, one in [("", value), *inner.items()] if isinstance(value, dict) else ():
            name = next((k for k, v in one.items() if v == NAMES[0]), None)
            args = next((k for k, v in one.items() if as_mapping(v) == dict(ARGS)), None)
            if name is not None and args is not None:
                return CallForm("object", _last_word(turn[:at]), name, args, inside)
    return None


def _form_of_named(one: str, two: str) -> CallForm | None:
    behind = one[one.index(NAMES[0]) + len(NAMES[0]) :]
    brace = behind.find("{")
    if brace < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(behind, brace)
    except ValueError:
        return None
    if value != dict(ARGS):
        return None
    return CallForm("named", _opening(one, two), marks=(behind[:brace],))


def _form_of_pairs(one: str, two: str) -> CallForm | None:
    (first, value), (second, other) = ARGS
    places = [one.find(part) for part in (NAMES[0], first, value, second, other)]
    if -1 in places or places != sorted(places):
        return None
    named, _, _, _, last = places
    head = one[named + len(NAMES[0]) : places[1]]
    middle = one[places[1] + len(first) : places[2]]
    between, end = one[places[2] + len(value) : places[3]], one[last + len(other) :]
    # the text that closes a value: the first run without white space, up to the beginning of the next tag
    closing = re.match(r"\s*(\S+)", _common(between, end))
    closes = closing[1].removesuffix("<") if closing else ""
    opens = _last_word(head)
    opening = _opening(one, two)
    if not (opens and middle and closes):
        return None
    return CallForm("pairs", opening, marks=(head.removesuffix(opens), opens, middle, closes))


def _opening(one: str, two: str) -> str:
    """The text before the name of every call; with two calls, the part that both have in common."""
    first = one[: one.index(NAMES[0])]
    if NAMES[1] not in two:
        return _last_word(first)
    behind = two[two.index(NAMES[0]) : two.index(NAMES[1])]
    return _last_word(_common(first[::-1], behind[::-1])[::-1])


def _common(one: str, other: str) -> str:
    """What both begin with."""
    most = min(len(one), len(other))
    return one[: next((i for i in range(most) if one[i] != other[i]), most)]


def _last_word(text: str) -> str:
    """The last run without white space."""
    found = re.search(r"\S+\s*$", text)
    return found[0].strip() if found else ""


def as_mapping(value: object) -> dict[str, Any] | None:
    """A JSON object, also one encoded as a string in another."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


MOST = 32
"""Most calls of one turn that are read; a model that writes more repeats itself."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: a name and arguments, or `error`, the reason why it is malformed. `is_text`: all arguments are texts,
    whatever type the tool expects."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    is_text: bool = False


def read_calls(text: str, form: CallForm) -> list[ToolCall]:
    """The calls in a turn, in order; empty if the turn is an answer. `text` includes special tokens.

    In a format without an opening, a call counts only at the start of the turn.
    """
    if form.opens:
        # a call inside the model's thinking does not count
        parts = re.sub(r"<think>.*?</think>", "", text, flags=re.S).split(form.opens)[1:]
    else:
        bare = text.strip().removeprefix("<|python_tag|>").lstrip()
        parts = [bare] if bare[:1] in ("{", "[") else []
    found: list[ToolCall] = []
    for part in parts:
        found += _OF_STYLE[form.style](part, form)
        if len(found) > MOST:
            return [*found[:MOST], ToolCall("", error=f"more than {MOST} calls in one turn: the others were not made")]
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
    # models write less between name and arguments than templates do: skip everything up to the brace
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
    # field by field: `asdict` copies nested arguments recursively and may overflow the stack
    return json.dumps(
        [{"name": c.name, "arguments": c.arguments, "error": c.error, "is_text": c.is_text} for c in calls]
    )


_OF_STYLE = {"object": _objects, "named": _named, "pairs": _pairs}
