"""What a template may do to a value: `{answer | after('####') | number}`. Text in, text out, no surprises.

A filter that finds nothing refuses the row rather than passing the text on: a gold that silently became
the whole worked solution is the error one finds weeks later. `default` is the one way around it.
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


def _after(value: object, mark: str) -> str:
    """The text after the first `mark`, without outer white space."""
    _, found, rest = as_text(value).partition(mark)
    if not found:
        raise FilterError(f"has no {mark!r} in {_short(as_text(value))}")
    return rest.strip()


def _after_last(value: object, mark: str) -> str:
    """The text after the last `mark`, without outer white space."""
    _, found, rest = as_text(value).rpartition(mark)
    if not found:
        raise FilterError(f"has no {mark!r} in {_short(as_text(value))}")
    return rest.strip()


def _before(value: object, mark: str) -> str:
    """The text before the first `mark`, without outer white space."""
    head, found, _ = as_text(value).partition(mark)
    if not found:
        raise FilterError(f"has no {mark!r} in {_short(as_text(value))}")
    return head.strip()


def _lines(value: object) -> list[str]:
    lines = [line.strip() for line in as_text(value).splitlines() if line.strip()]
    if not lines:
        raise FilterError("is empty")
    return lines


def _first_line(value: object) -> str:
    """The first line that is not blank."""
    return _lines(value)[0]


def _last_line(value: object) -> str:
    """The last line that is not blank."""
    return _lines(value)[-1]


def _number(value: object) -> str:
    """The last number in the text, without thousands commas or a trailing dot."""
    found = NUMBER.findall(as_text(value))
    if not found:
        raise FilterError(f"has no number in {_short(as_text(value))}")
    return str(found[-1]).replace(",", "").rstrip(".")


def _boxed(value: object) -> str:
    r"""What stands in the last balanced `\boxed{…}`."""
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
    """0 is A, 1 is B, …: the choice an index names."""
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 26:
        raise FilterError(f"is {_short(as_text(value))}, not an index from 0 to 25")
    return chr(ord("A") + value)


def _join(value: object, between: str = "\n") -> str:
    """The items of a list, with `between` (a line break) between them."""
    if not isinstance(value, list):
        raise FilterError(f"is {_short(as_text(value))}, not a list")
    return between.join(as_text(item) for item in value)


def _choices(value: object) -> str:
    """A list as lettered lines: `A. …`, `B. …`."""
    if not isinstance(value, list) or len(value) > 26:
        raise FilterError(f"is {_short(as_text(value))}, not a list of at most 26 choices")
    return "\n".join(f"{chr(ord('A') + i)}. {as_text(item)}" for i, item in enumerate(value))


def _default(value: object, instead: str) -> Any:
    """`instead` where the value is null, missing or empty, or an earlier filter found nothing (the template sees to those)."""
    return instead if value is None or value == "" else value


def _json(value: object, path: str = "") -> Any:
    """A text that holds JSON as the value it holds, or what stands at `path` (`a.b.0`) in it; any other value as JSON text."""
    if not isinstance(value, str):
        return _inside(value, path) if path else json.dumps(value, ensure_ascii=False)
    try:
        # NaN and Infinity are no JSON, and would turn up in a gold as numbers: `int` raises ValueError on their names
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


def _replace(value: object, old: str, new: str) -> str:
    """Every `old` replaced by `new`."""
    return as_text(value).replace(old, new)


def _lower(value: object) -> str:
    """The text in lower case."""
    return as_text(value).lower()


def _upper(value: object) -> str:
    """The text in upper case."""
    return as_text(value).upper()


def _strip(value: object) -> str:
    """The text without outer white space."""
    return as_text(value).strip()


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the function, and how few and how many arguments it takes."""

    apply: Callable[..., Any]
    fewest: int = 0
    most: int = 0


FILTERS: dict[str, Filter] = {
    "after": Filter(_after, 1, 1),
    "after_last": Filter(_after_last, 1, 1),
    "before": Filter(_before, 1, 1),
    "boxed": Filter(_boxed),
    "choices": Filter(_choices),
    "default": Filter(_default, 1, 1),
    "first_line": Filter(_first_line),
    "join": Filter(_join, 0, 1),
    "json": Filter(_json, 0, 1),
    "last_line": Filter(_last_line),
    "letter": Filter(_letter),
    "lower": Filter(_lower),
    "number": Filter(_number),
    "replace": Filter(_replace, 2, 2),
    "strip": Filter(_strip),
    "upper": Filter(_upper),
}
