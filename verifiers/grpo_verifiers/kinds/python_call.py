"""The worker's side of `python: module:function`: find the function, bind its arguments, read what it returns.

Runs in a pool process. Everything that leaves it is plain data, so a function that was tricked by model text cannot
send objects into the trainer.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from grpo_verifiers.verdict import Outcome, Verdict

OURS = ("completion", "completions", "prompt", "prompts", "row", "completion_ids", "trainer_state")
"""Parameters that are not columns of the row."""

RETURNED_NONE = "returned_none"
"""Reason of a None: the host decides whether the completion or the function is to blame."""

Plain = tuple[str, float | None, str | None, str, str]
"""outcome, score, answer, reason, detail: a verdict as JSON can say it."""


class BadFunction(Exception):
    """The function cannot be found or called as a verifier."""


class BadReturn(Exception):
    """The function returned something that is no verdict."""


def load(config: Mapping[str, Any]) -> tuple[Callable[[Any], Plain], dict[str, Any]]:
    """Import the function; the info tells which columns a row must have."""
    for folder in reversed([*config["path"], os.getcwd()]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    function = find(config["function"])
    call = UserFunction(function, config["function"])
    return call.judge, {"required": call.required, "takes_all": call.takes_all}


def find(spec: str) -> Callable[..., Any]:
    """The function of `module:function` or `file.py:function`."""
    where, _, name = spec.rpartition(":")
    if where.endswith(".py"):
        found = importlib.util.spec_from_file_location("_grpo_custom", _file(where))
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            known = [n for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_")]
            raise BadFunction(
                f"`{where}` has no `{name}`; it has {', '.join(sorted(known)[:8]) or 'no functions'}"
            )
        target = getattr(target, part)
    if not callable(target):
        raise BadFunction(f"`{spec}` is a {type(target).__name__}, not a function")
    return target  # type: ignore[no-any-return]


def _file(where: str) -> str:
    for folder in ["", *sys.path]:
        path = os.path.join(folder, where)
        if os.path.isfile(path):
            return path
    raise BadFunction(f"no file `{where}` here or beside the recipe")


class UserFunction:
    """One function with its calling convention: `completion` (one text) or `completions` (lists, as in TRL)."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._name = name
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as err:
            raise BadFunction(f"`{name}` has no signature that can be read") from err
        only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        if only:
            raise BadFunction(f"`{name}` takes `{only[0]}` by position only; columns are passed by name")
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._names = {p.name for p in named}
        self._is_batch = "completions" in self._names
        if not self._is_batch and "completion" not in self._names:
            raise BadFunction(
                f"`{name}` takes no parameter `completion` (one text) or `completions` (a list, as in TRL); "
                f"it takes {', '.join(f'`{p.name}`' for p in named) or 'nothing'}"
            )
        self.required = [p.name for p in named if p.default is p.empty and p.name not in OURS]
        for missing in ("completion_ids", "trainer_state"):
            if any(p.name == missing and p.default is p.empty for p in named):
                raise BadFunction(f"`{name}` wants `{missing}`, which exists only inside a trainer")
        self._loop: asyncio.AbstractEventLoop | None = None

    def judge(self, item: tuple[str, str, Mapping[str, Any]]) -> Plain:
        """Call the function for one completion and read its answer."""
        completion, prompt, row = item
        value = self._function(**self._arguments(completion, prompt, row))
        if inspect.isawaitable(value):
            value = self._waited(value)
        if self._is_batch:
            value = self._only(value)
        return read(value)

    def _arguments(self, completion: str, prompt: str, row: Mapping[str, Any]) -> dict[str, Any]:
        have: dict[str, Any] = {**row, "row": dict(row), "prompt": prompt, "completion": completion}
        if not self._is_batch:
            wanted = self._names | (set(row) if self.takes_all else set())
            return {name: have[name] for name in wanted if name in have}
        lists: dict[str, Any] = {name: [value] for name, value in row.items()}
        lists |= {"row": [dict(row)], "prompts": [prompt], "completions": [completion]}
        wanted = self._names | ({"prompts", *row} if self.takes_all else set())
        return {name: lists[name] for name in wanted if name in lists}

    def _waited(self, value: Any) -> Any:
        async def await_it() -> Any:
            return await value

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(await_it())

    def _only(self, value: object) -> Any:
        value = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(value, list | tuple):
            raise BadReturn(
                f"`{self._name}` returned {_shown(value)} for a list of 1 completion; return a list of 1"
            )
        if len(value) != 1:
            raise BadReturn(f"`{self._name}` returned {len(value)} scores for 1 completion")
        return value[0]


def read(value: object) -> Plain:
    """A verdict from what the function returned: bool, number in [0, 1], None, dict or Verdict."""
    if isinstance(value, Verdict):
        return (value.outcome.value, value.score, value.answer, value.reason, value.detail)
    if value is None:
        return (Outcome.NO_ANSWER.value, 0.0, None, RETURNED_NONE, "")
    if isinstance(value, dict):
        return _read_dict(value)
    score = _score(value)
    return (_outcome(score), score, None, "function", "")


def _read_dict(value: dict[Any, Any]) -> Plain:
    unknown = [key for key in value if key not in ("score", "outcome", "answer", "reason", "detail")]
    if unknown:
        raise BadReturn(f"unknown key {unknown[0]!r}; a dict may hold score, outcome, answer, reason, detail")
    if "outcome" not in value and "score" not in value:
        raise BadReturn("a dict needs `score` or `outcome`")
    score = None if value.get("score") is None else _score(value["score"])
    try:
        outcome = Outcome(value["outcome"]) if "outcome" in value else Outcome(_outcome(score or 0.0))
    except ValueError:
        raise BadReturn(f"outcome {value['outcome']!r} is none of {', '.join(Outcome)}") from None
    if outcome is Outcome.ERROR or outcome is Outcome.OVER_LIMIT:
        score = None if outcome is Outcome.ERROR else 0.0
    elif score is None:
        score = 1.0 if outcome is Outcome.RIGHT else 0.0
    answer = value.get("answer")
    texts = [str(value.get(key, "")) for key in ("reason", "detail")]
    return (outcome.value, score, None if answer is None else str(answer), texts[0] or "function", texts[1])


def _score(value: object) -> float:
    if hasattr(value, "item") and not isinstance(value, int | float):  # numpy and torch scalars
        value = value.item()
    if isinstance(value, str) or not isinstance(value, int | float):
        raise BadReturn(
            f"returned {_shown(value)}; a verdict is a bool, a number in [0, 1], None, a dict or a Verdict"
        )
    score = float(value)
    if not math.isfinite(score) or not 0.0 <= score <= 1.0:
        raise BadReturn(f"returned {score:g}, which is not in [0, 1]")
    return score


def _outcome(score: float) -> str:
    return (Outcome.RIGHT if score >= 1.0 else Outcome.WRONG).value


def _shown(value: object) -> str:
    return f"a {type(value).__name__}"
