"""What stands after a number: units, percent words, degrees, ordinals; and quantities in two units.

How this works: `read_unit` collects the words and powers behind a value and asks `units` for one canonical name; words
that are no unit stop it or make the answer unreadable. `read_compound` reads `1 hour 40 minutes` from the plain text.
"""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading.tokens import END, UNIT_STOP, Cursor, Unreadable
from grpo_verifiers.maths.reading.tree import Node, mul, number, symbols
from grpo_verifiers.maths.reading.units import GENERIC, SCALES, canonical_unit, find_unit
from grpo_verifiers.maths.reading.vocabulary import PERCENT_WORDS, names
from grpo_verifiers.maths.reading.words import CARDINALS, FRACTION_WORDS, HEDGES, NOT_NOUNS

_DIMENSIONS = frozenset(("time", "length", "mass"))


def read_compound(plain: str) -> Node | None:
    """The sum in its smallest unit, or None. Every part but the first is less than one of the unit before it."""
    match = patterns.COMPOUND.fullmatch(plain)
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
        if last is not None and not (
            unit.dimension == last.dimension
            and unit.size is not None
            and last.size is not None
            and Fraction(amount) * unit.size < last.size
        ):
            return None
        total += Fraction(amount) * unit.size
        last = unit
    if last is None or last.size is None:
        return None
    # the mark lets the comparison convert this one whatever the option is: no unit of it is the only right one
    return ("unit", number(total / last.size), last.name + "+")


_QUALITIES = names("odd even prime composite positive negative nonnegative integer real rational irrational")
"""What is said of a number rather than counted by it: `n >= 3 odd` is not `n >= 3`."""

_ENDS = names("least most minimum maximum")


def _counts_letters(words: list[str]) -> bool:
    """Whether words behind a letter can be its unit: `n coins` and `x cm`, not `n must be prime`."""
    if len(words) == 1 and words[0].endswith("s"):
        return True
    bare = ("/", "per", "square", "cubic", "sq")
    return all(find_unit(w) or w.startswith("^") or w.lower() in GENERIC or w in bare for w in words)


def read_unit(cursor: Cursor, node: Node) -> Node:
    """The value with the unit words behind it; a hedge or a second number among them is unreadable."""
    words: list[str] = []
    while True:
        token = cursor.peek()
        value = token.value
        if token.kind in ("w", "u"):
            low = value.lower()
            if value in UNIT_STOP:
                return _with_unit(node, words)
            if low in CARDINALS:
                # two numbers are two answers
                raise Unreadable("a second number")
            if _is_bound(cursor) or low in HEDGES or low in NOT_NOUNS:
                # a doubt or a bound is no unit: it must not be paid as the number before it
                raise Unreadable("a hedge")
            if low in ("squared", "cubed") and not words:
                raise Unreadable("a hedge")
            cursor.at += 1
            if value == "$":
                words.append("dollar")
                continue
            if low in PERCENT_WORDS or (low == "per" and cursor.peek().value.lower() == "cent"):
                cursor.at += low == "per"
                node = ("pct", node)
            elif low in SCALES and not words:
                # `3 million dollars`: the word scales the number, and the unit is still to come
                node = mul(node, number(SCALES[low]))
            elif low in FRACTION_WORDS and (low.endswith("s") or low == "half") and not words and node[0] == "n":
                node = ("/", node, number(FRACTION_WORDS[low]))
            elif low in ("st", "nd", "rd", "th") and not token.spaced and not words:
                continue
            else:
                words.append(value)
        elif value == "^" and words:
            cursor.at += 1
            words.append("^" + _unit_power(cursor))
        elif at_rate(cursor) or (
            # a sign between two names of units: `N*m`
            words and cursor.peek().value in ("*", "-", ".") and cursor.peek(1).kind in ("w", "u", "s")
        ):
            cursor.at += 1
            if value == "/":
                words.append("/")
        elif token.kind == "s" and words and value in "smhLg" and cursor.tokens[cursor.at - 1].value in ("/", "*"):
            cursor.at += 1
            words.append(value)
        elif value == "." and cursor.peek(1) is END:
            cursor.at += 1
        else:
            return _with_unit(node, words)


def _is_bound(cursor: Cursor) -> bool:
    """Whether `at most` or the like follows, which makes a bound of the number."""
    ahead = 2 if cursor.peek(1).value.lower() in ("the", "a") else 1
    return cursor.peek().value.lower() == "at" and cursor.peek(ahead).value.lower() in _ENDS


def _with_unit(node: Node, words: list[str]) -> Node:
    if words and words[-1].lower() in _QUALITIES:
        raise Unreadable("a quality")
    name = canonical_unit(tuple(words))
    if name and symbols(node) and not _counts_letters(words):
        raise Unreadable("a sentence about a letter")
    if not words or (not name and all(w.lower() in GENERIC for w in words)):
        return node
    return ("unit", node, name) if name else node


def at_rate(cursor: Cursor) -> bool:
    """A stroke before the name of a unit: `3/hour`."""
    behind = cursor.tokens[cursor.at - 1].kind if cursor.at else ""
    named = ("w", "u", "s") if behind in ("w", "u", "s") else ("w",)
    return cursor.peek().value == "/" and cursor.peek(1).kind in named


def _unit_power(cursor: Cursor) -> str:
    braced = cursor.take("{")
    sign = "-" if cursor.take("-") else ""
    token = cursor.peek()
    if token.kind != "n":
        raise Unreadable("a power of a unit")
    cursor.at += 1
    if braced:
        cursor.need("}")
    return sign + token.value


def read_degrees(cursor: Cursor, node: Node) -> Node:
    """The value as an angle, or as a temperature where the sign is followed by its scale."""
    after = cursor.peek()
    is_scale = after.value in ("C", "F", "K", "Celsius", "celsius", "Fahrenheit")
    if is_scale and cursor.peek(1).value in ("", ",", ".", "}"):
        cursor.at += 1
        cursor.currency = "celsius" if after.value[0] in "Cc" else "fahrenheit"
        return node
    # `60°42'` is 607/10 degrees; sixty minutes and more are no angle in this notation
    for part, marks in ((60, ("'",)), (3600, ('"', "''"))):
        mark = cursor.peek(1).value + (cursor.peek(2).value if cursor.peek(2).value == "'" else "")
        if node[0] == "n" and cursor.peek().kind == "n" and mark in marks:
            size = Fraction(cursor.peek().value)
            if size >= 60:
                raise Unreadable("an angle of sixty minutes")
            cursor.at += 1 + len(mark)
            node = number(node[1] + size / part)
    return ("deg", node)
