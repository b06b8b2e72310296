"""A function by its spec: `module:function`, `file.py:function`, and where it stands in the source."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any


class BadFunction(Exception):
    """The function cannot be found or called as a verifier."""


def find(spec: str) -> Callable[..., Any]:
    """The function of `module:function` or `file.py:function`.

    Raises:
        BadFunction: there is none, or it cannot be called.
    """
    where, _, name = spec.rpartition(":")
    if where.endswith(".py"):
        found = importlib.util.spec_from_file_location("_grpo_custom", _file(where))
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        try:
            found.loader.exec_module(module)
        except ImportError as err:
            if "no known parent package" not in str(err):
                raise
            raise BadFunction(
                f"`{where}` imports from its package, and a file by itself has none: name it as a module, `PACKAGE.MODULE:{name}`"
            ) from err
    else:
        module = importlib.import_module(where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            known = [
                n
                for n, v in vars(module).items()
                if (inspect.isfunction(v) or inspect.isclass(v)) and v.__module__ == module.__name__
            ]
            known = [n for n in sorted(known) if not n.startswith("_")]
            raise BadFunction(
                f"`{where}` has no `{name}`; it has {', '.join(known[:8]) or 'no functions or classes'}"
            )
        target = getattr(target, part)
    if not callable(target):
        raise BadFunction(f"`{spec}` is a {type(target).__name__}, not a function or class")
    return target  # type: ignore[no-any-return]


def place_of(function: Callable[..., Any]) -> str:
    """`reward.py:12`, where the function stands; empty where that is not known."""
    code = code_of(function)
    if code is None:
        return ""
    path = os.path.relpath(code.co_filename)
    return f"{code.co_filename if path.startswith('..') else path}:{code.co_firstlineno}"


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code of a function, of what it wraps, or of the `__call__` of an object."""
    inner: Any = inspect.unwrap(function)
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    if not hasattr(inner, "__code__"):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - the function itself is wanted
    code = getattr(inner, "__code__", None)
    return code if isinstance(code, CodeType) else None


def names_keys_of_messages(function: Callable[..., Any]) -> bool:
    """Whether the code speaks of a message's `content`: then completions are meant to be lists of messages."""
    code = code_of(function)
    waiting = [code] if code is not None else []
    while waiting:
        one = waiting.pop()
        if "content" in one.co_consts:
            return True
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return False


def _file(where: str) -> str:
    for folder in [*sys.path, ""]:  # beside the recipe first
        path = os.path.join(folder, where)
        if os.path.isfile(path):
            return path
    raise BadFunction(f"no file `{where}` beside the recipe or here")
