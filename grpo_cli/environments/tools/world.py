"""Tools as an environment: a turn that calls some is answered by what they give, a turn that calls none is the answer.

The class that TRL's `environment_factory` takes is the same with a state: `reset(**columns)`, public methods that are tools,
and `get_reward()` (`trl.GRPOTrainer`, version 1.16).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.environments.tools.schema import BadCall, checked, schema_of
from grpo_cli.environments.waiting import awaited
from grpo_verifiers.kinds.functions.conventions import BadFunction
from grpo_verifiers.kinds.functions.value import BadReturn
from grpo_verifiers.names import near_or_known

OWN = ("reset", "get_reward")
"""Methods of TRL's classes that are no tools."""


@dataclass(frozen=True)
class Tool:
    """A function with its schema."""

    function: Callable[..., Any]
    schema: Mapping[str, Any]

    def answer(self, arguments: Mapping[str, Any], *, is_text: bool) -> str:
        """What it says to these arguments, as text.

        Raises:
            BadCall: they do not fit, or it raised; the message is for the model.
        """
        given = checked(self.schema, arguments, is_text=is_text)
        try:
            return str(awaited(self.function(**given)))
        except MemoryError:
            raise  # the worker's limit, which is the environment's
        except Exception as err:  # what a tool makes of arguments is the model's to hear
            name = self.schema["function"]["name"]
            print(f"the tool `{name}` raised {type(err).__name__}: {err}")
            raise BadCall(f"{type(err).__name__}: {err}") from err


class ToolWorld:
    """Functions, or the methods of one object, as an environment. An episode is done with the first turn without a call."""

    def __init__(self, tools: Mapping[str, Tool], inner: Any = None) -> None:
        self.tools, self.inner = tools, inner

    def reset(self, row: Mapping[str, Any], seed: int) -> Any:
        """What the object says at the start; functions have no state."""
        if self.inner is None:
            return None
        said = awaited(self.inner.reset(**row))
        if isinstance(said, list):
            raise BadReturn("`reset` returned a list of parts: only text is taken here")
        return said

    def step(self, action: str) -> dict[str, Any]:
        """`action` is the turn's calls as JSON. A call that cannot be made is answered with why, and is no valid action."""
        answers, all_made = list[str](), True
        calls = json.loads(action)
        if not calls:
            return {"done": True}
        for call in calls:
            try:
                answers.append(self._made(call))
            except BadCall as err:
                answers.append(f"error: {err}")
                all_made = False
        return {"observation": answers, "valid": all_made}

    def score(self) -> Any:
        """The object's own reward; None where it has none, and verifiers judge the answer."""
        reward = getattr(self.inner, "get_reward", None)
        return awaited(reward()) if callable(reward) else None

    def _made(self, call: Mapping[str, Any]) -> str:
        name = call["name"]
        if call["error"]:
            raise BadCall(call["error"])
        if name not in self.tools:
            raise BadCall(f"there is no tool `{name}`{near_or_known(name, self.tools)}")
        return self.tools[name].answer(call["arguments"], is_text=call["is_text"])


def tools_of(functions: Sequence[Callable[..., Any]]) -> dict[str, Tool]:
    """Functions by their name.

    Raises:
        BadFunction: two have the same, or one is no tool.
    """
    found: dict[str, Tool] = {}
    for function in functions:
        schema = schema_of(function)
        name = schema["function"]["name"]
        if name in found:
            raise BadFunction(f"two tools are called `{name}`")
        found[name] = Tool(function, schema)
    return found


def methods_of(made: Any, spec: str) -> list[Callable[..., Any]]:
    """The tools of an object of TRL's contract.

    Raises:
        BadFunction: it has no `reset`, or no tool.
    """
    # of the class: looking at the object's members would evaluate its properties
    names = [name for name, _ in inspect.getmembers(type(made), predicate=inspect.isfunction)]
    if "reset" not in names:
        raise BadFunction(f"`{spec}` has no method `reset`: TRL's environments have `reset(**columns)`")
    tools = [getattr(made, name) for name in names if name not in OWN and not name.startswith("_")]
    if not tools:
        raise BadFunction(f"`{spec}` has no public method beside {', '.join(OWN)}: those are its tools")
    return tools
