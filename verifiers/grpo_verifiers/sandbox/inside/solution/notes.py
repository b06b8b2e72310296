"""What a test may ask of a function or class besides its values: annotations, parameters, defaults. None is sent unasked."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from .. import standard, wire


def notes(owner: object, is_asked: bool = True) -> dict[str, Any]:
    """The annotations of a function or of a class itself, those that the other side cannot make again as their text.

    What nobody has asked for is of the library's classes alone: describing one of the solution's runs code of its own.
    """
    is_class = isinstance(owner, type)
    found = vars(owner).get("__annotations__") if is_class else getattr(owner, "__annotations__", None)
    return {name: note(value, is_asked) for name, value in found.items()} if type(found) is dict else {}


def note(value: object, is_asked: bool) -> Any:
    """One annotation, or its text."""
    try:
        return value if _crosses(value, is_asked) else inspect.formatannotation(value)
    except Exception:  # noqa: BLE001 - an attribute or text of the solution's own that fails, or a list that holds itself
        return type(value).__name__


def signature(function: Callable[..., Any]) -> list[Any]:
    """The annotations of a function, and name, kind and default of each parameter; none where Python knows none."""
    try:
        found = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return [notes(function), []]
    none = inspect.Parameter.empty
    given = [[p.name, int(p.kind), p.default is not none, None if p.default is none else p.default] for p in found]
    return [notes(function), given]


def _crosses(value: object, is_asked: bool) -> bool:
    """Whether the test program's side can have this annotation as well."""
    if isinstance(value, type) and not isinstance(value, types.GenericAlias):
        is_named = getattr(sys.modules.get(value.__module__), value.__name__, None) is value
        if not is_asked:
            return is_named and value.__module__ in standard.CLASSES_OF
        return type(value).__module__ in ("builtins", "abc", "enum", "typing")
    if type(value) is typing.TypeVar:
        return is_asked
    found = ("", value) if isinstance(value, list) else alias(value)
    if found is not None:
        return all(_crosses(part, is_asked) for part in found[1])
    try:
        wire.encode(value)
    except wire.NotPlain:
        return False
    return True


def alias(value: object) -> tuple[str, tuple[Any, ...]] | None:
    """`list[int]`, `List[int]`, `int | None`, `Optional[int]`: what is subscripted and by what."""
    origin, args = getattr(value, "__origin__", None), getattr(value, "__args__", ())
    if isinstance(value, types.UnionType):
        return "|", args
    if isinstance(value, types.GenericAlias):
        return "[]", (origin, *_subscript(value, args))
    if type(value).__module__ == "typing":
        if value is typing.Any:
            return "Any", ()
        if origin is typing.Union:
            return "Union", args
        name = getattr(value, "_name", None) or getattr(origin, "_name", None)
        if hasattr(value, "__metadata__"):
            return "typing.Annotated", (origin, *value.__metadata__)
        if type(name) is str and hasattr(typing, name):
            return "typing." + name, _subscript(value, args)
    return None


def _subscript(value: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What stood in the brackets: the parameters of a `Callable` are a list there."""
    if args and typing.get_origin(value) is Callable and args[0] is not ...:
        return [*args[:-1]], args[-1]
    return args
