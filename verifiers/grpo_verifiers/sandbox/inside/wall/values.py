"""Values as JSON with tags: what crosses between a run and whoever judges it. Never pickle.

A value is encoded by its true type (`type(x)`) with the base type's own methods: a list subclass that claims to equal
everything arrives as the plain list it holds. A tagged value is a dict with exactly one key. A side that keeps a memo
writes a container once in a message and refers to it from then on (`M`), so that identity and cycles survive. What is no
plain value is left to the side's `other` (encoding) and `tag` (decoding).
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""Any value of either side, or a message that represents one: whoever takes it checks what it is."""
Parts: TypeAlias = list[Any]
"""A message that is a list; its items are checked by whoever takes them."""
ATOMS = frozenset({type(None), bool, str, float})
SMALL = 1 << 63
FACTORIES = (int, float, str, list, dict, set, tuple, bool)
ARRAY_KINDS = "biufcUS"  # an object array would be code
ARRAY_TYPE = re.compile(r"[<>|=]?[biufcUS]\d{1,6}", re.ASCII)  # numpy would parse anything else as source text
MOST_HEX = 8192
MOST_ITEMS = 1_000_000
PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath")
HOMES = frozenset({"collections", "fractions", "decimal", "uuid", "pathlib", "datetime"})
TIMES = ("date", "datetime", "time", "timedelta")


class NotPlain(TypeError):
    """A value that cannot be sent."""


class BadWire(ValueError):
    """A message that no honest sender makes."""


class Coder:
    """What a side does with values that are not plain; this one sends and accepts plain values only."""

    keeps_identity = False

    def seen(self, value: object) -> Any:
        """The reference for a container that the other side has already; None, and a note, for a new one."""

    def subclass(self, value: object, kind: type) -> Any:
        """The message for an object of a subclass of a plain type; None if it is sent as the plain value it holds."""

    def other(self, value: object) -> Any:
        """The message for anything else.

        Raises:
            NotPlain: there is none.
        """
        raise NotPlain(type(value).__name__)

    def begin(self, container: Any) -> Any:
        """Note a container that is being decoded, before its items are."""
        return container

    def tag(self, tag: str, body: Value) -> Any:
        """The value behind a tag that is not one of a plain value.

        Raises:
            BadWire: there is none.
        """
        raise BadWire(f"unexpected tag {tag!r}")


PLAIN = Coder()


def encode(value: Value, coder: Coder = PLAIN) -> Any:
    """The value with tags, ready for json.dumps."""
    # the true type: `__class__` may be anything the solution likes
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is int:
        # Python refuses to write whole numbers of more than 4,300 decimal digits; hexadecimal ones are written in linear time
        return value if -SMALL < value < SMALL else {"i": hex(value)}
    if kind is tuple:
        return {"t": [encode(v, coder) for v in value]}
    if coder.keeps_identity and kind in MUTABLE:
        found = coder.seen(value)
        if found is not None:
            return found
    if kind is list:
        return [encode(v, coder) for v in value]
    if kind is dict:
        return {"d": [[encode(k, coder), encode(v, coder)] for k, v in value.items()]}
    if kind is set:
        return {"s": [encode(v, coder) for v in value]}
    return _encode_rare(value, kind, coder)


def _encode_rare(value: Value, kind: type, coder: Coder) -> Any:
    if kind is frozenset:
        return {"f": [encode(v, coder) for v in value]}
    if kind is bytes:
        return {"b": value.hex()}
    if kind is memoryview:
        return {"b": value.tobytes().hex()}
    if kind is bytearray:
        return {"B": value.hex()}
    if kind is complex:
        return {"c": [value.real, value.imag]}
    if kind is range:
        return {"r": [value.start, value.stop, value.step]}
    if kind is slice:
        return {"sl": [encode(v, coder) for v in (value.start, value.stop, value.step)]}
    if value is ... or value is NotImplemented:
        return {"e": int(value is NotImplemented)}
    if kind in VIEWS:
        return {"v": [VIEWS.index(kind), [encode(v, coder) for v in value]]}
    module, name = getattr(kind, "__module__", ""), kind.__name__
    if module.split(".")[0] == "numpy":
        return _encode_numpy(value, kind, coder)
    home = "pathlib" if module.startswith("pathlib") else module
    if home in HOMES and getattr(sys.modules.get(home), name, None) is kind:
        made = _encode_library(value, kind, f"{module}.{name}", name, coder)
        if made is not None:
            return made
    return _encode_subclass(value, kind, coder)


