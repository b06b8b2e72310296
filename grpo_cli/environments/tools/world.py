"""Tools as an environment: a turn with calls is answered with the tools' results; a turn without calls is the answer.

How this works: `schema_of` makes the schema for the chat template from a function's annotations and docstring, like
`get_json_schema` of transformers. `checked` validates the arguments of a call. `ToolWorld.step` makes the calls of a
turn one after the other.

A class for TRL's `environment_factory` works too, and has state: `reset(**columns)`, public methods that are tools, and
`get_reward()` (`trl.GRPOTrainer`, version 1.16).
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grpo_cli.environments.step import awaited
from grpo_verifiers.kinds.functions.conventions import BadFunction, place_of
from grpo_verifiers.kinds.functions.value import BadReturn
from grpo_verifiers.names import near_or_known

PLAIN: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
CLASSES: dict[str, type] = {"string": str, "boolean": bool, "array": list, "object": dict}


class BadCall(Exception):
    """A call that is invalid or failed; the message is for the model."""


class ToolServerFailed(Exception):
    """A tool's server died, did not answer in time, or broke its protocol: no action is to blame."""


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The tool that a function is.

    Raises:
        BadFunction: an argument has no type, or a type without a schema.
    """
    name = function.__name__
    # the description, each argument's description, and that of the return value (Google's docstring format)
    parts = re.split(
        r"\n\s*(Args|Arguments|Returns|Raises|Yields|Examples?):\s*\n", f"\n{inspect.getdoc(function) or ''}"
    )
    about, arguments, gives = parts[0].strip(), dict[str, str](), ""
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        if section in ("Args", "Arguments"):
            found_words = re.findall(
                r"^\s*(\w+)\s*(?:\([^)]*\))?:\s*(.*?)(?=\n\s*\w+\s*(?:\([^)]*\))?:|\Z)", body, re.M | re.S
            )
            arguments = {key: " ".join(said.split()) for key, said in found_words}
        elif section == "Returns":
            gives = " ".join(body.split())
    hints, properties, required = get_type_hints(function), dict[str, Any](), []
    for parameter in inspect.signature(function).parameters.values():
        place = place_of(function)
        where = f"`{parameter.name}` of the tool `{name}`" + (f" ({place})" if place else "")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadFunction(f"{where}: a tool has arguments by name, each with a type")
        if parameter.name not in hints:
            raise BadFunction(f"{where} has no type: write `{parameter.name}: int`, or another")
        shape, words = _type(hints[parameter.name], where), arguments.get(parameter.name, "")
        # `(choices: ["a", "b"])` at the end of an argument's description, as in transformers
        choices = re.search(r"\(choices:\s*(.*?)\)\s*$", words, flags=re.I | re.S)
        if choices:
            try:
                shape = shape | {"enum": [str(one).strip() for one in json.loads(choices[1])]}
                words = words[: choices.start()].strip()
            except (ValueError, TypeError):
                pass  # no list: keep it as part of the description
        properties[parameter.name] = shape | ({"description": words} if words else {})
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    whole: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    found: dict[str, Any] = {"name": name, "description": about, "parameters": whole}
    if hints.get("return", type(None)) is not type(None):
        try:  # templates rarely show the return type, so one without a schema is no error
            shown = _type(hints["return"], "")
        except BadFunction:
            shown = {}
        if shown:
            found["return"] = shown | ({"description": gives} if gives else {})
    return {"type": "function", "function": found}


def checked(schema: Mapping[str, Any], arguments: Mapping[str, Any], *, is_text: bool) -> dict[str, Any]:
    """The arguments of a call, converted to the function's types; `is_text`: each was given as text.

    Raises:
        BadCall: one is unknown, missing or of another type.
    """
    inner = schema["function"]
    properties, name = inner["parameters"].get("properties", {}), inner["name"]
    for key in arguments:
        if key not in properties and not inner["parameters"].get("additionalProperties"):
            raise BadCall(f"`{name}` has no argument `{key}`{near_or_known(key, properties)}")
    missing = [key for key in inner["parameters"].get("required", ()) if key not in arguments]
    if missing:
        raise BadCall(f"`{name}` needs the argument `{missing[0]}`")
    return {key: _fitted(value, properties.get(key, {}), f"`{key}`", is_text) for key, value in arguments.items()}


def _fitted(value: Any, kind: Mapping[str, Any], where: str, is_text: bool) -> Any:
    names = kind.get("type", [one.get("type", "") for one in kind.get("anyOf", ())])
    wanted = [names] if isinstance(names, str) else list(names)
    if "" in wanted or "$ref" in kind:  # what is not judged here, its server judges
        wanted = ["string"] if is_text and "$ref" not in kind else []
    if is_text and isinstance(value, str) and "$ref" in kind:
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if is_text and isinstance(value, str) and "string" not in wanted and wanted:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadCall(f"{where} must be {_words(kind)}, not {value[:80]!r}") from None
    if value is None and (kind.get("nullable") or "null" in wanted):
        return None
    if "enum" in kind and value not in kind["enum"]:
        raise BadCall(f"{where} must be one of {', '.join(map(repr, kind['enum']))}, not {value!r:.80}")
    if not wanted:
        return value
    for name in wanted:
        if name == "null":
            continue
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        # in Python true and false are integers; here they are not
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, CLASSES.get(name, object))
        if name in ("integer", "number"):
            fits = is_number and (name == "number" or isinstance(value, int))
        if not fits:
            continue
        # the items of a list and the values of an object by their own type
        if isinstance(value, list) and isinstance(kind.get("items"), Mapping):
            return [_fitted(item, kind["items"], f"{where}[{i}]", False) for i, item in enumerate(value)]
        if isinstance(value, dict) and isinstance(kind.get("additionalProperties"), Mapping):
            inner = kind["additionalProperties"]
            return {key: _fitted(item, inner, f"{where}.{key}", False) for key, item in value.items()}
        return value
    raise BadCall(f"{where} must be {_words(kind)}, not {json.dumps(value)[:80]}")


def _words(kind: Mapping[str, Any]) -> str:
    names = kind.get("type", [one.get("type", "another value") for one in kind.get("anyOf", ())])
    said = " or ".join([names] if isinstance(names, str) else names)
    return f"{'an' if said[:1] in 'aeio' else 'a'} {said}"


def _type(hint: Any, where: str) -> dict[str, Any]:
    """The schema of an annotation.

    Raises:
        BadFunction: it has none.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint is Any:
        return {}
    if origin in (Union, types.UnionType):
        found = [_type(one, where) for one in inner if one is not type(None)]
        plain = all(set(one) == {"type"} and isinstance(one["type"], str) for one in found)
        if len(found) == 1:
            shape = found[0]
        elif plain:
            shape = {"type": sorted(one["type"] for one in found)}
        else:
            raise BadFunction(f"{where} may be of several types that are no plain ones: write one of them")
        return shape | ({"nullable": True} if type(None) in inner else {})
    if origin is Literal:
        kinds = sorted({PLAIN[type(value)] for value in inner if type(value) in PLAIN})
        if not kinds:
            raise BadFunction(f"{where} has the type `{hint}`: a literal has texts, numbers or true and false")
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(inner)}
    if hint is list or origin is list:
        return {"type": "array"} | ({"items": _type(inner[0], where)} if inner else {})
    if hint is dict or origin is dict:
        return {"type": "object"} | ({"additionalProperties": _type(inner[1], where)} if inner else {})
    raise BadFunction(
        f"{where} has the type `{getattr(hint, '__name__', hint)}`: a tool takes str, int, float, bool, list, dict,"
        " a Literal or one of these or None"
    )


