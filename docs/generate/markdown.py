"""Markdown of the generated pages: cells, tables, heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def head(title: str, about: str) -> str:
    """The beginning of a page: what is on it, and that it is not written by hand."""
    note = "<!-- Written by `make docs` from the program; a change by hand is lost. -->"
    return f"{note}\n\n# {title}\n\n{about}\n"


def cell(text: object) -> str:
    """One cell: no bar that ends it, no line break."""
    return str(text).replace("|", "\\|").replace("\n", " ").strip()


def code(text: object) -> str:
    """Text as code in a line; longer ticks where it has ticks, an empty text as nothing."""
    said = str(text).replace("\n", "⏎")
    if "`" in said:
        return f"`` {said} ``"
    return f"`{said}`" if said else ""


def code_cell(text: object) -> str:
    """Text as code in a cell; as HTML where it has a bar, since renderers differ over bars between ticks."""
    said = str(text).replace("\n", "⏎")
    return f"<code>{escape(said, quote=False).replace('|', '&#124;')}</code>" if "|" in said else code(said)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def fenced(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text.rstrip()}\n```\n"
