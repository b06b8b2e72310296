"""What is known of a function of the solution besides that it can be called: name, signature, notes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ...wire import Fields
from ..ends import Connection
from .handles import text


def _template() -> None: ...


def _generator() -> Iterator[None]:
    yield


async def _coroutine() -> None: ...


async def _async_generator() -> Any:
    yield


def function_local(link: Connection, about: Fields) -> dict[str, Any]:
    """What is known of a function of the solution besides that it can be called: name, signature, notes."""
    flags = about["flags"]
    if flags & inspect.CO_COROUTINE:
        code: Any = _coroutine.__code__
    elif flags & inspect.CO_ASYNC_GENERATOR:
        code = _async_generator.__code__
    else:
        code = _generator.__code__ if flags & inspect.CO_GENERATOR else _template.__code__
    notes = {str(k): link.decode(v) for k, v in about["notes"].items()}
    parameters = []
    for name, kind, has_default, default in about["parameters"]:
        parameters.append(
            inspect.Parameter(
                name,
                inspect._ParameterKind(kind),
                default=link.decode(default) if has_default else inspect.Parameter.empty,
                annotation=notes.get(name, inspect.Parameter.empty),
            )
        )
    signature = inspect.Signature(
        parameters,
        return_annotation=notes.get("return", inspect.Signature.empty),
        __validate_parameters__=False,
    )
    plain = [p for p in parameters if p.kind <= 1]
    return {
        "__name__": text(about["name"]),
        "__qualname__": text(about["qualname"]),
        "__annotations__": notes,
        "__doc__": about["doc"] if type(about["doc"]) is str else None,
        "__code__": code.replace(
            co_name=about["name"],
            co_argcount=len(plain),
            co_varnames=tuple(p.name for p in plain),
            co_nlocals=len(plain),
        )
        if code is _template.__code__
        else code,
        "__signature__": signature,
        "__defaults__": tuple(p.default for p in plain if p.default is not p.empty) or None,
        "__kwdefaults__": None,
        "__globals__": {},
        "__closure__": None,
    }
