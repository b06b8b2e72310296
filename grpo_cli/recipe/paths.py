"""Where something stands in a recipe: the keys and list positions that lead to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Path = tuple[str | int, ...]


def dotted(path: Iterable[str | int]) -> str:
    """`a.b.0` for messages."""
    return ".".join(str(p) for p in path)


def ancestors(path: Path) -> Iterator[Path]:
    """The path, then its parents, down to the root."""
    for end in range(len(path), -1, -1):
        yield path[:end]
