"""Rules for names of runs and of their folder: one line that neither a terminal nor another program can
misinterpret."""

from __future__ import annotations

from grpo_cli.text import visible

MOST_BYTES = 200
"""A file system allows 255 characters, and abandoned files get additional endings."""
MOST_PART = 255


def why_no_name(name: str) -> str:
    """Why this cannot name a run or a sweep; empty where it can."""
    if "/" in name or "\\" in name or name in (".", ".."):
        return "it must be one folder name"
    if name == "last":
        return "commands take it for the newest run"
    if name.startswith("."):
        return "a name with a dot in front is hidden"
    return _why_no_word(name) or (f"it has more than {MOST_BYTES} bytes" if len(name.encode()) > MOST_BYTES else "")


def why_no_place(path: str) -> str:
    """Why this cannot be the path of a folder of runs; empty where it can."""
    long = any(len(part.encode("utf-8", "replace")) > MOST_PART for part in path.split("/"))
    return _why_no_word(path) or (f"a part of it has more than {MOST_PART} bytes" if long else "")


def _why_no_word(text: str) -> str:
    if visible(text) != text:
        return "it holds characters that cannot be seen"
    if text.startswith("-"):
        return "other programs take a dash in front for an option"
    return "" if text and text == text.strip() else "it is empty, or begins or ends with a blank"
