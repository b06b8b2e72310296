"""Quantities in two units: `1 hour 40 minutes`, `5 ft 3 in`. Their name ends in `+`: they may be met in any of their units."""

from __future__ import annotations

import re
from fractions import Fraction

from grpo_verifiers.maths.reading.tree import Node, number
from grpo_verifiers.maths.reading.units import Unit, find_unit

_PIECE = r"(\d{1,9}(?:\.\d{1,9})?)\s*+([A-Za-z]{1,12})\.?"
_COMPOUND = re.compile(rf"{_PIECE}\s*+(?:,|and)?\s*+{_PIECE}(?:\s*+(?:,|and)?\s*+{_PIECE})?")
_DIMENSIONS = frozenset(("time", "length", "mass"))


def read_compound(plain: str) -> Node | None:
    """The sum in its smallest unit, or None. Every part but the first is less than one of the unit before it."""
    match = _COMPOUND.fullmatch(plain)
    if match is None:
        return None
    total, last = Fraction(0), None
    for amount, name in zip(match.groups()[::2], match.groups()[1::2], strict=True):
        if amount is None:
            continue
        unit = find_unit(name)
        if unit is None or unit.size is None or unit.dimension not in _DIMENSIONS:
            return None
        # `1 hour 90 minutes`, `5 ft 14 in`: two quantities, or a slip
        if last is not None and not _is_part(Fraction(amount), unit, last):
            return None
        total += Fraction(amount) * unit.size
        last = unit
    if last is None or last.size is None:
        return None
    # the mark lets the comparison convert this one whatever the option says: no unit of it is the only right one
    return ("unit", number(total / last.size), last.name + "+")


def _is_part(amount: Fraction, unit: Unit, larger: Unit) -> bool:
    return (
        unit.dimension == larger.dimension
        and unit.size is not None
        and larger.size is not None
        and amount * unit.size < larger.size
    )
