"""Making an argument of the test equal to what a call left of it."""

from __future__ import annotations

import array
import inspect
import io
import random
import types
from collections import ChainMap, OrderedDict, deque
from typing import Any


def hides(cls: type, name: str) -> bool:
    """Whether an attribute of that name would stand before what the class itself does: its methods and properties."""
    found = inspect.getattr_static(cls, name, None)
    return callable(found) or (hasattr(type(found), "__get__") and not inspect.ismemberdescriptor(found))


def items_of(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """What is in a dictionary, in its order, whatever its class has made of the methods."""
    is_ordered = issubclass(type(value), OrderedDict)
    keys = OrderedDict.__iter__(value) if is_ordered else dict.__iter__(value)
    return [(key, dict.__getitem__(value, key)) for key in keys]


def write_back(target: object, value: object) -> None:
    """Make a mutable argument equal to what the call left of it, keeping the identity of what is inside."""
    if isinstance(target, io.StringIO | io.BytesIO):
        target.seek(0)
        target.truncate()
        stream: Any = value  # of the same kind: the sender's own
        target.write(stream.getvalue())
        target.seek(stream.tell())
    elif type(target) is random.Random and type(value) is random.Random:
        target.setstate(value.getstate())
    elif type(target) is types.SimpleNamespace and type(value) is types.SimpleNamespace:
        vars(target).clear()
        vars(target).update(vars(value))
    elif type(target) is array.array and type(value) is array.array:
        target[:] = value
    elif type(target) is ChainMap and type(value) is ChainMap:
        for old, new in zip(target.maps, value.maps, strict=False):
            write_back(old, new)
    elif isinstance(target, list) and type(value) is list:
        # by the plain type's own methods: a class may have others under these names
        merged = [_merge(old, new) for old, new in zip(list.__iter__(target), value, strict=False)]
        list.__setitem__(target, slice(None), merged + value[len(merged) :])
    elif isinstance(target, dict) and isinstance(value, dict):
        had = dict(dict.items(target))
        merged_items = {k: _merge(had[k], v) if k in had else v for k, v in items_of(value)}
        # an ordered one has its order beside the plain dictionary
        kind: Any = OrderedDict if isinstance(target, OrderedDict) else dict
        kind.clear(target)
        for k, v in merged_items.items():
            kind.__setitem__(target, k, v)
    elif isinstance(target, set) and isinstance(value, set):
        set.clear(target)
        set.update(target, value)
    elif type(target) is bytearray and type(value) is bytearray:
        target[:] = value
    elif type(target) is deque and type(value) is deque:
        target.clear()
        target.extend(value)
    elif type(target) is tuple and type(value) is tuple:
        for old, new in zip(target, value, strict=False):
            _merge(old, new)
    elif type(target).__module__ == "numpy" and type(value) is type(target):
        array_here: Any = target
        array_there: Any = value
        if array_here.shape == array_there.shape:
            array_here[...] = array_there
    elif type(target) is type(value) and type(target).__module__ == "__main__" and hasattr(target, "__dict__"):
        target.__dict__.update(value.__dict__)


def _merge(old: object, new: object) -> Any:
    if type(old) is type(new) and type(old) in (list, dict, set, tuple):
        write_back(old, new)
        # the old object, now with what is in the new one: others in the test may hold it
        return old if type(old) is not tuple else new
    return new
