"""Golds compiled once for rows that agree in every field that compiling looked at.

The samples of a prompt repeat their row, in any order. Which fields a verifier reads is watched rather than declared:
`columns` names only those a row must have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpo_verifiers.verifier import Verifier

MOST_GOLDS = 4096
_MISSING = object()


class GoldCache:
    """Golds of one verifier."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._names: tuple[str, ...] = ()
        self._golds: dict[tuple[Any, ...], Any] = {}
        self._reads_all = False

    def gold(self, row: Mapping[str, Any]) -> Any:
        """The row's gold.

        Raises:
            BadGold: the verifier cannot use the row.
        """
        key = None if self._reads_all else self._key(row)
        if key is not None and self._names and key in self._golds:
            return self._golds[key]
        watched = _Watched(row)
        gold = self._verifier.compile(watched)
        if watched.reads_all:
            self._reads_all, self._golds = True, {}
            return gold
        if not watched.read <= set(
            self._names
        ):  # keys of fewer names would mix up rows that differ in the new ones
            self._names = tuple(sorted(watched.read | set(self._names)))
            self._golds = {}
            key = self._key(row)
        if key is not None:
            if len(self._golds) >= MOST_GOLDS:
                self._golds.clear()
            self._golds[key] = gold
        return gold

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
        values = [row.get(name, _MISSING) for name in self._names]
        try:
            # `1`, `1.0` and `true` are equal keys and different golds; lists and objects go by their spelling
            parts = [v if isinstance(v, str) or v is _MISSING else (type(v), repr(v)) for v in values]
        except (RecursionError, ValueError):
            return None
        return tuple(parts)


class _Watched(Mapping[str, Any]):
    """A row that remembers which of its fields were looked at, present or not."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self.read: set[str] = set()
        self.reads_all = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        self.reads_all = True
        return iter(self._row)

    def __len__(self) -> int:
        self.reads_all = True
        return len(self._row)
