"""The filters of a template: `{answer | after('####') | number}`. A filter takes text and returns text.

A filter that finds nothing refuses the row and does not pass the text on: otherwise the whole worked solution could
silently become the gold. Only `default` gives a value instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.strict_json import RepeatedKey, once

NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class FilterError(ValueError):
    """A value that a filter cannot work on; the message has the reason, without the row."""


class NullError(FilterError):
    """The value is null."""


def as_text(value: object) -> str:
    """The text of a value: strings as they are, numbers and true/false as JSON spells them, lists and objects as JSON.

    Raises:
        NullError: the value is null.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise NullError("is null")
    return json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _around(value: object, mark: str, is_last: bool = False) -> tuple[str, str]:
    """The texts before and after the first or the last `mark`."""
    text = as_text(value)
    head, found, rest = text.rpartition(mark) if is_last else text.partition(mark)
    if not found:
        raise FilterError(f"has no {mark!r} in {_short(text)}")
    return head.strip(), rest.strip()


def _lines(value: object) -> list[str]:
    lines = [line.strip() for line in as_text(value).splitlines() if line.strip()]
    if not lines:
        raise FilterError("is empty")
    return lines


def _number(value: object) -> str:
    found = NUMBER.findall(as_text(value))
    if not found:
        raise FilterError(f"has no number in {_short(as_text(value))}")
    return str(found[-1]).replace(",", "").rstrip(".")


def _boxed(value: object) -> str:
    text = as_text(value)
    start = text.rfind("\\boxed{")
    depth, at = 0, start + len("\\boxed")
    while start >= 0 and at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in "{}":
            depth += 1 if text[at] == "{" else -1
            if depth == 0:
                return text[start + len("\\boxed{") : at].strip()
        at += 1
    raise FilterError(f"has no closed \\boxed{{…}} in {_short(text[-40:])}")


def _letter(value: object) -> str:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 26:
        raise FilterError(f"is {_short(as_text(value))}, not an index from 0 to 25")
    return chr(ord("A") + value)


def _join(value: object, between: str = "\n") -> str:
    if not isinstance(value, list):
        raise FilterError(f"is {_short(as_text(value))}, not a list")
    return between.join(as_text(item) for item in value)


def _choices(value: object) -> str:
    if not isinstance(value, list) or len(value) > 26:
        raise FilterError(f"is {_short(as_text(value))}, not a list of at most 26 choices")
    return "\n".join(f"{chr(ord('A') + i)}. {as_text(item)}" for i, item in enumerate(value))


def _json(value: object, path: str = "") -> Any:
    if not isinstance(value, str):
        return _inside(value, path) if path else json.dumps(value, ensure_ascii=False)
    try:
        # NaN and Infinity are no JSON but would be read as numbers of a gold: `int` raises ValueError on these names
        found = json.loads(value, parse_constant=int, object_pairs_hook=once)
    except RepeatedKey as err:
        raise FilterError(f"holds JSON in which {err}: {_short(value)}") from err
    except (ValueError, RecursionError) as err:
        raise FilterError(f"holds no JSON: {_short(value)}") from err
    return _inside(found, path) if path else found


def _inside(value: object, path: str) -> Any:
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            known = f"; it has {', '.join(list(map(str, value))[:12])}" if isinstance(value, dict) else ""
            raise FilterError(f"has nothing at `{path}`{known}")
    return value


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: its description, its function, and the least and the most arguments that it takes."""

    gives: str
    apply: Callable[..., Any]
    fewest: int = 0
    most: int = 0


FILTERS: dict[str, Filter] = {
    "after": Filter(
        "The text after the first `mark`, without outer white space.", lambda value, mark: _around(value, mark)[1], 1, 1
    ),
    "after_last": Filter(
        "The text after the last `mark`, without outer white space.",
        lambda value, mark: _around(value, mark, is_last=True)[1],
        1,
        1,
    ),
    "before": Filter(
        "The text before the first `mark`, without outer white space.",
        lambda value, mark: _around(value, mark)[0],
        1,
        1,
    ),
    "boxed": Filter(r"What stands in the last balanced `\boxed{…}`.", _boxed),
    "choices": Filter("A list as lettered lines: `A. …`, `B. …`.", _choices),
    "default": Filter(
        "`instead` where the value is null, missing or empty, or an earlier filter found nothing (the template sees to those).",
        lambda value, instead: instead if value is None or value == "" else value,
        1,
        1,
    ),
    "first_line": Filter("The first line that is not blank.", lambda value: _lines(value)[0]),
    "join": Filter("The items of a list, with `between` (a line break) between them.", _join, 0, 1),
    "json": Filter(
        "A text that holds JSON as the value it holds, or what stands at `path` (`a.b.0`) in it; any other value as JSON text.",
        _json,
        0,
        1,
    ),
    "last_line": Filter("The last line that is not blank.", lambda value: _lines(value)[-1]),
    "letter": Filter("0 is A, 1 is B, …: the choice an index names.", _letter),
    "lower": Filter("The text in lower case.", lambda value: as_text(value).lower()),
    "number": Filter("The last number in the text, without thousands commas or a trailing dot.", _number),
    "replace": Filter("Every `old` replaced by `new`.", lambda value, old, new: as_text(value).replace(old, new), 2, 2),
    "strip": Filter("The text without outer white space.", lambda value: as_text(value).strip()),
    "upper": Filter("The text in upper case.", lambda value: as_text(value).upper()),
}
