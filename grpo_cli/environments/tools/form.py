"""How a model writes calls of tools, learned from its own chat template: two calls are rendered and looked at.

    object   <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>       name and arguments in one JSON object, or in a list
    named    to=functions.add<|message|>{"a": 1}<|call|>                         the name, then the arguments as JSON
    pairs    <function=add><parameter=a>1</parameter></function>                 each argument by itself, as text

So there is no table of models: a template that can show a call of an assistant says how that is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], bool], str]
"""Text of messages with these tools, with or without the opening of the model's turn; raises ValueError where it cannot."""

NAMES = ("first_qx", "second_qz")
ARGS = (("where_qk", "north_qv"), ("when_qj", "today_qw"))

SHORTEST = 5
"""Letters of an opening: a shorter one would be found in answers."""


class UnknownCallForm(ValueError):
    """The template shows no calls, or shows them in a way that is not known; the message says which."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How calls are written. `opens` stands before a call (empty: it is the whole turn, or nothing is)."""

    style: Literal["object", "named", "pairs"]
    opens: str
    name_key: str = ""
    args_key: str = ""
    inside: str = ""
    """A key whose value holds name and arguments (`function`), or empty."""
    marks: tuple[str, ...] = ()
    """named: what stands between name and arguments. pairs: before an argument's name, behind it, behind its value."""
    as_text: bool = False
    """Whether the template takes the arguments of a call as text only."""


def learn_call_form(render: Render) -> CallForm:
    """The form of a chat template's calls.

    Raises:
        UnknownCallForm: it has none.
    """
    as_text = False
    try:
        one, two = _shown(render, dict(ARGS))
    except ValueError as err:
        try:
            one, two = _shown(render, json.dumps(dict(ARGS)))  # some write arguments down as they come
            as_text = True
        except ValueError:
            raise UnknownCallForm(f"it refuses a call of a tool: {err}") from err
    if not all(part in one for part in (NAMES[0], *ARGS[0])):
        raise UnknownCallForm("it leaves the calls of a turn out")
    found = _object(one) or _named(one, two) or _pairs(one, two)
    if found is None or (found.style != "object" and len(found.opens) < SHORTEST):
        raise UnknownCallForm(f"it writes calls in a form that is not read here: {one.strip()[:120]!r}")
    return replace(found, as_text=as_text)


def _shown(render: Render, arguments: dict[str, str] | str) -> tuple[str, str]:
    """A turn with one call, and one with two, which is empty where the template takes one call a turn.

    Raises:
        ValueError: it takes none.
    """
    tools, user = [_tool(name) for name in NAMES], {"role": "user", "content": "go"}
    opened, before = render([user], tools, True), render([user], tools, False)

    def said(names: Sequence[str]) -> str:
        whole = render([user, turn_with_calls(names, arguments, "")], tools, False)
        # some open a turn otherwise than they write it: with a thought, say
        return whole.removeprefix(opened) if whole.startswith(opened) else whole.removeprefix(before)

    one = said(NAMES[:1])
    try:
        return one, said(NAMES)
    except ValueError:
        return one, ""


def _tool(name: str) -> dict[str, Any]:
    kinds = {arg: {"type": "string", "description": "a word"} for arg, _ in ARGS}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "nothing",
            "parameters": {"type": "object", "properties": kinds, "required": list(kinds)},
        },
    }


def turn_with_calls(names: Sequence[str], arguments: dict[str, str] | str, content: str) -> dict[str, Any]:
    """A turn of the assistant that calls tools, as data sets and templates have it; ids are of nine letters (Mistral's)."""
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


def _object(said: str) -> CallForm | None:
    for at, letter in enumerate(said):
        if letter not in "{[" or at > said.index(NAMES[0]):
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(said, at)
        except ValueError:
            continue
        value = value[0] if isinstance(value, list) and value else value
        keys = _keys(value)
        if keys is not None:
            return CallForm("object", _last_word(said[:at]), *keys)
    return None


def _keys(value: object) -> tuple[str, str, str] | None:
    """Which keys hold name and arguments, and inside which."""
    if not isinstance(value, dict):
        return None
    for inside, inner in [("", value), *((k, v) for k, v in value.items() if isinstance(v, dict))]:
        name = next((k for k, v in inner.items() if v == NAMES[0]), None)
        args = next((k for k, v in inner.items() if as_mapping(v) == dict(ARGS)), None)
        if name is not None and args is not None:
            return name, args, inside
    return None


def _named(one: str, two: str) -> CallForm | None:
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


def _pairs(one: str, two: str) -> CallForm | None:
    (first, value), (second, other) = ARGS
    places = [one.find(part) for part in (NAMES[0], first, value, second, other)]
    if -1 in places or places != sorted(places):
        return None
    named, _, _, _, last = places
    head = one[named + len(NAMES[0]) : places[1]]
    middle = one[places[1] + len(first) : places[2]]
    between, end = one[places[2] + len(value) : places[3]], one[last + len(other) :]
    opens, closes = _last_word(head), _first_tag(_common(between, end))
    opening = _opening(one, two)
    if not (opens and middle and closes):
        return None
    return CallForm("pairs", opening, marks=(head.removesuffix(opens), opens, middle, closes))


def _opening(one: str, two: str) -> str:
    """What stands before the name of every call: with two calls, what both have in common."""
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


def _first_tag(text: str) -> str:
    """The first run without white space, without the beginning of a next tag."""
    found = re.match(r"\s*(\S+)", text)
    return (found[1][:-1] if found[1].endswith("<") else found[1]) if found else ""


def as_mapping(value: object) -> dict[str, Any] | None:
    """A JSON object, also one that stands as text in another."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
