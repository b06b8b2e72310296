"""Runs environments of the package `verifiers` (its `SingleTurnEnv` and `MultiTurnEnv`, versions 0.1 to 0.3).

Their own `rollout` runs with a client that waits for our model's turns. State, stop rules, messages between turns and
rubric are theirs; no endpoint is called. The package is imported where it is used; nothing here needs it to be
installed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from grpo_cli.environments.step import own_loop
from grpo_verifiers.kinds.functions.conventions import BadFunction, find
from grpo_verifiers.kinds.functions.value import BadReturn

Message = tuple[str, str]
"""Role and text of a message."""


class VerifiersWorld:
    """One episode. All episodes of a process share the environment object; the data of one episode is in its state."""

    def __init__(self, env: Any, faults: list[Exception]) -> None:
        """`faults` collects exceptions of the rubric's functions (`guarded`)."""
        self.env, self.faults = env, faults
        self.state: Any = None
        self.messages: list[Message] = []
        self._rollout: asyncio.Task[Any] | None = None
        self._asked, self._prompt = asyncio.Event(), list[Any]()
        self._answer: asyncio.Future[Any] | None = None

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """The text that the environment appends to the row's prompt at the start, if any."""
        # the row's messages: the column `prompt`, as in their data sets, else `question`
        prompt = row.get("prompt", row.get("question", ""))
        is_chat = isinstance(prompt, Sequence) and not isinstance(prompt, str) and prompt
        self.messages = [_read_message(message) for message in prompt] if is_chat else [("user", str(prompt))]
        given = {
            **row,
            "prompt": [{"role": role, "content": text} for role, text in self.messages],
            "example_id": row.get("example_id", 0),
        }
        # a subclass of their client that answers with our model's turns
        base = import_module("verifiers.clients").Client
        methods: dict[str, Any] = dict.fromkeys(base.__abstractmethods__)
        methods |= {"__init__": lambda _: None, "get_response": lambda _, **asked: self.ask(**asked)}
        client = type("Turns", (base,), methods)()
        self._rollout = own_loop().create_task(self.env.rollout(given, client, "policy", {}))
        asked = self._go_on()
        if asked is None:
            error = self.state.get("error")
            why = f"{error!r:.200}" if error is not None else str(self.state.get("stop_condition"))
            raise BadReturn(f"the environment ended before the first turn ({why})")
        head, (role, text) = self.messages[:-1], self.messages[-1]
        if asked[:-1] != head or asked[-1][0] != role or not asked[-1][1].startswith(text):
            raise BadReturn("the environment writes another prompt than the row's: put it into the rows")
        self.messages = asked
        return asked[-1][1].removeprefix(text)

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model."""
        assert self._answer is not None
        types = import_module("verifiers.types")
        message = types.ResponseMessage(
            role="assistant", content=action, finish_reason="stop", is_truncated=False, tool_calls=None
        )
        answer = types.Response(id="turn", created=0, model="policy", usage=None, message=message)
        self._answer.set_result(answer)
        asked = self._go_on()
        if asked is None:
            return {"done": True}
        before = [*self.messages, ("assistant", action)]
        if asked[: len(before)] != before:
            raise BadReturn("the environment rewrites what was said before, and an episode only grows")
        self.messages = asked
        return {"observation": [text for _, text in asked[len(before) :]]}

    def score(self) -> float:
        """The rubric's weighted sum, also for an episode that we ended."""
        if self._rollout is None or self.state is None:
            raise BadReturn("the environment made no state")
        if not self._rollout.done():
            self._rollout.cancel()
            own_loop().run_until_complete(asyncio.wait({self._rollout}))
        if self.state.get("error") is not None:
            raise BadReturn(f"the environment failed: {self.state['error']!r:.200}")
        self.faults.clear()
        own_loop().run_until_complete(self.env.rubric.score_rollout(self.state))
        if self.faults:
            raise self.faults[0]  # the rubric itself would count a failed function as 0
        return float(self.state["reward"])

    async def ask(self, prompt: Any, state: Any, **_: object) -> Any:
        """Called by their rollout for a turn of the model."""
        self.state, self._prompt = state, list(prompt)
        self._answer = own_loop().create_future()
        self._asked.set()
        return await self._answer

    def _go_on(self) -> list[Message] | None:
        """Run the rollout until it asks for the model's next turn. Returns all messages so far; None at the end.

        Raises:
            whatever the environment raised.
        """
        self._asked.clear()
        rollout = self._rollout
        assert rollout is not None

        waiting = own_loop().create_task(self._asked.wait())
        own_loop().run_until_complete(asyncio.wait({waiting, rollout}, return_when=asyncio.FIRST_COMPLETED))
        waiting.cancel()
        if not rollout.done():
            return [_read_message(message) for message in self._prompt]
        self.state = rollout.result()
        return None


def loaded(spec: str, options: Mapping[str, Any]) -> tuple[Any, list[Exception]]:
    """The environment of an id, or the result of `MODULE:FUNCTION`, and the list that collects its rubric's exceptions.

    Raises:
        BadFunction: it cannot be loaded, or its way of playing is not supported.
    """
    try:
        installed = version("verifiers")
    except PackageNotFoundError:
        installed = ""
    if installed and tuple(map(int, installed.split(".")[:2])) >= (0, 4):
        raise BadFunction(
            f"`{spec}` is an environment of `verifiers` before 0.4, and {installed} is installed, which has no such classes:"
            " pip install 'verifiers<0.4'"
        )
    if ":" in spec:
        env = find(spec)(**options)
    else:
        try:
            # a folder of that name (as in this repository) is imported as an empty namespace package
            load = import_module("verifiers").load_environment
        except (ModuleNotFoundError, AttributeError) as err:
            raise BadFunction(
                f"`{spec}` needs the package `verifiers`, which is not installed: pip install 'verifiers<0.4'"
            ) from err
        env = load(spec, **options)
    if not all(hasattr(env, name) for name in ("rollout", "rubric", "is_completed")):
        raise BadFunction(f"`{spec}` gave a {type(env).__name__}: an environment of `verifiers` 0.1 to 0.3 is wanted")
    if getattr(env, "tool_defs", None):
        raise BadFunction(f"`{spec}` has tools, which are not passed on: name its functions under `environment.tools`")
    if env.rubric.has_group_rewards:
        raise BadFunction(f"`{spec}` scores whole groups, and an episode is scored by itself here")
    faults: list[Exception] = []
    _guard(env.rubric, faults)
    return env, faults


def _guard(rubric: Any, faults: list[Exception]) -> None:
    """Collect what reward functions raise: the rubric logs it and counts 0."""
    for inner in getattr(rubric, "rubrics", ()):
        _guard(inner, faults)
    if "funcs" in vars(rubric):
        rubric.funcs = [_guarded(function, faults) for function in rubric.funcs]


def _guarded(function: Callable[..., Any], faults: list[Exception]) -> Callable[..., Any]:
    async def call(*args: Any, **given: Any) -> Any:
        try:
            found = function(*args, **given)
            return float(await found if inspect.isawaitable(found) else found)
        except Exception as err:
            faults.append(err)
            raise

    functools.update_wrapper(call, function)
    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined] # arguments are chosen by it
    return call


def _read_message(message: Any) -> Message:
    held = message if isinstance(message, Mapping) else {"role": message.role, "content": message.content}
    content = held["content"]
    if not isinstance(content, str):
        raise BadReturn(f"a message of `{held['role']}` has a {type(content).__name__} as content: only text is taken")
    return str(held["role"]), content
