"""Values as JSON with tags: the only thing that crosses from a run to whoever judges it. Never pickle.

A value is sent by its true type (`type(x)`), read with the base type's own methods: a list subclass that claims to equal
everything arrives as the plain list it holds. What is no plain value is left to the caller's `other`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from . import standard
from .standard import Fields as Fields
from .standard import Parts as Parts

ATOMS = frozenset({type(None), bool, str, float})
SMALL = 1 << 63
FACTORIES = (int, float, str, list, dict, set, tuple, bool)
ARRAY_KINDS = "biufcUS"  # an object array would be code
ARRAY_TYPE = re.compile(r"[<>|=]?[biufcUS]\d{1,6}", re.ASCII)  # numpy would parse anything else as source text
MOST_HEX = 8192
PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath")


class NotPlain(TypeError):
    """A value that cannot be sent."""


class BadWire(ValueError):
    """A message that no honest sender makes."""


class Coder:
    """What a side does with values that are not plain; this one sends plain values only."""

    known: dict[int, Any] = {}  # noqa: RUF012 - never filled here
    """The messages for containers that the other side has as well, by identity."""

    def subclass(self, value: object, kind: type) -> Any:
        """The message for an object of a subclass of a plain type, None if it goes as the plain value it holds."""

    def other(self, value: object) -> Any:
        """The message for anything else.

        Raises:
            NotPlain: there is none.
        """
        raise NotPlain(type(value).__name__)


PLAIN = Coder()


def encode(value: Any, other: Coder = PLAIN) -> Any:
    """The value with tags, ready for json.dumps. A tagged value is a dict with exactly one key."""
    # the true type: `__class__` may be anything the solution likes
    kind = type(value)
    if kind in ATOMS:
        return value
    # a container that the other side has as well goes by its place, so that its identity is kept
    if other.known and id(value) in other.known:
        return other.known[id(value)]
    if kind is int:
        # Python refuses to write whole numbers of more than 4,300 decimal digits; hexadecimal ones it writes in
        # linear time
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


def _encode_rare(value: Any, kind: type, other: Coder) -> Any:
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
        if name == "UserDict":
            return {"D": [name, [[encode(k, other), encode(v, other)] for k, v in value.data.items()]]}
        if name in ("Counter", "OrderedDict", "defaultdict") and kind is getattr(sys.modules[module], name):
            if name == "defaultdict" and value.default_factory in FACTORIES:
                name = f"defaultdict {value.default_factory.__name__}"
            # the plain method does not know the order of an ordered one
            items = kind.items(value)
            return {"D": [name, [[encode(k, other), encode(v, other)] for k, v in items]]}
    if module == "fractions" and name == "Fraction" and standard.is_standard(kind, module, name):
        return {"q": [encode(value.numerator), encode(value.denominator)]}
    if module == "decimal" and name == "Decimal" and standard.is_standard(kind, module, name):
        return {"m": str(value)}
    if kind is memoryview:
        return {"mv": value.tobytes().hex()}
    if module == "uuid" and name == "UUID" and standard.is_standard(kind, module, name):
        return {"U": value.hex}
    if module.startswith("pathlib") and name in PATHS and standard.is_standard(kind, "pathlib", name):
        return {"P": [name, str(value)]}
    if module == "numpy" or module.startswith("numpy."):
        return _encode_numpy(value, kind, other)
    made = standard.encode_standard(value, kind, module, name, lambda part: encode(part, other))
    return _encode_subclass(value, kind, other) if made is None else made


def _encode_numpy(value: Any, kind: type, other: Coder) -> Any:
    numpy = sys.modules["numpy"]
    if issubclass(kind, numpy.ndarray) and value.dtype.kind in ARRAY_KINDS:
        plain = numpy.asarray(value)
        return {"na": [plain.dtype.str, list(plain.shape), [encode(v) for v in plain.ravel().tolist()]]}
    if issubclass(kind, numpy.generic) and value.dtype.kind in ARRAY_KINDS:
        return {"ns": [value.dtype.str, encode(value.item())]}
    return other.other(value)


def _encode_subclass(value: Any, kind: type, other: Coder) -> Any:
    special = other.subclass(value, kind)
    if special is not None:
        return special
    if issubclass(kind, tuple):
        # by the method of the plain type: its own may have been written to please the test
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
    return other.other(value)


def unknown(tag: str, body: object) -> Any:
    """The `other` of a side that accepts plain values only.

    Raises:
        BadWire: always.
    """
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
    # honest senders never leave it open which tag counts
    if len(message) != 1:
        raise BadWire("a tagged value has one key")
    ((tag, body),) = message.items()
    maker, made = _MAKERS.get(tag), standard.MAKERS.get(tag)
    if maker is None and made is None:
        return other(tag, body)
    try:
        return maker(body, other) if maker is not None else made(body, lambda part: decode(part, other))  # type: ignore[misc]
    except (AttributeError, LookupError, ArithmeticError, OSError, ImportError) as err:
        raise BadWire(f"{tag}: {type(err).__name__}") from err


def _pairs(body: Parts, other: Callable[[str, Any], Any]) -> dict[Any, Any]:
    return {decode(k, other): decode(v, other) for k, v in body}


def _integer(body: str, _: object) -> int:
    return int(body, 16)


def _mapping(body: Parts, other: Callable[[str, Any], Any]) -> Any:
    import collections

    name, pairs = body
    plain = _pairs(pairs, other)
    if name == "Counter":
        counter: collections.Counter[Any] = collections.Counter()
        for key, count in plain.items():
            # `Counter(...)` would count the pairs
            dict.__setitem__(counter, key, count)
        return counter
    if name == "UserDict":
        return collections.UserDict(plain)
    if name == "OrderedDict":
        return collections.OrderedDict(plain)
    factory = next((f for f in FACTORIES if name == f"defaultdict {f.__name__}"), None)
    return collections.defaultdict(factory, plain)


def _queue(body: Parts, other: Callable[[str, Any], Any]) -> Any:
    import collections

    items, most = body
    return collections.deque((decode(v, other) for v in items), most)


def _named(body: Parts, other: Callable[[str, Any], Any]) -> Any:
    import collections

    name, fields, items = body
    # `namedtuple` makes source text of the names
    if not all(type(f) is str and f.isidentifier() and len(f) < 200 for f in (name, *fields)):
        raise BadWire("bad field names")
    return collections.namedtuple(name, fields, rename=True)(*[decode(v, other) for v in items])


def _fraction(body: Parts, other: Callable[[str, Any], Any]) -> Any:
    from fractions import Fraction

    if any(type(v) is dict and len(str(v.get("i", ""))) > MOST_HEX for v in body):
        raise BadWire("a fraction that costs too much")  # its parts are brought to lowest terms
    top, bottom = (_integer(v["i"], other) if type(v) is dict else v for v in body)
    if type(top) is not int or type(bottom) is not int or bottom == 0:
        raise BadWire("bad fraction")
    return Fraction(top, bottom)


def _decimal(body: object, _: object) -> Any:
    from decimal import Decimal

    if type(body) is not str or len(body) > 10_000:
        raise BadWire("bad decimal")
    return Decimal(body)


def _array(body: Parts, _: object) -> Any:
    import numpy

    kind, shape, items = body
    if type(kind) is not str or not ARRAY_TYPE.fullmatch(kind):
        raise BadWire("bad array")
    return numpy.array([decode(v) for v in items], dtype=kind).reshape(shape)


def _scalar(body: Parts, _: object) -> Any:
    kind, item = body
    import numpy

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
    "mv": lambda b, o: memoryview(bytes.fromhex(b)),
    "U": _uuid,
    "P": _path,
    "na": _array,
    "ns": _scalar,
}
