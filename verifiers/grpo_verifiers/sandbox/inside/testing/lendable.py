"""Which objects of the test program may be lent to the solution, what of them it may reach, and how they are sent."""

from __future__ import annotations

import io
import random
import types
from typing import Any

from ..wire import Parts

ITERATORS: tuple[type, ...] = (
    types.GeneratorType,
    type(iter([])),
    type(iter(())),
    type(iter("")),
    type(iter({})),
    type(iter(range(0))),
    map,
    filter,
    zip,
    enumerate,
    reversed,
)
SPECIAL = """
__len__ __getitem__ __setitem__ __delitem__ __contains__ __iter__ __next__ __call__ __enter__ __exit__ __bool__ __str__
__repr__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __add__ __sub__ __mul__ __truediv__ __int__ __float__ __index__
__await__ __aenter__ __aexit__ __aiter__ __anext__ __reversed__ __missing__ __radd__ __rmul__ __neg__ __abs__
""".split()  # noqa: SIM905
# libraries whose objects give away nothing but themselves; of mocks only what a program that is given one may see
LENDABLE = frozenset(
    """
    queue threading _thread _queue collections logging datetime types csv _csv asyncio io _io sqlite3 argparse configparser
    concurrent string functools operator json statistics array struct _struct hashlib _hashlib _sha2 _md5 zlib textwrap re
    calendar contextlib contextvars _contextvars graphlib sched shelve tempfile zipfile tarfile random _random email xml html
    decimal numbers abc heapq difflib unittest itertools selectors weakref enum dataclasses time uuid collections.abc
    """.split()  # noqa: SIM905
)


def is_lendable(kind: type) -> bool:
    """Whether a class is of a library whose objects may be lent."""
    return kind.__module__.split(".")[0] in LENDABLE


def special_names(kind: type) -> list[str]:
    """The special methods that a class defines."""
    found = [n for n in SPECIAL if any(n in vars(c) for c in kind.__mro__[:-1])]
    return [n for n in found if n != "__hash__" or kind.__hash__ is not None]


def stream_message(value: object) -> Any:
    """A stream in memory or a source of chance as it stands; None for anything else."""
    if type(value) is io.StringIO:
        return {"io": ["text", value.getvalue(), value.tell()]}
    if type(value) is io.BytesIO:
        return {"io": ["bytes", value.getvalue().hex(), value.tell()]}
    if type(value) is random.Random:
        state = value.getstate()
        return {"rs": [state[0], list(state[1]), state[2]]}
    return None


def stream(body: Parts) -> Any:
    """The stream behind a message."""
    kind, content, at = body
    made: Any = io.StringIO(content) if kind == "text" else io.BytesIO(bytes.fromhex(content))
    made.seek(at)
    return made


def chance(body: Parts) -> random.Random:
    """The source of chance behind a message."""
    made = random.Random()
    made.setstate((body[0], tuple(body[1]), body[2]))
    return made
