"""What is known of a function of the solution besides that it can be called: name, signature, notes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

from ...wire import Fields, Parts
from ..ends import Connection, Stopped
from .handles import text


def _template() -> None: ...


def _generator() -> Iterator[None]:
    yield


async def _coroutine() -> None: ...


async def _async_generator() -> Any:
    yield


def function_local(about: Fields) -> dict[str, Any]:
    """What is told of a function of the solution besides that it can be called. Its annotations and parameters are asked for."""
    flags = about["flags"]
    if flags & inspect.CO_COROUTINE:
        code: Any = _coroutine.__code__
    elif flags & inspect.CO_ASYNC_GENERATOR:
        code = _async_generator.__code__
    else:
        code = _generator.__code__ if flags & inspect.CO_GENERATOR else _template.__code__
    return {
        "__name__": text(about["name"]),
        "__qualname__": text(about["qualname"]),
        "__doc__": about["doc"] if type(about["doc"]) is str else None,
        "__code__": code,
        "__globals__": {},
        "__closure__": None,
    }


def asked_local(link: Connection, number: int, local: dict[str, Any]) -> dict[str, Any]:
    """The rest, for a test that asks for any of it.

    Raises:
        Stopped: what the solution tells is no signature.
    """
    told = link.ask("signature", {"k": number})
    try:
        return _signed(local["__name__"], local["__code__"], *told)
    except Exception as bad:  # no malformed answer may reach a test as an exception that it expects
        link.is_dead = True
        raise Stopped(f"bad answer: {type(bad).__name__}") from bad


def _signed(title: str, code: types.CodeType, notes: dict[str, Any], given: Parts) -> dict[str, Any]:
    parameters = [
        inspect.Parameter(
            name,
            inspect._ParameterKind(kind),
            default=default if has_default else inspect.Parameter.empty,
            annotation=notes.get(name, inspect.Parameter.empty),
        )
        for name, kind, has_default, default in given
    ]
    signature = inspect.Signature(
        parameters, return_annotation=notes.get("return", inspect.Signature.empty), __validate_parameters__=False
    )
    plain = [p for p in parameters if p.kind <= 1]
    if code is _template.__code__:
        names = tuple(p.name for p in plain)
        code = code.replace(co_name=title, co_argcount=len(plain), co_varnames=names, co_nlocals=len(plain))
    return {
        "__annotations__": notes,
        "__code__": code,
        "__signature__": signature,
        "__defaults__": tuple(p.default for p in plain if p.default is not p.empty) or None,
        "__kwdefaults__": None,
    }
