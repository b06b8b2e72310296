"""The page's templates. Control characters in values are made visible, and values are escaped; only `Markup` is
inserted unchanged."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from grpo_cli.text import DASH, visible


def render(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    """What templates are read and filled with."""
    environment = Environment(
        loader=PackageLoader("grpo_cli.jobs.report.templates", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["in_lines"] = _in_lines
    environment.filters["with_code"] = _with_code
    return environment


def _plain(value: object) -> object:
    """Text on one line without control characters; a missing value becomes a dash."""
    if isinstance(value, Markup):
        return value
    return DASH if value is None else visible(str(value))


def _with_code(text: str) -> Markup:
    """Text on one line; text between backticks becomes code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(visible(text)))))


def _in_lines(text: str) -> Markup:
    """Text that keeps its lines."""
    return escape("\n".join(visible(line) for line in text.split("\n")))
