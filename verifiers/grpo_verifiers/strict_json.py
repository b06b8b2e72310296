"""JSON without repeated keys: it is unknown which of two values is meant, and `json` would silently take the last."""

from __future__ import annotations

import json
from typing import Any


class RepeatedKey(ValueError):
    """An object has a key twice; the message names the key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key `{key[:80]}` is said twice")


class Marked(dict[str, Any]):
    """An object that has a key twice, with the error to raise."""

    error: RepeatedKey


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these pairs, as `object_pairs_hook` of `json.loads`.

    Raises:
        RepeatedKey: two have the same key.
    """
    out = mark(pairs)
    if isinstance(out, Marked):
        raise out.error
    return out


def loads(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        RepeatedKey: an object in it has a key twice.
        ValueError: it is no JSON.
    """
    return json.loads(text, object_pairs_hook=once)


def marked(text: str | bytes) -> Any:
    """The value of a JSON text that `loads` refuses for a repeated key, to find out which of its parts hold one."""
    return json.loads(text, object_pairs_hook=mark)


def problem(value: object) -> RepeatedKey | None:
    """The first repeated key inside a marked value."""
    if isinstance(value, Marked):
        return value.error
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := problem(one)) is not None), None)


def mark(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Like `once`, but an object with a repeated key is marked instead of refused."""
    out = dict(pairs)
    if len(out) == len(pairs):
        return out
    repeated = Marked(out)
    keys = [key for key, _ in pairs]
    repeated.error = RepeatedKey(next(key for at, key in enumerate(keys) if key in keys[:at]))
    return repeated
