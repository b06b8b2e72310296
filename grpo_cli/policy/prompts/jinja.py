"""Where chat templates are compiled and rendered: jinja's sandbox, with what transformers gives templates."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's turn for training on it; to a prompt it is plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads it from the class

    def parse(self, parser: Parser) -> nodes.Node:
        # a scope of its own, as in transformers: what is set inside is not seen outside
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Where templates are compiled and rendered, with what transformers gives them."""
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