def _encode_library(value: Value, kind: Value, full: str, name: str, coder: Coder) -> Any:
    """The message for a value of a class of the standard library that is in the table; None for all others."""
    if full in CONTAINERS:
        if coder.keeps_identity and (found := coder.seen(value)) is not None:
            return found
        if name == "deque":
            return {"Q": [[encode(v, coder) for v in value], value.maxlen]}
        if name == "defaultdict" and value.default_factory in FACTORIES:
            name = f"defaultdict {value.default_factory.__name__}"
        return {"D": [name, [[encode(k, coder), encode(v, coder)] for k, v in kind.items(value)]]}
    if full == "fractions.Fraction":
        return {"q": [encode(value.numerator), encode(value.denominator)]}
    if full == "decimal.Decimal":
        return {"m": str(value)}
    if full == "uuid.UUID":
        return {"U": value.hex}
    if name in PATHS and full.startswith("pathlib"):
        return {"P": [name, str(value)]}
    if full == "datetime.date":
        return {"T": [name, [value.year, value.month, value.day]]}
    if full in ("datetime.timedelta", "datetime.timezone"):
        span = value if name == "timedelta" else value.utcoffset(None)
        parts = [span.days, span.seconds, span.microseconds]
        return {"T": [name, parts]} if name == "timedelta" else {"tz": [*parts, value.tzname(None)]}
    if full in ("datetime.datetime", "datetime.time"):
        clock = [value.hour, value.minute, value.second, value.microsecond]
        fields = [value.year, value.month, value.day, *clock] if name == "datetime" else clock
        zone = value.tzinfo
        return {"T": [name, fields, *([] if zone is None else [encode(zone, coder), value.fold])]}
    return None


def _encode_numpy(value: Value, kind: type, coder: Coder) -> Any:
    numpy = sys.modules["numpy"]
    if issubclass(kind, numpy.ndarray) and value.dtype.kind in ARRAY_KINDS:
        if coder.keeps_identity and (found := coder.seen(value)) is not None:
            return found
        plain = numpy.ascontiguousarray(value).reshape(value.shape)
        return {"a": [plain.dtype.str, list(plain.shape), base64.b64encode(plain.tobytes()).decode()]}
    if issubclass(kind, numpy.generic) and value.dtype.kind in ARRAY_KINDS:
        return {"ns": [value.dtype.str, encode(value.item())]}
    return coder.other(value)


