"""JSON in a completion: where it stands, and a strict reading of it.

The last fenced block counts, else the last bracketed value after the thinking; never an earlier one that happens to
fit. NaN and repeated keys are no JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

from grpo_verifiers.strict_json import RepeatedKey, once
from grpo_verifiers.thinking import after_thinking

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
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=once)
    except RepeatedKey:
        raise BadJson("repeated_key") from None
    except RecursionError:
        raise BadJson("too_deep") from None
    if _depth(value) > _DEEPEST:
        raise BadJson("too_deep")
    return value


def _refuse(word: str) -> Any:
    raise BadJson("not_a_number")


def _depth(value: object) -> int:
    level, depth = [value], 0
    while level and depth <= _DEEPEST:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return depth


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
            elif char in '"\n':  # a line break ends what was only a quotation mark in prose
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
