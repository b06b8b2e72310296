"""Environments of the package `verifiers`: the weighted reward functions of a single-turn environment as one function.

The package itself is imported by the user's `load_environment`, never here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.kinds.functions.find import BadFunction
from grpo_verifiers.kinds.functions.forms import derive

LOADER = "load_environment"
_OF_GROUPS = {"states", "prompts", "completions", "answers", "tasks", "infos"}

Reward = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class _Part:
    function: Callable[..., Any]
    weight: float
    objects: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    async def value(self, have: Mapping[str, Any]) -> float:
        parameters = inspect.signature(self.function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        given = {**have, **self.objects}
        found = self.function(**{k: v for k, v in given.items() if takes_all or k in parameters})
        return float(await found if inspect.isawaitable(found) else found)


def is_loader(function: Callable[..., Any]) -> bool:
    """Whether this makes an environment rather than a reward."""
    return getattr(function, "__name__", "") == LOADER


def reward_of(loader: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> Reward:
    """The weighted sum of an environment's reward functions, as a function of `completion`, `prompt` and `row`.

    Raises:
        BadFunction: the environment cannot be made, takes several turns, or scores in a way that is not supported.
    """
    try:
        made = loader(**arguments)
    except TypeError as err:
        raise BadFunction(f"`{name}`: {err}; its arguments go under the option `args`") from err
    rubric = getattr(made, "rubric", None)
    if rubric is None:
        raise BadFunction(f"`{name}` made a {type(made).__name__}, which has no rubric")
    if getattr(made, "max_turns", 1) != 1:
        raise BadFunction(f"`{name}` made a {type(made).__name__}, which takes several turns: only single-turn ones are judged here")  # fmt: skip
    parts = _parts(rubric, name)
    system = getattr(made, "system_prompt", None)

    async def reward(completion: Any, prompt: Any, row: Mapping[str, Any]) -> dict[str, Any]:
        said = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
        asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        if system and not any(m.get("role") == "system" for m in asked):
            asked = [{"role": "system", "content": system}, *asked]
        have: dict[str, Any] = {"answer": "", **row}
        derive(have, ("info", "task"))
        have |= {"prompt": asked, "completion": said}
        have["state"] = {
            "trajectory": [],
            "is_completed": True,
            "responses": [],
            "turn": 1,
            "timing": {},
            **have,
        }
        values = {part.name: await part.value(have) for part in parts}
        total = sum(part.weight * values[part.name] for part in parts)
        return {"score": total, "detail": " ".join(f"{key}={value:g}" for key, value in values.items())}

    reward.__wrapped__ = loader  # type: ignore[attr-defined] # where it is said to stand
    reward.__signature__ = inspect.signature(reward, follow_wrapped=False)  # type: ignore[attr-defined]
    return reward


def _parts(rubric: Any, name: str) -> Sequence[_Part]:
    parts = [part for inner in getattr(rubric, "rubrics", ()) for part in _parts(inner, name)]
    functions, weights = list(getattr(rubric, "funcs", ())), list(getattr(rubric, "weights", ()))
    objects = dict(getattr(rubric, "class_objects", {}))
    for function, weight in zip(functions, weights, strict=True):
        part = _Part(function, float(weight), objects)
        if set(inspect.signature(function).parameters) & _OF_GROUPS:
            raise BadFunction(
                f"`{name}`: `{part.name}` scores whole groups, which is not supported in an environment"
            )
        parts.append(part)
    if not parts and not hasattr(rubric, "rubrics"):
        raise BadFunction(f"`{name}`: its rubric has no reward functions")
    return parts
