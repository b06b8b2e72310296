"""Dataclasses of the solution: their fields as the test program's own library finds them, and when objects may be equal."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

from ...wire import Fields
from ..ends import Connection
from .handles import Handle, compared_fields, text


def data_body(link: Connection, about: Fields) -> dict[str, Any]:
    specs = []
    for name, kind, has_default, default, is_init, kw_only, is_compared in about["fields"]:
        value = link.decode(default)
        options: dict[str, Any] = {"init": bool(is_init), "kw_only": bool(kw_only), "compare": bool(is_compared)}
        if has_default:
            options["default_factory"] = lambda value=value: value
        specs.append((text(name), link.decode(kind), dataclasses.field(**options)))
    order = {s[0]: i for i, s in enumerate(specs)}
    specs.sort(key=lambda s: s[2].default_factory is not dataclasses.MISSING)
    plain: Any = dataclasses.make_dataclass("Fields", specs)
    fields = dict(sorted(plain.__dataclass_fields__.items(), key=lambda f: order[f[0]]))
    return {
        "__dataclass_fields__": fields,
        "__dataclass_params__": plain.__dataclass_params__,
        "__match_args__": tuple(fields),
        **_deciding(about),
    }


def _deciding(about: Fields) -> dict[str, Any]:
    """Hash and order as the library makes them of the fields; where the class has its own, they are not taken."""
    compared = [i for i, f in enumerate(about["fields"]) if f[6]]
    body: dict[str, Any] = {"_compared": compared if about.get("equal") else None}
    if about.get("hashed"):
        body["__hash__"] = lambda self: hash((type(self), *(compared_fields(self) or [id(self)])))
    if about.get("order"):
        for name in ("lt", "le", "gt", "ge"):
            body[f"__{name}__"] = _ordered(getattr(operator, name))
    return body


def _ordered(decide: Callable[[Any, Any], bool]) -> Any:
    def method(self: object, other: object) -> Any:
        mine, others = compared_fields(self), compared_fields(other)
        if type(other) is not type(self) or mine is None or others is None:
            return NotImplemented
        return decide(mine, others)

    return method


def is_as_made(
    link: Connection, about: Fields | None, made: Handle, cls: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether a new dataclass object holds what the test made it from; only then may it be equal to another."""
    if about is None or type(made) is not cls or not about.get("plain"):
        return False
    now, fields = made._fields or [], about["fields"]
    places = [i for i, f in enumerate(fields) if f[4] and not f[5]]
    if len(args) > len(places):
        return False
    given = dict(zip(places, args, strict=False))
    names = {f[0]: i for i, f in enumerate(fields)}
    for name, value in kwargs.items():
        if name not in names or names[name] in given:
            return False
        given[names[name]] = value
    for i, field in enumerate(fields):
        if i not in given and not field[2]:
            return False
        expected = given[i] if i in given else link.decode(field[3])
        if now[i] != expected and now[i] is not expected:
            return False
    now[:] = [given.get(i, value) for i, value in enumerate(now)]
    return True
