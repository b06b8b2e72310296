"""What the solution's side is told of classes that the test derives from the solution's, and of the test's own beside them."""

from __future__ import annotations

import types
from typing import Any

from ..ends import Connection

STAYING = ("__module__", "__qualname__", "__doc__", "__classcell__", "__slots__", "__annotations__")
WAYS: dict[type, str] = {staticmethod: "static", classmethod: "class", property: "property"}


def parted(link: Connection, space: dict[str, Any]) -> tuple[list[list[Any]], dict[str, Any]]:
    """The members of a class body for the other side (name, how, value), and what stays here."""
    members, kept = list[list[Any]](), dict[str, Any]()
    for key, value in space.items():
        how = WAYS.get(type(value), "")
        if isinstance(value, types.FunctionType):
            members.append([key, "function", link.encode(value)])
            kept[key] = value
        elif how == "property":
            members.append([key, how, link.encode(value.fget)])
            kept[key] = value
        elif how:
            # the solution may call it of the class as well
            if isinstance(value.__func__, types.FunctionType):
                members.append([key, how, link.encode(value.__func__)])
            kept[key] = value
        elif key in STAYING:
            kept[key] = value
        elif not key.startswith("__"):
            members.append([key, "value", link.encode(value)])
            if hasattr(type(value), "__set__"):
                kept[key] = value  # a descriptor has to stand where the attribute is looked for
    return members, kept


def beside(link: Connection, cls: type[Any]) -> Any:
    """A base of such a class: the solution's by number, the library's by name, the test's with its functions."""
    if "_class_number" in vars(cls):
        return {"k": vars(cls)["_class_number"]}
    if cls.__module__ != "__main__":
        return link.encode(cls)
    own = {k: v for k, v in vars(cls).items() if isinstance(v, types.FunctionType | property)}
    members, _ = parted(link, own)
    parents = [beside(link, p) for p in cls.__bases__ if p is not object]
    return {"tb": [link.lender.number(cls), cls.__name__, parents, members]}
