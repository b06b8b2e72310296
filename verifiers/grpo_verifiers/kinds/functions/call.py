"""The worker's side of `python`: find the function, bind its arguments, read what it returns.

Runs in a pool process. Everything that leaves it is plain data, so a function that was tricked by model text cannot
send objects into the trainer.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_verifiers.kinds.functions import environment
from grpo_verifiers.kinds.functions.find import find, names_keys_of_messages, place_of
from grpo_verifiers.kinds.functions.forms import FunctionCall, Signature, takes_parser
from grpo_verifiers.kinds.functions.value import BadReturn, ReturnReader, listed
from grpo_verifiers.kinds.functions.waiting import WAITS_S, Waiting
from grpo_verifiers.processes.worker import described
from grpo_verifiers.verdict import SKIPPED, Outcome

Entry = list[Any] | dict[str, Any]
"""A plain verdict, or `{"raised": [kind, message, traceback, classes]}`, or `{"bad": message}`."""

Work = Callable[[tuple[Sequence[FunctionCall], bool]], list[Entry]]


def load(config: Mapping[str, Any]) -> tuple[Work, dict[str, Any]]:
    """Import the function; the info tells how it wants to be called and which columns a row must have."""
    for folder in reversed([*config["path"], os.getcwd()]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    function, name = find(config["function"]), config["function"]
    if environment.is_loader(function):
        function = environment.reward_of(function, name, config["args"])
    call = UserFunction(function, name, config)
    return call.work, call.info()


class UserFunction:
    """One function with its calling convention."""

    def __init__(self, function: Callable[..., Any], name: str, config: Mapping[str, Any]) -> None:
        self._function = function
        self._name = name
        parser = _parser() if takes_parser(function) else None
        self.signature = Signature.of(function, name, has_parser=parser is not None)
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
        self._extra: dict[str, Any] = {"log_metric": _log_metric, "log_extra": self._log_extra}
        self._columns: dict[str, Sequence[Any]] = {}
        if parser is not None:
            self._extra["parser"] = parser
        self._loop: asyncio.AbstractEventLoop | None = None

    def info(self) -> dict[str, Any]:
        """What the host must know."""
        signature, speaks = self.signature, names_keys_of_messages(self._function)
        return {
            "required": signature.required,
            "derived": signature.derived,
            "shape": "waiting" if self._waits else signature.shape,
            "wants_group": "group" in signature.names,
            "tries_messages": not signature.is_verl
            and (speaks or bool(signature.names & {"completions", "state", "info", "task", "parser"})),
            "prefers_messages": speaks,
            "place": self._reader.place,
            "is_ours": "completion" in signature.names,
        }

    def work(self, item: tuple[Sequence[FunctionCall], bool]) -> list[Entry]:
        """Entries for some completions, in order; a function that takes lists sees them all at once."""
        calls, messages = item
        if self.signature.shape == "many":
            self._columns.clear()
            entries = [self._entry(value, in_list=True) for value in self._many(calls, messages)]
            return [self._with_columns(entry, i, len(calls)) for i, entry in enumerate(entries)]
        if self._waits:
            return self._concurrent(calls, messages)
        return [self._entry(self._awaited(self._call(call, messages))) for call in calls]

    def _call(self, call: FunctionCall, messages: bool) -> Any:
        return self._function(**self.signature.of_one(call, self._extra, messages=messages))

    def _many(self, calls: Sequence[FunctionCall], messages: bool) -> list[Any]:
        arguments = self.signature.of_many(calls, self._extra, messages=messages)
        value = self._awaited(self._function(**arguments))
        values = listed(value)
        n = len(calls)
        if values is None:
            raise self._reader.bad(
                f"a {type(value).__name__} for a list of {n} completion{'s' * (n > 1)}",
                f"return a list of {n}",
            )
        if len(values) != n:
            raise self._reader.bad(
                f"{len(values)} scores for {n} completion{'s' * (n > 1)}", f"return a list of {n}"
            )
        return values

    def _concurrent(self, calls: Sequence[FunctionCall], messages: bool) -> list[Entry]:
        threads = None if self._is_async else ThreadPoolExecutor(self._threads)

        def begin(call: FunctionCall) -> Awaitable[Any]:
            if threads is None:
                found: Awaitable[Any] = self._call(call, messages)
                return found
            return asyncio.get_running_loop().run_in_executor(threads, self._call, call, messages)

        found = self._waiting.run(begin, calls)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        return [self._entry(value) for value in found]

    def _entry(self, value: Any, *, in_list: bool = False) -> Entry:
        if isinstance(value, MemoryError):
            raise value
        if isinstance(value, BaseException):
            return {"raised": described(value)}
        if in_list and value is None:  # TRL's word for "not mine to judge"
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

    def _log_extra(self, column: str, values: Sequence[Any]) -> None:
        self._columns[column] = values

    def _with_columns(self, entry: Entry, i: int, n: int) -> Entry:
        """A verdict with what the function logged of its sample (TRL's `log_extra`) as its detail."""
        if isinstance(entry, list) and not entry[4]:
            said = [f"{name}={values[i]}" for name, values in self._columns.items() if len(values) == n]
            entry[4] = " ".join(said)[:300]
        return entry

    def _awaited(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def await_it() -> Any:
            return await value

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(await_it())


def _parser() -> Any:
    """The parser that rubric functions get where none is named, if its package is here."""
    try:
        return importlib.import_module("verifiers").Parser()
    except (ImportError, AttributeError):
        return None


def _log_metric(name: str, value: object) -> None:
    print(f"log_metric {name}={value}")
