"""What a harness asks for, in one form for all dialects: messages, tools and limits; and the turn that answers it.

Identity is what the model is shown: role, text, and calls as names with parsed arguments. Ids of calls, the order of keys and
fields such as `refusal` make no difference, for harnesses write them anew in each request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `arguments` is canonical JSON, or the text as it came where it is none."""

    name: str
    arguments: str

    @property
    def parsed(self) -> Any:
        """The arguments as a value; the text where it is no JSON."""
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A result of a tool answers the `answers`-th call, of the tool `name`, of the turn before it."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `limit` is its own limit of tokens, `sampling` what it says of how to sample, `ignored` what cannot be done.

    `shows` are the extras of the answer: `usage`, `logprobs`, `token_ids`.
    """

    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()
    """Each as canonical JSON, in the form of chat completions."""
    limit: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    model: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    shows: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()
    reads_calls: bool = True
    """False where the request forbids calls: then the whole turn is text."""
    only_counts: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The turn that answers a request, with ids and log-probs as they were sampled; `pieces` is the text of each token."""

    message: Message
    finish: str
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logps: Sequence[float]
    stopped_by: str | None = None
    pieces: Sequence[str] = ()


class RequestRefused(ValueError):
    """A request that is not served: its HTTP status, a stable code, and a sentence for the harness's author."""

    def __init__(self, text: str, *, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.status, self.code = status, code


def canonical(value: object) -> str:
    """JSON with sorted keys and no blanks.

    Raises:
        RequestRefused: it is nested too deeply.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (RecursionError, ValueError) as err:
        raise RequestRefused("the request is nested too deeply") from err


def arguments_of(value: object) -> str:
    """The arguments of a call in the form of `Call`: of JSON text, or of a value."""
    if not isinstance(value, str):
        return canonical(value)
    try:
        return canonical(json.loads(value))
    except (ValueError, RecursionError):
        return clean(value)


def clean(text: str) -> str:
    """Text that has tokens: lone surrogates have none."""
    return text.encode("utf-8", "replace").decode()


def numbered(messages: Sequence[tuple[Message, Sequence[str], str]]) -> tuple[Message, ...]:
    """Results of tools with the number and name of the call that each answers; of each message its calls' ids, and the id it answers.

    Raises:
        RequestRefused: a result answers no call of the turn before it.
    """
    found, calls = [], dict[str, tuple[int, str]]()
    for message, ids, answered in messages:
        if message.calls:
            calls = {one: (i, call.name) for i, (one, call) in enumerate(zip(ids, message.calls, strict=True))}
        if message.role == "tool":
            if answered not in calls:
                raise RequestRefused(
                    f"a result of a tool answers the call `{answered[:80]}`, which the turn before does not make"
                )
            number, name = calls[answered]
            message = replace(message, answers=number, name=name)
        found.append(message)
    return tuple(found)
