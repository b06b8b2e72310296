"""The first rendering of a chat template that came from elsewhere: in a process that may be killed.

Templates are programs. Jinja's sandbox keeps them from this machine, and neither from going on for ever nor from making a
text of gigabytes, which jinja may do as early as it compiles a constant. What passes here is rendered in this process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.prompts.jinja import environment
from grpo_cli.text import visible
from grpo_verifiers.processes.pool import Killed, Pool, ProcessLimits
from grpo_verifiers.verifier import Unavailable

LIMITS = ProcessLimits(cpu_s=1.0, wall_s=3.5, patience=2.0, memory_mb=256, forks=False)
LONG = 20_000
"""Characters of each message of the second prompt that is tried: a template may well be quick on short ones only."""
MOST_ADDED = 1_000_000
"""Characters that a template may add to four times what it was given."""
MOST_ROLES = 8
"""Messages by whose roles a prompt is another one to a template that it passed already."""
Given = Mapping[str, Any]
"""What a template is rendered with, `messages` among it."""

_found: dict[tuple[object, ...], str] = {}
_trying = threading.Lock()


def try_template(source: str, given: Given) -> None:
    """Render a template with these messages and with long ones, once for each template and sequence of roles.

    Raises:
        SetupError: it goes on too long, needs too much memory or makes too long a text; or no process could be started.
    """
    roles = tuple(str(message.get("role")) for message in given["messages"][:MOST_ROLES])
    others = {key: value for key, value in given.items() if key not in ("messages", "tools")}
    key = (source, repr(others), roles, bool(given["tools"]))
    with _trying:  # `check` renders in two threads
        if key not in _found:
            # a template that failed once is not waited for again, whatever it gets
            failed = next((why for (known, *_), why in _found.items() if known == source and why), None)
            _found[key] = failed or _tried(source, given)
    if _found[key]:
        raise SetupError(
            f"the model's chat template, which begins `{visible(source.strip(), 40)}`, {_found[key]}",
            hint="give another template with `model.chat_template`, or set `data.plain: true`",
        )


def _tried(source: str, given: Given) -> str:
    """What of the limits it broke; empty where it kept them, also where it fails in its own words."""
    for messages in _short_and_long(given):
        prompt = json.dumps({**given, "messages": messages}, default=str)
        try:
            (result,) = _pool().run([(source, prompt)])
        except Unavailable as err:
            raise SetupError(f"the chat template cannot be tried: {err}") from err
        if isinstance(result, Killed):
            if result.reason == "unavailable":
                raise SetupError("the chat template cannot be tried: its process ended")
            return {
                "timeout": f"does not come to an end: {LIMITS.cpu_s:g} s were not enough for one prompt",
                "memory": f"needs more than {LIMITS.memory_mb} MB for one prompt",
            }.get(result.reason, "ends the process that renders it")
        made = getattr(result, "value", 0)
        if made > MOST_ADDED + 4 * len(prompt):
            return f"makes {made:,} characters of a prompt of {len(prompt):,}"
    return ""


def _short_and_long(given: Given) -> list[Sequence[Mapping[str, Any]]]:
    def lengthened(text: object) -> object:
        return (text + " " + "x " * (LONG // 2)) if isinstance(text, str) else text

    messages = given["messages"]
    return [messages, [{**one, "content": lengthened(one.get("content"))} for one in messages]]


@lru_cache(maxsize=1)
def _pool() -> Pool:
    return Pool(f"{__name__}:load", workers=1, limits=LIMITS)


def load(config: object) -> tuple[Callable[[tuple[str, str]], int], None]:
    """The pool's task: how many characters a template makes of what it is given."""
    return lambda item: len(environment().from_string(item[0]).render(json.loads(item[1]))), None
