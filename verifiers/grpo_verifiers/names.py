"""The nearest of some known names, for "did you mean": case and `-` or `_` do not count."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The most similar known name; None if none has at least the similarity `likeness` (0 to 1, difflib's ratio)."""
    folded = {other.lower().replace("-", "_"): other for other in known}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), folded, n=1, cutoff=likeness)
    return folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message, `; did you mean `x`?`; empty if no known name is similar."""
    near = nearest(name, known)
    return f"; did you mean `{near}`?" if near else ""


def near_or_known(name: str, known: Iterable[str], most: int = 12) -> str:
    """The same hint; if no known name is similar, the first `most` names: `; known: a, b, …`."""
    known = list(known)
    if near := did_you_mean(name, known):
        return near
    shown = ", ".join(known[:most]) + (", …" if len(known) > most else "")
    return f"; known: {shown}" if shown else ""
