"""Renders chat templates that came with a model in a separate process, which can be killed.

Templates are programs. Jinja's sandbox protects the machine, but does not stop an endless loop or a text of gigabytes,
which jinja may produce even while it compiles a constant. A template may be quick on a thousand prompts and fail on the
next, so every prompt is rendered in that process. The process stays alive: a prompt costs a round trip of a tenth of a
millisecond, not a start.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from grpo_cli.errors import SetupError
from grpo_cli.text import visible
from grpo_verifiers.processes.pool import Done, Killed, Pool, ProcessLimits
from grpo_verifiers.verifier import Unavailable

LIMITS = ProcessLimits(cpu_s=1.0, wall_s=3.5, patience=2.0, memory_mb=256, forks=False)
LONG = 20_000
"""Characters added to each message of a second prompt, which is tried once."""
MOST_ADDED = 1_000_000
"""Characters that a template may add to four times what it was given."""
MOST_WORDS = 1000
"""Characters kept of a template's own error message."""
Given = Mapping[str, Any]
"""What a template is rendered with, `messages` among it."""

_failed: dict[str, str] = {}
"""Templates that broke a limit, with the reason; they are not rendered again."""
_tried = set[str]()
_rendering = threading.Lock()


class TemplateRefuses(ValueError):
    """A template cannot be read, or does not render these messages; the error has the template's own message."""


def render_beside(source: str, given: Given, clock: datetime | None = None) -> tuple[str, list[str]]:
    """The text of a template and the dates that it wrote; `clock` is the time that the template sees.

    Raises:
        TemplateRefuses: it refuses them, or fails.
        SetupError: it goes on too long, needs too much memory or makes too long a text; or no process could be started.
    """
    with _rendering:  # `check` renders in two threads
        if source not in _failed and source not in _tried:
            _tried.add(source)
            # render long messages once and only look for a failure: a template may be quick on short messages only
            longer = [
                {**one, "content": text + " " + "x " * (LONG // 2)}
                if isinstance(text := one.get("content"), str)
                else one
                for one in given["messages"]
            ]
            _run(source, {**given, "messages": longer}, clock)
        made = [] if source in _failed else _run(source, given, clock)
    if source in _failed:
        raise SetupError(
            f"the model's chat template, which begins `{visible(source.strip(), 40)}`, {_failed[source]}",
            hint="give another template with `model.chat_template`, or set `data.plain: true`",
        )
    if made[0] == "refuses":
        raise TemplateRefuses(made[1])
    if any("\ud800" <= char <= "\udfff" for char in made[1]):
        raise TemplateRefuses("it writes half of a surrogate pair (\\ud800 to \\udfff), which is no character")
    return made[1], made[2]


def _run(source: str, given: Given, clock: datetime | None) -> list[Any]:
    """What the process returns; a limit that was broken is noted."""
    # a template that breaks a limit on one prompt is refused for all, so no other prompt waits for it
    try:
        (result,) = _pool().run([(source, given, clock)])
    except Unavailable as err:
        raise SetupError(f"the chat template cannot be rendered: {err}") from err
    if isinstance(result, Done):
        if result.value[0] == "long":
            _failed[source] = f"makes {result.value[1]:,} characters of a prompt of {result.value[2]:,}"
        return list(result.value)
    reason = result.reason if isinstance(result, Killed) else "memory"  # a MemoryError where even that cannot be caught
    if reason == "unavailable":
        raise SetupError("the chat template cannot be rendered: its process ended")
    _failed[source] = {
        "timeout": f"does not come to an end: {LIMITS.cpu_s:g} s were not enough for one prompt",
        "memory": f"needs more than {LIMITS.memory_mb} MB for one prompt",
    }.get(reason, "ends the process that renders it")
    return []


@lru_cache(maxsize=1)
def _pool() -> Pool:
    return Pool(f"{__name__}:load", workers=1, limits=LIMITS)


# Where templates are compiled and rendered: jinja's sandbox, with what transformers gives templates.


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's turn for training on it; to a prompt it is plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads it from the class

    def parse(self, parser: Parser) -> nodes.Node:
        # a scope of its own, as in transformers: variables set inside are not visible outside
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja's sandbox, one for all templates."""
    # immutable too: templates share it, and none may change what the next one sees
    env = ImmutableSandboxedEnvironment(
        # as transformers sets them: the line breaks around tags are part of every prompt
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
    )
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _refuse
    env.globals["strftime_now"] = now
    return env


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        # not jinja's own filter, which writes `<`, `>`, `&` and `'` as escapes for HTML
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def now(form: str) -> str:
    return datetime.now().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


@lru_cache(maxsize=16)
def compiled(source: str) -> Template:
    """A template that is ready to render.

    Raises:
        TemplateRefuses: it cannot be read.
    """
    try:
        return environment().from_string(source)
    except TemplateError as err:
        raise TemplateRefuses(at_line(err)) from err


def at_line(err: TemplateError) -> str:
    """Jinja's words with the line, where it gives one."""
    line = getattr(err, "lineno", None)
    return f"line {line}: {err.message}" if line else str(err.message)


def rendered(source: str, given: Given, clock: datetime | None = None) -> tuple[str, list[str]]:
    """Like `render_beside`, but in this process: for our own templates."""
    dates = list[str]()

    def date(form: str) -> str:
        dates.append(now(form) if clock is None else clock.strftime(form))
        return dates[-1]

    try:
        return compiled(source).render({**given, "strftime_now": date}), dates
    except TemplateRefuses:
        raise
    except TemplateError as err:
        raise TemplateRefuses(visible(err.message or type(err).__name__, MOST_WORDS)) from err
    except MemoryError:
        raise
    except Exception as err:  # a template is a program: it may fail in any way a program can
        raise TemplateRefuses(f"{type(err).__name__}: {visible(str(err), MOST_WORDS)}") from err


def load(config: object) -> tuple[Callable[[tuple[str, Given, datetime | None]], list[Any]], None]:
    """The pool's task: a template's text and dates, its refusal, or how long a text it made of how many characters."""

    def work(item: tuple[str, Given, datetime | None]) -> list[Any]:
        source, given, clock = item
        try:
            text, dates = rendered(source, given, clock)
        except TemplateRefuses as err:
            return ["refuses", str(err)]
        # relative to the input: a long prompt may give a long text, a short one may not
        size = len(pickle.dumps(given))
        made = len(text) + sum(map(len, dates))
        return ["long", made, size] if made > MOST_ADDED + 4 * size else ["text", text, dates]

    return work, None
