"""JSON in a completion: finding it, parsing it strictly, and checking it against a schema.

How this works: `find_json` returns the text of the value that a completion states: the last fenced block, else the last bracketed
value after the thinking; never an earlier one that happens to fit. `parse` reads it and refuses NaN and repeated keys.
`schema_problem` checks a schema once, before any sample. A schema may hold patterns that backtrack for ever on the
wrong text, so it is only applied in a killable worker (`serve`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from grpo_verifiers.kinds.json_formats import FORMATS, has_format, python_pattern
from grpo_verifiers.strict_json import RepeatedKey, once
from grpo_verifiers.thinking import after_thinking

if TYPE_CHECKING:
    from referencing._core import Resolved, Resolver


_FENCE = re.compile(r"```([\w+-]{0,20})[ \t]{0,20}\r?\n(.*?)```", re.S)
_HEDGE = re.compile(
    r"(?:[}\]]|```|</answer>)[\s,;.]{0,9}(?:or|alternatively)[\s,:]{0,9}(?:(?:maybe|perhaps|possibly|else|even|just|it is|it could be)[\s,:]{0,9})?$",
    re.I,
)
_DEEPEST = 100


class BadJson(ValueError):
    """Text that is no strict JSON; the message is the reason code."""


def parse(text: str) -> Any:
    """Strict JSON.

    Raises:
        ValueError: it is not.
    """

    def refuse(word: str) -> Any:
        raise BadJson("not_a_number")

    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except RepeatedKey:
        raise BadJson("repeated_key") from None
    except RecursionError:
        raise BadJson("too_deep") from None
    level, depth = [value], 0
    while level:
        if depth == _DEEPEST:
            raise BadJson("too_deep")
        inside = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for values in inside for one in values if isinstance(one, dict | list)]
        depth += 1
    return value


def find_json(completion: str, how: str) -> tuple[str | None, str]:
    """The text of the value that a completion states, or why there is none."""
    text, is_open, _ = after_thinking(completion)
    if is_open:
        return None, "in_thinking"
    if how == "whole":
        return (text.strip(), "") if text.strip() else (None, "empty")
    fences = [match for match in _FENCE.finditer(text) if match[1].lower() in ("", "json", "json5", "jsonc")]
    if fences:
        return _unless_hedged(text, fences[-1].start(), fences[-1][2].strip())
    if how == "fence":
        return None, "no_fence"
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return _unless_hedged(text, start, text[start + len("<answer>") : end].strip())
    found = last_value(text)
    return (None, "no_json") if found is None else _unless_hedged(text, text.rfind(found), found)


def _unless_hedged(text: str, start: int, value: str) -> tuple[str | None, str]:
    """The value, unless it is the second of two joined by `or`."""
    return (None, "hedge") if _HEDGE.search(text[max(0, start - 60) : start]) else (value, "")


def last_value(text: str) -> str | None:
    """The last bracketed value of a text: from its last closing bracket back to the one that opens it."""
    end = max(text.rfind("}"), text.rfind("]"))
    starts: list[int] = []
    is_string, at = False, 0
    while at <= end:
        char = text[at]
        if is_string:
            if char == "\\":
                at += 1
            elif char in '"\n':  # a line break shows that the quotation mark was part of prose
                is_string = False
        elif char == '"' and starts:
            is_string = True
        elif char in "{[":
            starts.append(at)
        elif char in "}]" and starts:
            start = starts.pop()
            if at == end:
                return text[start : end + 1]
        at += 1
    return None


# JSON Schema.

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_KNOWN_FORMATS = frozenset((*FORMATS, "idn-hostname", "color"))


def schema_problem(schema: object, asserts_formats: bool = True) -> str:
    """The mistake in a schema, in words; empty if there is none.

    A reference must lead into the schema itself or into the metaschema of a draft: nothing is ever fetched. With
    `asserts_formats` a format of the drafts that cannot be checked here is wrong too.
    """
    if not isinstance(schema, dict | bool):
        return "the schema is no object"
    try:
        import jsonschema
    except ModuleNotFoundError:
        return "checking a schema needs the package jsonschema"
    try:
        return next(_problems(schema, asserts_formats), "")
    except jsonschema.SchemaError as err:
        where = "/".join(map(str, err.absolute_path)) or "its top"
        return f"the schema is not valid at {where}: {err.message[:200]}"
    except RecursionError:
        return "the schema is nested too deep"


def _draft(schema: dict[str, Any] | bool) -> Any:
    """The library's class for the draft that a schema names, 2020-12 where it names none; None for an unknown one."""
    import jsonschema

    if isinstance(schema, bool) or "$schema" not in schema:
        return jsonschema.Draft202012Validator
    name = schema["$schema"]
    return jsonschema.validators.validator_for(schema, None) if isinstance(name, str) else None


