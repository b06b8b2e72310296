"""What the test program may ask of an object of the solution, by name."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from .loop import LOOP
from .notes import signature


def _exit(value: AbstractContextManager[Any], error: BaseException | None = None) -> Any:
    return value.__exit__(type(error) if error is not None else None, error, None)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _async_exit(value: AbstractAsyncContextManager[Any], error: BaseException | None = None) -> Any:
    return _awaited(value.__aexit__(type(error) if error is not None else None, error, None))


# whatever these run is the solution's own code in its own process: nothing here has to be safe from it
OPERATIONS: dict[str, Callable[..., Any]] = {
    "sync": lambda: None,
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "send": lambda g, v: g.send(v),
    "throw": lambda g, *e: g.throw(*e),
    "close": lambda g: g.close(),
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickled": pickle.dumps,
    "unpickled": pickle.loads,
    "reversed": reversed,
    "dget": lambda d, owner, *i: type(d).__get__(d, i[0] if i else None, owner),
    "dset": lambda d, i, v: type(d).__set__(d, i, v),
    "ddel": lambda d, i: type(d).__delete__(d, i),
    "dname": lambda d, owner, name: type(d).__set_name__(d, owner, name),
    "costep": LOOP.step,
    "cocancel": LOOP.cancel,
    "await": _awaited,
    "aiter": lambda value: value.__aiter__(),
    "anext": lambda value: _awaited(value.__anext__()),
    "aenter": lambda value: _awaited(value.__aenter__()),
    "aexit": _async_exit,
    "enter": lambda value: value.__enter__(),
    "exit": _exit,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "abs": abs,
    "contains": operator.contains,
    "hash": hash,
    "round": round,
    "int": int,
    "float": float,
    "index": operator.index,
    "signature": signature,
}
BETWEEN = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "xor",
)
OPERATIONS |= {name: getattr(operator, name) for name in BETWEEN}
OPERATIONS |= {"and": operator.and_, "or": operator.or_}
