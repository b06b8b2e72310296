"""Two JSON values compared under options, with a bound on the work.

Lists in any order with tolerances are a matching problem; past `MOST_STEPS` comparisons the values count as unequal.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

MOST_STEPS = 50_000
_MISSING: Any = object()


class TooManyComparisons(Exception):
    """The comparison used up its steps."""


@dataclass
class JsonComparison:
    """One value against one gold."""

    fields: tuple[str, ...] = ()
    extra: Literal["refuse", "allow"] = "refuse"
    order: Literal["kept", "free"] = "kept"
    rel_tol: float = 0.0
    casefold: bool = False
    steps: int = field(default=0, init=False)

    def equal(self, value: object, gold: object, is_top: bool = False) -> bool:
        """Whether a value equals the gold under the options.

        Raises:
            TooMuchWork: after `MOST_STEPS` comparisons.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManyComparisons
        if isinstance(gold, dict):
            if not isinstance(value, dict):
                return False
            wanted = self.fields if is_top and self.fields else list(gold)
            is_exact = self.extra == "allow" or (is_top and bool(self.fields)) or set(value) <= set(gold)
            return is_exact and all(name in value and self.equal(value[name], gold[name]) for name in wanted)
        if isinstance(gold, list):
            if not isinstance(value, list) or len(value) != len(gold):
                return False
            if self.order == "free":
                return self._same_items(value, gold)
            return all(self.equal(a, b) for a, b in zip(value, gold, strict=True))
        return self._same_leaf(value, gold)

    def _same_items(self, value: list[Any], gold: list[Any]) -> bool:
        """Lists in any order: by sorted spelling where that settles it, else greedily for short ones."""
        if sorted(map(_spelled, value)) == sorted(map(_spelled, gold)):
            return True
        if len(gold) > 200:
            return False
        left = list(gold)
        for item in value:
            at = next((i for i, one in enumerate(left) if self.equal(item, one)), None)
            if at is None:
                return False
            del left[at]
        return True

    def _same_leaf(self, value: object, gold: object) -> bool:
        if isinstance(gold, bool) or isinstance(value, bool) or gold is None or value is None:
            return value is gold
        if isinstance(gold, int | float) and isinstance(value, int | float):
            return value == gold or _is_near(value, gold, self.rel_tol)
        if isinstance(gold, str) and isinstance(value, str) and self.casefold:
            return " ".join(value.split()).casefold() == " ".join(gold.split()).casefold()
        return type(value) is type(gold) and bool(value == gold)

    def share(self, value: object, gold: object) -> float:
        """Share of the gold's leaves that the value has in the same place; fields too many count as leaves missed."""
        same, total = self._leaves(value, gold)
        return same / total if total else 0.0

    def _leaves(self, value: object, gold: object) -> tuple[int, int]:
        if isinstance(gold, dict) and gold:
            held = value if isinstance(value, dict) else {}
            pairs = [self._leaves(held.get(name, _MISSING), one) for name, one in gold.items()]
            extra = len(set(held) - set(gold)) if self.extra == "refuse" else 0
            return sum(s for s, _ in pairs), sum(t for _, t in pairs) + extra
        if isinstance(gold, list) and gold:
            items = value if isinstance(value, list) else []
            padded = [*items, *[_MISSING] * max(0, len(gold) - len(items))]
            pairs = [self._leaves(a, b) for a, b in zip(padded, gold, strict=False)]
            return sum(s for s, _ in pairs), sum(t for _, t in pairs) + max(0, len(items) - len(gold))
        return int(value is not _MISSING and self.equal(value, gold)), 1


def _is_near(value: float, gold: float, rel_tol: float) -> bool:
    try:
        return rel_tol > 0 and math.isfinite(value) and abs(value - gold) <= rel_tol * abs(gold)
    except OverflowError:  # an integer beyond all floats
        return False


def _spelled(value: object) -> str:
    return json.dumps(value, sort_keys=True)