@lru_cache(maxsize=2)
def _format_checker(is_third: bool) -> Any:
    """Checks of formats, draft 3's or those of all drafts since: ours, and the library's of what is not among them."""
    import jsonschema

    kind = jsonschema.Draft3Validator if is_third else jsonschema.Draft202012Validator
    checker = jsonschema.FormatChecker(formats=())
    checker.checkers = {
        name: check
        for name, check in kind.FORMAT_CHECKER.checkers.items()
        if name in ("idn-hostname", "color") or (is_third and name == "time")
    }
    for name in FORMATS:
        if is_third == (name in ("ip-address", "host-name")) or name in (
            "date",
            "date-time",
            "email",
            "ipv6",
            "uri",
            "regex",
        ):
            checker.checks(name)(lambda value, name=name: not isinstance(value, str) or has_format(name, value))
    return checker


def _problems(
    schema: dict[str, Any] | bool, asserts_formats: bool, parts: list[dict[str, Any]] | None = None
) -> Iterator[str]:
    """Problems of a schema and of every place that it refers to, each of which is added to `parts`.

    Raises:
        jsonschema.SchemaError: a part is no schema of its draft.
    """
    import jsonschema
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import specification_with

    draft = _draft(schema)
    if draft is None:
        yield "the schema's `$schema` is no draft that is known here"
        return
    checker = _format_checker(draft is jsonschema.Draft3Validator)
    only_patterns = jsonschema.FormatChecker(formats=())
    only_patterns.checkers = {"regex": checker.checkers["regex"]}
    draft.check_schema(schema, format_checker=only_patterns)
    kind = specification_with(draft.META_SCHEMA["$schema"])
    root = kind.create_resource(schema)
    own = {id(one) for one in _objects(schema)}
    waiting, seen = [(root, REGISTRY.resolver_with_root(root))], set[int]()
    while waiting:
        part, resolver = waiting.pop()
        held = part.contents
        if not isinstance(held, dict) or id(held) in seen:
            continue
        seen.add(id(held))
        if parts is not None:
            parts.append(held)
        if _draft(held) is None:
            yield f"the schema has a `$schema` inside that is no draft that is known here: {held['$schema']!r:.100}"
        if asserts_formats and held.get("format") in _KNOWN_FORMATS - checker.checkers.keys():
            yield (
                f"checking `format: {held['format']}` needs `pip install 'jsonschema[format-nongpl]'`; "
                "`assert_format: false` leaves formats unchecked"
            )
        for key in _REFERENCES:
            target = held.get(key)
            if target is None:
                continue
            found = _followed(resolver, target)
            if isinstance(found, str):
                yield found
            elif id(found.contents) in own - seen:  # not a metaschema: that is the library's
                draft.check_schema(found.contents, format_checker=only_patterns)
                waiting.append((kind.detect(found.contents).create_resource(found.contents), found.resolver))
        # `referencing` does not list the schemas of draft 3, nor those of `dependencies` that begin with a name
        places = [*map(held.get, ("extends", "type", "disallow")), list((held.get("dependencies") or {}).values())]
        listed = [one for place in places for one in (place if isinstance(place, list) else [place])]
        inner = [*part.subresources(), *(kind.create_resource(one) for one in listed if isinstance(one, dict))]
        waiting += [(one, resolver.in_subresource(one)) for one in inner if isinstance(one.contents, dict)]


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """All objects of a schema, wherever they lie."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _objects(inner)


def _followed(resolver: Resolver[Any], target: object) -> Resolved[Any] | str:
    """The target of a reference, or the mistake in it, in words."""
    from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable

    if not isinstance(target, str):
        return f"the schema has a reference that is no text: {target!r:.100}"
    try:
        found = resolver.lookup(target)
        return found if isinstance(found.contents, dict | bool) else f"the schema has no schema at `{target}`"
    except (PointerToNowhere, NoSuchAnchor, InvalidAnchor):
        return f"the schema has nothing at `{target[:100]}`"
    except Unresolvable:
        return f"the schema refers to another document, `{target[:100]}`; nothing is fetched"
    except (AttributeError, TypeError, ValueError) as err:
        # a pointer through a text, an address that is none, an object under `extends` of draft 3
        return f"the schema's reference `{target[:100]}` cannot be followed: {err}"


def serve(asserts_formats: bool) -> tuple[Callable[[tuple[dict[str, Any], str]], str | None], None]:
    """The pool's task: the first violation of a schema, in words, or None."""
    import jsonschema  # imported here, since the task's work is timed
    from referencing import Registry

    known: dict[str, Any] = {}

    def work(item: tuple[dict[str, Any], str]) -> str | None:
        schema, text = item
        key = json.dumps(schema, sort_keys=True)
        if key not in known:
            own, parts = json.loads(key), list[dict[str, Any]]()
            list(_problems(own, False, parts))
            for part in parts:
                if isinstance(part.get("pattern"), str):
                    part["pattern"] = python_pattern(part["pattern"])
                if isinstance(part.get("patternProperties"), dict):
                    part["patternProperties"] = {python_pattern(k): v for k, v in part["patternProperties"].items()}
            draft = _draft(own)
            checker = _format_checker(draft is jsonschema.Draft3Validator) if asserts_formats else None
            # a registry of its own: the library's default one fetches what it does not hold
            known[key] = draft(own, format_checker=checker, registry=Registry())
        first = next(iter(known[key].iter_errors(parse(text))), None)
        if first is None:
            return None
        where = "/".join(map(str, first.absolute_path))
        return f"{where or 'the value'}: {first.message}"[:300]

    return work, None
