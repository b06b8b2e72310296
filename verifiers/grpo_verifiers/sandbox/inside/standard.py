"""Values of the standard library that cross as what they are: both sides have the class, and its parts are plain."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, TypeAlias

Parts: TypeAlias = list[Any]
"""A message that is a list; what is in it is looked at by whoever takes it."""
Fields: TypeAlias = dict[str, Any]
"""A message that is an object: the description of a class, a function or an exception."""
Side = Callable[[Any], Any]
ADDRESSES = frozenset(["IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"])
HOMES = frozenset(["array", "types", "collections", "re", "zoneinfo", "ipaddress"])
UNNAMED: dict[str, type] = {
    "NoneType": types.NoneType,
    "ellipsis": types.EllipsisType,
    "NotImplementedType": types.NotImplementedType,
    "function": types.FunctionType,
    "builtin_function_or_method": types.BuiltinFunctionType,
    "module": types.ModuleType,
    "async_generator": types.AsyncGeneratorType,
    "method": types.MethodType,
    "generator": types.GeneratorType,
    "coroutine": types.CoroutineType,
}
"""Classes that say they are of `builtins`, where they do not stand: `type(None)`, and so `Optional[int]`."""
# classes only, of modules where none compares equal to what it is not
CLASSES_OF = frozenset(
    """builtins collections collections.abc datetime decimal fractions enum abc typing types pathlib uuid threading asyncio
    io functools itertools re random string queue numbers contextlib dataclasses array json math time numpy pandas""".split()  # noqa: SIM905
)
"""Modules whose classes a solution may name for what they are; a class of any other one is a class of its own there."""
MOST_PATTERN = 10_000
DEBUG = 128  # re.DEBUG prints


def is_standard(kind: type, module: str, name: str) -> bool:
    """Whether a class is the one that its module has under its name."""
    return getattr(sys.modules.get(module), name, None) is kind


def encode_time(value: Any, name: str, side: Side) -> Any:
    """A date or time, naive or with a zone of the library; None for any other zone."""
    if name == "date":
        return {"T": [name, [value.year, value.month, value.day]]}
    if name == "timedelta":
        return {"T": [name, [value.days, value.seconds, value.microseconds]]}
    if name == "timezone":
        offset = value.utcoffset(None)
        return {"tz": [offset.days, offset.seconds, offset.microseconds, value.tzname(None)]}
    if name not in ("datetime", "time"):
        return None
    clock = [value.hour, value.minute, value.second, value.microsecond]
    fields = [value.year, value.month, value.day, *clock] if name == "datetime" else clock
    if value.tzinfo is None:
        return {"T": [name, fields]}
    zone = type(value.tzinfo)
    if (zone.__module__, zone.__name__) not in (("datetime", "timezone"), ("zoneinfo", "ZoneInfo")):
        return None
    return {"T": [name, fields, side(value.tzinfo), value.fold]}


def encode_standard(value: Any, kind: type, module: str, name: str, side: Side) -> Any:
    """The message for a value of these classes; None for all others."""
    if module == "datetime":
        return encode_time(value, name, side) if is_standard(kind, module, name) else None
    if kind is slice:
        return {"sl": [side(value.start), side(value.stop), side(value.step)]}
    if name == "mappingproxy" and kind.__module__ == "builtins":
        return {"mp": side(dict(value))}
    if module not in HOMES or not is_standard(kind, module, name):
        return None
    if module == "array":
        return {"ay": [value.typecode, [side(v) for v in value]]}
    if module == "types" and name == "SimpleNamespace":
        return {"nm": [[k, side(v)] for k, v in vars(value).items()]}
    if module == "collections" and name == "ChainMap":
        return {"cm": [side(m) for m in value.maps]}
    if module == "re" and name == "Pattern":
        return {"re": [side(value.pattern), value.flags]}
    if module == "zoneinfo" and name == "ZoneInfo":
        return {"zi": value.key} if value.key else None
    if module == "ipaddress" and name in ADDRESSES:
        return {"ip": [name, str(value)]}
    return None


def _time(body: Parts, side: Side) -> Any:
    import datetime

    name, fields, *zone = body
    if name not in ("date", "datetime", "time", "timedelta"):
        raise ValueError("bad time")
    made = getattr(datetime, name)(*fields)
    return made.replace(tzinfo=side(zone[0]), fold=zone[1]) if zone else made


def _timezone(body: Parts, _: Side) -> Any:
    import datetime

    days, seconds, micros, name = body
    offset = datetime.timedelta(days, seconds, micros)
    plain = datetime.timezone(offset)
    return plain if plain.tzname(None) == name else datetime.timezone(offset, name)


def _zone(body: str, _: Side) -> Any:
    import zoneinfo

    return zoneinfo.ZoneInfo(body)


def _namespace(body: Parts, side: Side) -> Any:
    return types.SimpleNamespace(**{k: side(v) for k, v in body})


def _view(body: Fields, side: Side) -> Any:
    return types.MappingProxyType(side(body))


def _chain(body: Parts, side: Side) -> Any:
    import collections

    return collections.ChainMap(*[side(m) for m in body])


def _array(body: Parts, side: Side) -> Any:
    import array

    return array.array(body[0], [side(v) for v in body[1]])


def _pattern(body: Parts, side: Side) -> Any:
    import re

    text, flags = side(body[0]), body[1]
    if type(text) not in (str, bytes) or len(text) > MOST_PATTERN or type(flags) is not int:
        raise ValueError("bad pattern")
    return re.compile(text, flags & ~DEBUG)


def _address(body: Parts, _: Side) -> Any:
    import ipaddress

    name, text = body
    if name not in ADDRESSES or type(text) is not str:
        raise ValueError("bad address")
    return getattr(ipaddress, name)(text)


MAKERS: dict[str, Callable[[Any, Side], Any]] = {
    "T": _time,
    "tz": _timezone,
    "zi": _zone,
    "nm": _namespace,
    "mp": _view,
    "cm": _chain,
    "ay": _array,
    "re": _pattern,
    "ip": _address,
    "sl": lambda body, side: slice(*[side(v) for v in body]),
}
"""By tag, what makes the value again from the body of a message and what makes the parts."""
