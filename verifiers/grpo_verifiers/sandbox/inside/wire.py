"""Values as JSON with tags: the only thing that crosses from a run to whoever judges it. Never pickle.

A value is sent by its true type (`type(x)`), read with the base type's own methods: a list subclass that claims to equal
everything arrives as the plain list it holds. What is no plain value is left to the caller's `other`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

ATOMS = frozenset({type(None), bool, str, float})
SMALL = 1 << 63
FACTORIES = (int, float, str, list, dict, set, tuple, bool)
ARRAY_KINDS = "biufcUS"  # an object array would be code


class NotPlain(TypeError):
    """A value that cannot be sent."""


class BadWire(ValueError):
    """A message that no honest sender makes."""


def refuse(value: object) -> Any:
    """The `other` of a side that sends plain values only."""
    raise NotPlain(type(value).__name__)


def encode(value: Any, other: Callable[[Any], Any] = refuse) -> Any:
    """The value with tags, ready for json.dumps. A tagged value is a dict with exactly one key."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else {"i": hex(value)}
    if kind is list:
        return [encode(v, other) for v in value]
    if kind is tuple:
        return {"t": [encode(v, other) for v in value]}
    if kind is dict:
        return {"d": [[encode(k, other), encode(v, other)] for k, v in value.items()]}
    if kind is set:
        return {"s": [encode(v, other) for v in value]}
    return _encode_rare(value, kind, other)


def _encode_rare(value: Any, kind: type, other: Callable[[Any], Any]) -> Any:
    if kind is frozenset:
        return {"f": [encode(v, other) for v in value]}
    if kind is bytes:
        return {"b": value.hex()}
    if kind is bytearray:
        return {"B": value.hex()}
    if kind is complex:
        return {"c": [value.real, value.imag]}
    if kind is range:
        return {"r": [value.start, value.stop, value.step]}
    if kind is type(...):
        return {"e": 0}
    module, name = getattr(kind, "__module__", ""), kind.__name__
    if module == "collections":
        if name == "deque":
            return {"Q": [[encode(v, other) for v in value], value.maxlen]}
        if name in ("Counter", "OrderedDict", "defaultdict") and kind is getattr(sys.modules[module], name):
            if name == "defaultdict" and value.default_factory in FACTORIES:
                name = f"defaultdict {value.default_factory.__name__}"
            return {"D": [name, [[encode(k, other), encode(v, other)] for k, v in dict.items(value)]]}
    if module == "fractions" and name == "Fraction" and _is_std(kind, module, name):
        return {"q": [encode(value.numerator), encode(value.denominator)]}
    if module == "decimal" and name == "Decimal" and _is_std(kind, module, name):
        return {"m": str(value)}
    if module == "datetime" and _is_std(kind, module, name):
        return _encode_time(value, name, other)
    if module == "numpy" or module.startswith("numpy."):
        return _encode_numpy(value, kind, other)
    return _encode_subclass(value, kind, other)


def _is_std(kind: type, module: str, name: str) -> bool:
    return getattr(sys.modules.get(module), name, None) is kind


def _encode_time(value: Any, name: str, other: Callable[[Any], Any]) -> Any:
    if name == "date":
        return {"T": [name, [value.year, value.month, value.day]]}
    if name == "timedelta":
        return {"T": [name, [value.days, value.seconds, value.microseconds]]}
    if name == "datetime" and value.tzinfo is None:
        fields = [
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
        ]
        return {"T": [name, fields]}
    if name == "time" and value.tzinfo is None:
        return {"T": [name, [value.hour, value.minute, value.second, value.microsecond]]}
    return other(value)


def _encode_numpy(value: Any, kind: type, other: Callable[[Any], Any]) -> Any:
    numpy = sys.modules["numpy"]
    if issubclass(kind, numpy.ndarray) and value.dtype.kind in ARRAY_KINDS:
        plain = numpy.asarray(value)
        return {"na": [plain.dtype.str, list(plain.shape), [encode(v) for v in plain.ravel().tolist()]]}
    if issubclass(kind, numpy.generic) and value.dtype.kind in ARRAY_KINDS:
        return {"ns": [value.dtype.str, encode(value.item())]}
    return other(value)