def _encode_subclass(value: Value, kind: type, coder: Coder) -> Any:
    special = coder.subclass(value, kind)
    if special is not None:
        return special
    if issubclass(kind, tuple):
        # by the method of the plain type: its own may have been written to please the test
        items = [encode(v, coder) for v in tuple.__iter__(value)]
        fields = getattr(kind, "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(items) and all(type(f) is str for f in fields):
            return {"n": [kind.__name__, list(fields), items]}
        return {"t": items}
    plain = plain_copy(value, kind)
    if plain is None and "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].ndarray):
        return _encode_numpy(value, kind, coder)
    return coder.other(value) if plain is None else encode(plain, coder)


def plain_copy(value: Value, kind: type) -> Any:
    """The plain value that an object of a subclass of a plain type holds, by the plain type's own methods; else None."""
    if issubclass(kind, list | set | frozenset):
        base: Any = next(b for b in (list, set, frozenset) if issubclass(kind, b))
        return base(base.__iter__(value))
    if issubclass(kind, dict):
        return dict(dict.items(value))
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    return bytes.fromhex(bytes.hex(value)) if issubclass(kind, bytes) else None


MUTABLE = (list, dict, set, bytearray)
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
CONTAINERS = tuple(f"collections.{name}" for name in ("deque", "Counter", "OrderedDict", "defaultdict"))
"""Containers whose identity a memo keeps, with those above and arrays."""


def decode(message: object, coder: Coder = PLAIN) -> Any:
    """The value behind a message of `encode`; tags not known here go to `coder.tag`.

    Raises:
        BadWire and other ValueError, TypeError, RecursionError, MemoryError: the message is not honest.
    """
    if type(message) is list:
        if len(message) > MOST_ITEMS:
            raise BadWire("too many items")
        if not coder.keeps_identity:
            return [decode(v, coder) for v in message]
        made = coder.begin([])
        for item in message:
            made.append(decode(item, coder))
        return made
    if type(message) is not dict:
        return message
    # honest senders never leave it open which tag counts
    if len(message) != 1:
        raise BadWire("a tagged value has one key")
    ((tag, body),) = message.items()
    maker = _MAKERS.get(tag)
    if maker is None:
        return coder.tag(tag, body)
    try:
        return maker(body, coder)
    except (AttributeError, LookupError, ArithmeticError, OSError, ImportError) as err:
        raise BadWire(f"{tag}: {type(err).__name__}") from err


def _dict(body: Parts, coder: Coder) -> dict[Any, Any]:
    made = coder.begin({})
    for key, value in body:
        made[decode(key, coder)] = decode(value, coder)
    return made  # type: ignore[no-any-return]


def _set(body: Parts, coder: Coder) -> set[Any]:
    made = coder.begin(set())
    made.update([decode(v, coder) for v in body])
    return made  # type: ignore[no-any-return]


def _mapping(body: Parts, coder: Coder) -> Any:
    import collections

    name, pairs = body
    made: Any
    if name in ("Counter", "OrderedDict"):
        made = coder.begin(getattr(collections, name)())
    else:
        factory = next((f for f in FACTORIES if name == f"defaultdict {f.__name__}"), None)
        made = coder.begin(collections.defaultdict(factory))
    for key, value in pairs:
        made[decode(key, coder)] = decode(value, coder)
    return made


def _queue(body: Parts, coder: Coder) -> Any:
    import collections

    made = coder.begin(collections.deque(maxlen=body[1]))
    made.extend(decode(v, coder) for v in body[0])
    return made


NAMED: dict[tuple[str, ...], Any] = {}


def named_tuple(name: str, fields: Parts) -> Any:
    """A class of named tuples; the same one for the same name and fields."""
    import collections

    # `namedtuple` makes source text of the names
    if not all(type(f) is str and f.isidentifier() and len(f) < 200 for f in (name, *fields)):
        raise BadWire("bad field names")
    made = NAMED.get((name, *fields))
    if made is None:
        made = NAMED[(name, *fields)] = collections.namedtuple(name, fields, rename=True)
    return made


def _view(body: Parts, coder: Coder) -> Any:
    """Keys, values or items of a dict, as a view of a dict made for it."""
    number, items = body
    found = [decode(v, coder) for v in items]
    if number == 0:
        return dict.fromkeys(found).keys()
    return dict(enumerate(found)).values() if number == 1 else dict(found).items()


def _fraction(body: Parts, coder: Coder) -> Any:
    from fractions import Fraction

    if any(type(v) is dict and len(str(v.get("i", ""))) > MOST_HEX for v in body):
        raise BadWire("a fraction that costs too much")  # its parts are brought to lowest terms
    top, bottom = (int(v["i"], 16) if type(v) is dict else v for v in body)
    if type(top) is not int or type(bottom) is not int or bottom == 0:
        raise BadWire("bad fraction")
    return Fraction(top, bottom)


def _decimal(body: object, _: object) -> Any:
    from decimal import Decimal

    if type(body) is not str or len(body) > 10_000:
        raise BadWire("bad decimal")
    return Decimal(body)


def _time(body: Parts, coder: Coder) -> Any:
    import datetime

    name, fields, *zone = body
    if name not in TIMES:
        raise BadWire("bad time")
    made = getattr(datetime, name)(*fields)
    return made.replace(tzinfo=decode(zone[0], coder), fold=zone[1]) if zone else made


def _timezone(body: Parts, _: object) -> Any:
    import datetime

    offset = datetime.timedelta(*body[:3])
    plain = datetime.timezone(offset)
    return plain if plain.tzname(None) == body[3] else datetime.timezone(offset, body[3])


def _array(body: Parts, coder: Coder) -> Any:
    import numpy

    kind, shape, data = body
    if type(kind) is not str or not ARRAY_TYPE.fullmatch(kind):
        raise BadWire("bad array")
    made = numpy.frombuffer(base64.b64decode(data, validate=True), dtype=kind).reshape(shape)
    return coder.begin(made.copy())


def _scalar(body: Parts, _: object) -> Any:
    import numpy

    kind, item = body
    if type(kind) is not str or not ARRAY_TYPE.fullmatch(kind):
        raise BadWire("bad scalar")
    return numpy.dtype(kind).type(decode(item))


def _path(body: Parts, _: object) -> Any:
    import pathlib

    name, text = body
    if name not in PATHS or type(text) is not str:
        raise BadWire("bad path")
    return getattr(pathlib, name)(text)


def _uuid(body: str, _: object) -> Any:
    import uuid

    return uuid.UUID(hex=body)


_MAKERS: dict[str, Callable[[Any, Coder], Any]] = {
    "i": lambda b, c: int(b, 16),
    "t": lambda b, c: tuple([decode(v, c) for v in b]),
    "d": _dict,
    "s": _set,
    "f": lambda b, c: frozenset([decode(v, c) for v in b]),
    "b": lambda b, c: bytes.fromhex(b),
    "B": lambda b, c: c.begin(bytearray.fromhex(b)),
    "c": lambda b, c: complex(*b),
    "r": lambda b, c: range(*b),
    "sl": lambda b, c: slice(*[decode(v, c) for v in b]),
    "e": lambda b, c: NotImplemented if b else ...,
    "v": _view,
    "D": _mapping,
    "Q": _queue,
    "n": lambda b, c: named_tuple(b[0], b[1])(*[decode(v, c) for v in b[2]]),
    "q": _fraction,
    "m": _decimal,
    "U": _uuid,
    "P": _path,
    "T": _time,
    "tz": _timezone,
    "a": _array,
    "ns": _scalar,
}
