"""The protocol of environments. Return values are checked strictly, so that a typing mistake never becomes a reward.

    class Grid:                                       # any class; nothing of ours has to be imported
        def reset(self, row: dict, seed: int) -> str | None       # added to the last user message; None adds nothing
        def step(self, action: str) -> Step | dict | str          # one turn of the model; a text is the observation alone
        def score(self) -> float | None                           # optional: the outcome; None is no verdict
        def demonstrate(self) -> str                              # optional: an action that may be taken now, for a warm-up

Without `score` the outcome is the sum of the steps' rewards.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from grpo_verifiers.kinds.functions.value import BadReturn, number_of, shown
from grpo_verifiers.names import near_or_known, nearest
from grpo_verifiers.verdict import LARGEST

LONGEST = 65_536
"""Characters of one observation or state. Longer ones would never fit into an episode and are the environment's mistake."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one action led to.

    `reward` is any finite number. Equal situations have equal `state` (default: the observation). `milestone` names a
    part of the task that is now done. `valid` is False for an action that has no meaning here. An `observation` that is
    a list of texts becomes one message for each.
    """

    observation: str = ""
    reward: float = 0.0
    done: bool = False
    state: str | None = None
    milestone: str | None = None
    valid: bool = True
    parts: tuple[str, ...] = ()
    """The messages of an observation that is a list: results of several tools."""


_FIELDS = tuple(field.name for field in fields(Step) if field.name != "parts")


def read_step(value: object, where: str) -> Step:
    """The step for a return value; `where` names the function in messages.

    Raises:
        BadReturn: the value is invalid.
    """
    if isinstance(value, str) or value is None:
        return Step(observation=read_text(value, where, "the observation"))
    found: dict[str, Any]
    if isinstance(value, Mapping):
        # refuse unknown keys of a dict: a mistyped `reward` would silently never be paid
        for name in value:
            if name not in _FIELDS:
                raise BadReturn(f"{where} returned an unknown key `{name}`{near_or_known(str(name), _FIELDS)}")
        found = dict(value)
    else:
        own = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
        if isinstance(value, tuple) and not own:
            raise BadReturn(
                f"{where} returned a tuple: return a dict, `{{'observation': …, 'reward': …, 'done': …}}`"
                " (gymnasium's `terminated or truncated` is `done`)"
            )
        # an object may have other attributes, but none that looks like a mistyped name of ours
        found = {name: getattr(value, name) for name in _FIELDS if hasattr(value, name)}
        for name in own:
            near = nearest(name, _FIELDS, 0.85)
            if near is not None and near not in found:
                raise BadReturn(f"{where} returned {kind_of(value)} with `{name}`; did you mean `{near}`?")
        missing = [name for name in ("observation", "reward", "done") if name not in found]
        if missing:
            lacks = f" without `{missing[0]}`" if len(missing) < 3 else ""
            raise BadReturn(f"{where} returned {kind_of(value)}{lacks}: return a text, a dict or a `Step`")
    seen, milestone = found.get("observation"), found.get("milestone")
    if milestone is not None and not (isinstance(milestone, str) and milestone):
        raise BadReturn(f"{where} returned {kind_of(milestone)} as `milestone`: return a name, or None")
    state = found.get("state")
    if state is not None and not isinstance(state, str):
        try:
            hash(state)
        except TypeError:
            raise BadReturn(
                f"{where} returned {kind_of(state)} as `state`: return what can be hashed, such as a tuple"
            ) from None
        state = _shown(state, where)
    parts = tuple(read_text(one, where, "an observation") for one in seen) if isinstance(seen, list) else ()
    return Step(
        observation=read_text("\n".join(parts) if isinstance(seen, list) else seen, where, "the observation"),
        reward=read_number(found.get("reward", 0.0), where, "the reward"),
        done=_switch(found.get("done", False), where, "done"),
        state=None if state is None else read_text(state, where, "`state`"),
        milestone=milestone,
        valid=_switch(found.get("valid", True), where, "valid"),
        parts=parts,
    )


def read_text(value: object, where: str, what: str) -> str:
    """A text; None is an empty one.

    Raises:
        BadReturn: the value is no text, or longer than `LONGEST`.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadReturn(f"{where} returned {kind_of(value)} as {what}: return text")
    if len(value) > LONGEST:
        raise BadReturn(
            f"{where} returned {len(value):,} characters as {what}, at most {LONGEST:,} are taken: cut it there"
        )
    return value.encode("utf-8", "replace").decode()  # lone surrogates have no tokens


def read_number(value: object, where: str, what: str) -> float:
    """A finite number, of `LARGEST` at most.

    Raises:
        BadReturn: it is none.
    """
    number = number_of(value)
    if number is None or not math.isfinite(number):
        got = kind_of(value) if number is None else shown(value) if isinstance(value, float) else number
        raise BadReturn(f"{where} returned {got} as {what}: return a finite number, of {LARGEST:g} at most")
    return number


def method_of(owner: object, name: str, called: str) -> Any:
    """An optional method; None if the class does not have it. `called` is the class's name in messages.

    Raises:
        BadReturn: the attribute of that name is not callable.
    """
    found = getattr(owner, name, None)
    if found is None or callable(found):
        return found
    raise BadReturn(
        f"`{name}` of `{called}` is {kind_of(found)}, and a method `{name}()` is meant by it: give it another name"
    )


def _switch(value: object, where: str, name: str) -> bool:
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(plain, bool):
        return plain
    raise BadReturn(f"{where} returned {kind_of(value)} as `{name}`: return true or false")


def _shown(value: Any, where: str) -> str:
    """The same text for equal states in any process: like `repr`, but sets are sorted and numbers of all libraries look
    alike."""
    if type(value) is tuple:
        inner = [_shown(one, where) for one in value]
        return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(_shown(one, where) for one in value))}}})"
    text = repr(value.item() if hasattr(value, "item") else value)
    if " at 0x" in text:
        raise BadReturn(
            f"{where} returned {kind_of(value)} as `state`, which shows itself by its place in memory, so that no two are equal:"
            " return a text, or a tuple of texts and numbers"
        )
    return text


def kind_of(value: object) -> str:
    """`a float`, for messages."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


# Coroutines of users' code all run on one event loop of a process: clients are bound to the loop that they were made
# on.

_LOOPS: list[asyncio.AbstractEventLoop] = []


def own_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process; it runs only while a result is awaited."""
    if not _LOOPS:
        _LOOPS.append(asyncio.new_event_loop())
    return _LOOPS[0]


def awaited(value: object) -> Any:
    """The value; a coroutine is awaited."""
    return own_loop().run_until_complete(value) if inspect.iscoroutine(value) else value