def _encode_subclass(value: Any, kind: type, other: Callable[[Any], Any]) -> Any:
    if issubclass(kind, tuple):
        items = [encode(v, other) for v in tuple.__iter__(value)]
        fields = getattr(kind, "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(items) and all(type(f) is str for f in fields):
            return {"n": [kind.__name__, list(fields), items]}
        return {"t": items}
    if issubclass(kind, list):
        return [encode(v, other) for v in list.__iter__(value)]
    if issubclass(kind, dict):
        return {"d": [[encode(k, other), encode(v, other)] for k, v in dict.items(value)]}
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return encode(int.__int__(value))
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, bytes):
        return {"b": bytes.hex(value)}
    if issubclass(kind, (set, frozenset)):
        base: Any = set if issubclass(kind, set) else frozenset
        return {"s" if base is set else "f": [encode(v, other) for v in base.__iter__(value)]}
    if "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].ndarray):
        return _encode_numpy(value, kind, other)
    return other(value)


def unknown(tag: str, body: object) -> Any:
    """The `other` of a side that accepts plain values only."""
    raise BadWire(f"unexpected tag {tag!r}")


def decode(message: object, other: Callable[[str, Any], Any] = unknown) -> Any:
    """The value behind a message of `encode`; tags not known here go to `other`.

    Raises:
        BadWire and other ValueError, TypeError, RecursionError, MemoryError: the message is not honest.
    """
    if type(message) is list:
        return [decode(v, other) for v in message]
    if type(message) is not dict:
        return message
    if len(message) != 1:
        raise BadWire("a tagged value has one key")
    ((tag, body),) = message.items()
    maker = _MAKERS.get(tag)
    return maker(body, other) if maker else other(tag, body)


def _pairs(body: Any, other: Callable[[str, Any], Any]) -> dict[Any, Any]:
    return {decode(k, other): decode(v, other) for k, v in body}


def _integer(body: Any, _: Any) -> int:
    return int(body, 16)


def _mapping(body: Any, other: Callable[[str, Any], Any]) -> Any:
    import collections

    name, pairs = body
    plain = _pairs(pairs, other)
    if name == "Counter":
        counter: collections.Counter[Any] = collections.Counter()
        for key, count in plain.items():
            dict.__setitem__(counter, key, count)
        return counter
    if name == "OrderedDict":
        return collections.OrderedDict(plain)
    factory = next((f for f in FACTORIES if name == f"defaultdict {f.__name__}"), None)
    return collections.defaultdict(factory, plain)


def _queue(body: Any, other: Callable[[str, Any], Any]) -> Any:
    import collections

    items, most = body
    return collections.deque((decode(v, other) for v in items), most)


def _named(body: Any, other: Callable[[str, Any], Any]) -> Any:
    import collections

    name, fields, items = body
    if not all(type(f) is str and f.isidentifier() and len(f) < 200 for f in (name, *fields)):
        raise BadWire("bad field names")
    return collections.namedtuple(name, fields, rename=True)(*[decode(v, other) for v in items])


def _fraction(body: Any, other: Callable[[str, Any], Any]) -> Any:
    from fractions import Fraction

    top, bottom = (decode(v) for v in body)
    if type(top) is not int or type(bottom) is not int or bottom == 0:
        raise BadWire("bad fraction")
    return Fraction(top, bottom)


def _decimal(body: object, _: object) -> Any:
    from decimal import Decimal

    if type(body) is not str or len(body) > 10_000:
        raise BadWire("bad decimal")
    return Decimal(body)


def _time(body: Any, _: Any) -> Any:
    import datetime

    name, fields = body
    if name not in ("date", "datetime", "time", "timedelta"):
        raise BadWire("bad time")
    return getattr(datetime, name)(*fields)


def _array(body: Any, _: Any) -> Any:
    import numpy

    kind, shape, items = body
    if numpy.dtype(kind).kind not in ARRAY_KINDS:
        raise BadWire("bad array")
    return numpy.array([decode(v) for v in items], dtype=kind).reshape(shape)


def _scalar(body: Any, _: Any) -> Any:
    kind, item = body
    import numpy

    if numpy.dtype(kind).kind not in ARRAY_KINDS:
        raise BadWire("bad scalar")
    return numpy.dtype(kind).type(decode(item))


_MAKERS: dict[str, Callable[[Any, Callable[[str, Any], Any]], Any]] = {
    "i": _integer,
    "t": lambda b, o: tuple([decode(v, o) for v in b]),
    "d": _pairs,
    "s": lambda b, o: {decode(v, o) for v in b},
    "f": lambda b, o: frozenset([decode(v, o) for v in b]),
    "b": lambda b, o: bytes.fromhex(b),
    "B": lambda b, o: bytearray.fromhex(b),
    "c": lambda b, o: complex(*b),
    "r": lambda b, o: range(*b),
    "e": lambda b, o: ...,
    "D": _mapping,
    "Q": _queue,
    "n": _named,
    "q": _fraction,
    "m": _decimal,
    "T": _time,
    "na": _array,
    "ns": _scalar,
}
