"""What environments of a recipe are made of: a class of the protocol, functions as tools, a class of TRL's, or an environment
of the package `verifiers`. Each becomes an object with `reset` and `step`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from grpo_cli.environments.step import kind_of, method_of
from grpo_verifiers.kinds.functions.conventions import BadFunction, find, place_of
from grpo_verifiers.kinds.functions.value import BadReturn
from grpo_verifiers.names import near_or_known
from grpo_verifiers.verifier import Unavailable

Kind = Literal["python", "tools", "trl", "verifiers"]
WORLDS = {
    name: f"grpo_cli.environments.worlds.{name}:{name.title()}"
    for name in ("keydoor", "guess", "calculator", "textworld")
}
"""The worlds that are shipped."""
METHODS = {"reset": ("row", "seed"), "step": ("action",)}
"""What an environment must have, and what they are called with."""
PYTHON = "python"
"""The tool that is shipped: code in the sandbox."""


@dataclass(frozen=True)
class EnvironmentFactory:
    """How an environment is made, under which name messages speak of it, and what it can."""

    make: Callable[..., Any]
    name: str
    place: str
    scores: bool
    demonstrates: bool = False
    tools: list[Mapping[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the way out of a worker."""
        return {
            "place": self.place,
            "scores": self.scores,
            "demonstrates": self.demonstrates,
            "tools": [dict(tool) for tool in self.tools],
        }


def environment_factory_of(
    kind: Kind, specs: Sequence[str], options: Mapping[str, Any]
) -> EnvironmentFactory:
    """Import what a recipe names.

    Raises:
        BadFunction: it is not there, or not what it has to be; and whatever an import raises.
    """
    makers: dict[Kind, Callable[[Sequence[str], Mapping[str, Any]], EnvironmentFactory]] = {
        "python": _of_class,
        "tools": _of_functions,
        "trl": _of_trl,
        "verifiers": _of_verifiers,
    }
    return makers[kind](specs, options)


def _of_class(specs: Sequence[str], options: Mapping[str, Any]) -> EnvironmentFactory:
    (spec,) = specs
    make = find(place_of_world(spec))
    check(make, spec, options)
    # what a function makes has to be looked at itself
    owner = make if inspect.isclass(make) else make(**copy.deepcopy(dict(options)))
    for method in METHODS:
        if not callable(getattr(owner, method, None)):
            what = f"`{spec}`" if owner is make else f"{kind_of(owner)}, which `{spec}` made,"
            raise BadFunction(
                f"{what} has no method `{method}`: an environment has `reset(row, seed)` and `step(action)`"
                " (a class made for TRL stands under `environment.trl`)"
            )
    for method, arguments in METHODS.items():
        _check_call(owner, method, arguments, spec)
    try:
        scores, demonstrates = (method_of(owner, name, spec) is not None for name in ("score", "demonstrate"))
    except BadReturn as err:
        raise BadFunction(str(err)) from err
    return EnvironmentFactory(make, spec.rpartition(":")[2], place_of(make), scores, demonstrates)


def _check_call(owner: object, method: str, arguments: Sequence[str], spec: str) -> None:
    """Raises BadFunction where the method of a class, or of an object, cannot be called with the arguments by their places."""
    bound = not inspect.isclass(owner) or isinstance(
        inspect.getattr_static(owner, method), staticmethod | classmethod
    )
    try:
        signature = inspect.signature(getattr(owner, method))
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*(() if bound else (owner,)), *arguments)
    except TypeError as err:
        raise BadFunction(
            f"`{method}{signature}` of `{spec}` cannot be called as `{method}({', '.join(arguments)})`: {err}"
        ) from err


def _of_functions(specs: Sequence[str], options: Mapping[str, Any]) -> EnvironmentFactory:
    from grpo_cli.environments.tools.world import ToolWorld, tools_of

    if options:
        raise BadFunction("`environment.options` are for a class: functions are called as they are")
    functions = [_python_tool() if spec == PYTHON else find(spec) for spec in specs]
    tools = tools_of(functions)
    return EnvironmentFactory(
        lambda: ToolWorld(tools), ", ".join(tools), place_of(functions[0]), False, tools=_schemas(tools)
    )


def _of_trl(specs: Sequence[str], options: Mapping[str, Any]) -> EnvironmentFactory:
    from grpo_cli.environments.tools.world import ToolWorld, methods_of, tools_of

    (spec,) = specs
    factory = find(spec)
    check(factory, spec, options)

    def make(**given: Any) -> ToolWorld:
        inner = factory(**given)
        return ToolWorld(tools_of(methods_of(inner, spec)), inner)

    first = make(**options)
    return EnvironmentFactory(
        make,
        spec.rpartition(":")[2],
        place_of(factory),
        callable(getattr(first.inner, "get_reward", None)),
        tools=_schemas(first.tools),
    )


def _of_verifiers(specs: Sequence[str], options: Mapping[str, Any]) -> EnvironmentFactory:
    from grpo_cli.environments.foreign import VerifiersWorld, loaded

    (spec,) = specs
    env, faults = loaded(spec, options)
    return EnvironmentFactory(lambda **_: VerifiersWorld(env, faults), spec, "", True)


def _python_tool() -> Callable[..., Any]:
    from grpo_cli.environments.tools.python_code import python, start

    try:
        start()
    except Unavailable as err:
        raise BadFunction(f"the tool `{PYTHON}` cannot run here: {err}; {err.hint}") from err
    return python


def _schemas(tools: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tool.schema for tool in tools.values()]


def place_of_world(spec: str) -> str:
    """`module:class` of a world that is shipped (`environments:NAME`); any other spec is its own place.

    Raises:
        BadFunction: no such world.
    """
    room, _, name = spec.partition(":")
    if room != "environments":
        return spec
    if name not in WORLDS:
        raise BadFunction(f"unknown world `{spec}`{near_or_known(name, WORLDS)}")
    return WORLDS[name]


def check(make: Callable[..., Any], spec: str, options: Mapping[str, Any]) -> None:
    """Raises BadFunction where `environment.options` are not what it is made with."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**options)
    except TypeError as err:
        raise BadFunction(f"`{spec}` cannot be made with the options {sorted(options)}: {err}") from err
