"""The worker's side of `python`: find the function, bind its arguments, read what it returns.

How this works: `load` runs in a pool process. It imports the function and returns the work of the pool and what the host must
know of the signature. `UserFunction.work` makes the arguments, calls the function once for each completion, for many at a time
or for all at once, and reads each return as a verdict. An environment of the package `verifiers` becomes such a function first;
that package is imported by the user's `load_environment`, never here.

Only plain data leaves the process, so a function that model text has exploited cannot send objects into the trainer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.kinds.functions.conventions import (
    BadFunction,
    FunctionCall,
    Signature,
    derive,
    find,
    names_keys_of_messages,
    place_of,
)
from grpo_verifiers.kinds.functions.value import BadReturn, ReturnReader, listed
from grpo_verifiers.kinds.functions.waiting import WAITS_S, Waiting
from grpo_verifiers.processes.worker import described
from grpo_verifiers.verdict import SKIPPED, Outcome

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
        turns = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
        asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        if system and not any(m.get("role") == "system" for m in asked):
            asked = [{"role": "system", "content": system}, *asked]
        have: dict[str, Any] = {"answer": "", **row}
        derive(have, ("info", "task"))
        have |= {"prompt": asked, "completion": turns}
        state = {"trajectory": [], "is_completed": True, "responses": [], "turn": 1, "timing": {}}
        have["state"] = {**state, **have}
        values = {part.name: await part.value(have) for part in parts}
        total = sum(part.weight * values[part.name] for part in parts)
        return {"score": total, "detail": " ".join(f"{key}={value:g}" for key, value in values.items())}

    reward.__wrapped__ = loader  # type: ignore[attr-defined] # messages name its file and line
    reward.__signature__ = inspect.signature(reward, follow_wrapped=False)  # type: ignore[attr-defined]
    return reward


def _parts(rubric: Any, name: str) -> Sequence[_Part]:
    parts = [part for inner in getattr(rubric, "rubrics", ()) for part in _parts(inner, name)]
    functions, weights = list(getattr(rubric, "funcs", ())), list(getattr(rubric, "weights", ()))
    objects = dict(getattr(rubric, "class_objects", {}))
    for function, weight in zip(functions, weights, strict=True):
        part = _Part(function, float(weight), objects)
        if set(inspect.signature(function).parameters) & _OF_GROUPS:
            raise BadFunction(f"`{name}`: `{part.name}` scores whole groups, which is not supported in an environment")
        parts.append(part)
    if not parts and not hasattr(rubric, "rubrics"):
        raise BadFunction(f"`{name}`: its rubric has no reward functions")
    return parts


Entry = list[Any] | dict[str, Any]
"""A plain verdict, or `{"raised": [kind, message, traceback, classes]}`, or `{"bad": message}`."""

Work = Callable[[tuple[Sequence[FunctionCall], bool]], list[Entry]]


def load(config: Mapping[str, Any]) -> tuple[Work, dict[str, Any]]:
    """Import the function; the info describes how to call it and which columns a row must have."""
    for folder in reversed([*config["path"], os.getcwd()]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    function, name = find(config["function"]), config["function"]
    if getattr(function, "__name__", "") == LOADER:
        function = reward_of(function, name, config["args"])
    call = UserFunction(function, name, config)
    return call.work, call.info()


class UserFunction:
    """One function with its calling convention."""

    def __init__(self, function: Callable[..., Any], name: str, config: Mapping[str, Any]) -> None:
        self._function = function
        self._name = name
        self._extra: dict[str, Any] = {
            "log_metric": lambda name, value: print(f"log_metric {name}={value}"),
            "log_extra": lambda column, values: self._columns.update({column: values}),
        }
        # the parser that rubric functions get where none is named, if its package is here and the signature can be read
        with contextlib.suppress(ImportError, AttributeError, TypeError, ValueError):
            if "parser" in inspect.signature(function).parameters:
                self._extra["parser"] = importlib.import_module("verifiers").Parser()
        self.signature = Signature.of(function, name, has_parser="parser" in self._extra)
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(type(function), "__call__", None)  # noqa: B004 - whether it is async, not whether it is there
        )
        self._reader = ReturnReader(
            name.rpartition(":")[2],
            place_of(function),
            config["right_at"],
            tuple(config["range"]) if config["range"] is not None else None,
            self.signature.is_verl,
        )
        concurrency = config["concurrency"] or (32 if is_async else 1)
        self._waits = self.signature.shape == "one" and (is_async or concurrency > 1)
        self._is_async = is_async
        self._threads = concurrency
        self._waiting = Waiting(
            concurrency=concurrency,
            retries=config["retries"],
            timeout_s=config["timeout_s"] or WAITS_S,
            keeps=is_async if config["cache"] is None else config["cache"],
        )
        self._columns: dict[str, Sequence[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def info(self) -> dict[str, Any]:
        """What the host must know."""
        signature, names_keys = self.signature, names_keys_of_messages(self._function)
        return {
            "required": signature.required,
            "derived": signature.derived,
            "shape": "waiting" if self._waits else signature.shape,
            "wants_group": "group" in signature.names,
            "tries_messages": not signature.is_verl
            and (names_keys or bool(signature.names & {"completions", "state", "info", "task", "parser"})),
            "prefers_messages": names_keys,
            "place": self._reader.place,
            "is_ours": "completion" in signature.names,
        }

    def work(self, item: tuple[Sequence[FunctionCall], bool]) -> list[Entry]:
        """Entries for some completions, in order; a function that takes lists sees them all at once."""
        calls, messages = item
        n = len(calls)
        if self.signature.shape == "many":
            self._columns.clear()
            value = self._awaited(self._function(**self.signature.of_many(calls, self._extra, messages=messages)))
            values = listed(value)
            if values is None or len(values) != n:
                what = f"a {type(value).__name__} for a list of" if values is None else f"{len(values)} scores for"
                raise self._reader.bad(f"{what} {n} completion{'s' * (n > 1)}", f"return a list of {n}")
            entries = [self._entry(one, in_list=True) for one in values]
            for i, entry in enumerate(entries):
                # the text that the function logged (TRL's `log_extra`) becomes the detail
                if isinstance(entry, list) and not entry[4]:
                    logged = {name: column for name, column in self._columns.items() if len(column) == n}
                    entry[4] = " ".join(f"{name}={column[i]}" for name, column in logged.items())[:300]
            return entries

        def call_one(call: FunctionCall) -> Any:
            return self._function(**self.signature.of_one(call, self._extra, messages=messages))

        if not self._waits:
            return [self._entry(self._awaited(call_one(call))) for call in calls]
        if self._is_async:
            return [self._entry(value) for value in self._waiting.run(call_one, calls)]
        threads = ThreadPoolExecutor(self._threads)
        found = self._waiting.run(
            lambda call: asyncio.get_running_loop().run_in_executor(threads, call_one, call), calls
        )
        threads.shutdown(wait=False, cancel_futures=True)
        return [self._entry(value) for value in found]

    def _entry(self, value: Any, *, in_list: bool = False) -> Entry:
        if isinstance(value, MemoryError):
            raise value
        if isinstance(value, BaseException):
            return {"raised": described(value)}
        if in_list and value is None:  # in TRL None means that the function does not judge the sample
            return [Outcome.ERROR.value, None, None, SKIPPED, "the function returned None"]
        try:
            return list(self._reader.read(value))
        except BadReturn as err:
            return {"bad": str(err)}
        except MemoryError:
            raise
        except Exception as err:  # noqa: BLE001 - an object of the user's may fail to be a number or a text
            what, why = f"a {type(value).__name__} that cannot be read", f"{type(err).__name__}"
            return {"bad": str(self._reader.bad(what, f"reading it raised {why}"))}

    def _awaited(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def await_it() -> Any:
            return await value

        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(await_it())
