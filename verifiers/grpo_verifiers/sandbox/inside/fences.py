"""The fenced blocks of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINE = 500
PYTHON_TAGS = ("python", "py", "python3", "py3", "python2", "ipython", "pycon")


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A fenced block: its tag in lower case and its text, dedented by the fence's own indent."""

    tag: str
    text: str


def blocks(text: str) -> list[FencedBlock]:
    """The fenced blocks in order; one that is never closed reaches to the end."""
    return list(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[FencedBlock]:
    fence, tag, indent, inside = "", "", 0, list[str]()
    for line in lines:
        marks, info = _fence(line)
        if not fence:
            if marks:
                fence, tag, inside = marks, _tag(info), []
                indent = len(line) - len(line.lstrip())
        elif marks[:1] == fence[0] and len(marks) >= len(fence) and not info:
            yield FencedBlock(tag, _dedent(inside, indent))
            fence = ""
        else:
            inside.append(line)
    if fence:
        yield FencedBlock(tag, _dedent(inside, indent))


def _fence(line: str) -> tuple[str, str]:
    """The marks of a fence line and what follows them; two empty texts for any other line. Takes time linear in the line."""
    text = line.strip()
    inline = text.rfind("```") if len(text) < MOST_LINE and text[:1] not in ("`", "~", "") else -1
    if inline > 0 and text[inline - 1].isspace() and text[inline + 3 :].lower() in PYTHON_TAGS:
        text = text[inline:]  # `Answer: ```python`
    mark = text[:1]
    if mark not in ("`", "~") or not text.startswith(mark * 3):
        return "", ""
    info = text.lstrip(mark)
    return ("", "") if "`" in info else (text[: len(text) - len(info)], info.strip())


def _tag(info: str) -> str:
    """The language of a fence: `python`, `Python 3`, `{.python}`, `python:main.py`, `python title="x"`."""
    for sign in "{}.:,=":
        info = info.replace(sign, " ")
    words = info.lower().split()
    return words[0] if words else ""


def _dedent(lines: list[str], indent: int) -> str:
    if indent:
        lines = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
    return "\n".join(lines) + "\n"


def python_blocks(text: str) -> list[str]:
    """The blocks that can hold the program: those tagged as Python, else the untagged ones."""
    found = blocks(text)
    tagged = [b.text for b in found if b.tag in PYTHON_TAGS]
    return tagged or [b.text for b in found if not b.tag]