OWN = ("reset", "get_reward")
"""Methods of TRL's classes that are no tools."""


@dataclass(frozen=True)
class Tool:
    """A function with its schema."""

    function: Callable[..., Any]
    schema: Mapping[str, Any]

    def answer(self, arguments: Mapping[str, Any], *, is_text: bool) -> str:
        """The tool's result for these arguments, as text.

        Raises:
            BadCall: the arguments do not fit, or the tool raised; the message is for the model.
        """
        given = checked(self.schema, arguments, is_text=is_text)
        try:
            return str(awaited(self.function(**given)))
        except (MemoryError, ToolServerFailed, BadCall):
            raise  # the limit of the worker, or a server: it ends the environment, not the call
        except Exception as err:  # the model sees the tool's exception
            name = self.schema["function"]["name"]
            print(f"the tool `{name}` raised {type(err).__name__}: {err}")
            raise BadCall(f"{type(err).__name__}: {err}") from err


class ToolWorld:
    """Functions, or the methods of one object, as an environment. An episode ends with the first turn without a
    call."""

    def __init__(self, tools: Mapping[str, Tool], inner: Any = None, begin: Callable[[], None] = lambda: None) -> None:
        """`begin` is called as a turn begins."""
        self.tools, self.inner, self.begin = tools, inner, begin

    def reset(self, row: Mapping[str, Any], seed: int) -> Any:
        """The object's first observation; functions have no state."""
        if self.inner is None:
            return None
        first = awaited(self.inner.reset(**row))
        if isinstance(first, list):
            raise BadReturn("`reset` returned a list of parts: only text is taken here")
        return first

    def step(self, action: str) -> dict[str, Any]:
        """`action` is the turn's calls as JSON. A call that fails is answered with the reason, and is not a valid
        action."""
        answers, all_made = list[str](), True
        calls = json.loads(action)
        if not calls:
            return {"done": True}
        self.begin()
        for call in calls:
            name = call["name"]
            try:
                if call["error"]:
                    raise BadCall(call["error"])
                if name not in self.tools:
                    raise BadCall(f"there is no tool `{name}`{near_or_known(name, self.tools)}")
                answers.append(self.tools[name].answer(call["arguments"], is_text=call["is_text"]))
            except BadCall as err:
                answers.append(f"error: {err}")
                all_made = False
        return {"observation": answers, "valid": all_made}

    def score(self) -> Any:
        """The object's own reward; None if it has none, so that verifiers judge the answer."""
        reward = getattr(self.inner, "get_reward", None)
        return awaited(reward()) if callable(reward) else None


def tools_of(functions: Sequence[Callable[..., Any]]) -> dict[str, Tool]:
    """Functions by their name.

    Raises:
        BadFunction: two have the same name, or one is no tool.
    """
    found: dict[str, Tool] = {}
    for function in functions:
        schema = schema_of(function)
        name = schema["function"]["name"]
        if name in found:
            raise BadFunction(f"two tools are called `{name}`")
        found[name] = Tool(function, schema)
    return found
