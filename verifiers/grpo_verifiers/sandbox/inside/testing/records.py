"""Dataclasses of the solution: their fields as the test program's own library finds them, and when objects may be equal."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..wire import Value
from .ends import Connection
from .handles import text


def data_body(link: Connection, about: Value) -> dict[str, Any]:
    specs = []
    for name, kind, has_default, default, is_init, kw_only in about["fields"]:
        value = link.decode(default)
        options: dict[str, Any] = {"init": bool(is_init), "kw_only": bool(kw_only)}
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
    }


def is_as_made(
    link: Connection, about: Value, made: Value, cls: Value, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether a new dataclass object holds what the test made it from; only then may it be equal to another."""
    if about is None or type(made) is not cls or not about.get("plain"):
        return False
    fields = about["fields"]
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
        if made._fields[i] != expected and made._fields[i] is not expected:
            return False
    made._fields[:] = [given.get(i, now) for i, now in enumerate(made._fields)]
    return True
