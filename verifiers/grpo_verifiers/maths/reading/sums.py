"""Sums and products."""

from __future__ import annotations

from grpo_verifiers.maths.reading.cursor import END, Cursor
from grpo_verifiers.maths.reading.numerals import marked, read_mixed, read_mixed_fraction
from grpo_verifiers.maths.reading.powers import read_power
from grpo_verifiers.maths.reading.tokens.token import Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.tree import Node, add, contains, mul, symbols
from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS
from grpo_verifiers.maths.reading.words import NUMBER_WORDS

DEPTH = 60


def read_sum(cursor: Cursor) -> Node:
    """Terms with their signs."""
    cursor.depth += 1
    # far below Python's own limit: what later walks the tree recurses as well
    if cursor.depth > DEPTH:
        raise TooBig("nested too deep")
    terms: list[Node] = []
    sign = "+"
    token = cursor.peek()
    if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
        cursor.at += 1
        sign = token.value
    while True:
        while cursor.peek().value in ("+", "-") and cursor.peek().kind == "o":
            if cursor.peek().value == "-":
                # `- -3`; behind plus-minus a minus swaps which of the two comes first
                sign = {"+": "-", "-": "+", "pm": "mp", "mp": "pm"}[sign]
            cursor.at += 1
        term = _read_product(cursor)
        terms.append(term if sign == "+" else ("neg", term) if sign == "-" else (sign, term))
        token = cursor.peek()
        if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
            following = cursor.peek(1)
            if following is END or following.value in (",", ";"):
                # `3 +` was cut off
                raise Unreadable("an operator without its right side")
            cursor.at += 1
            sign = token.value
        else:
            break
    cursor.depth -= 1
    return add(terms)


def _read_product(cursor: Cursor) -> Node:
    """Factors, written or implied, and quotients."""
    left = read_power(cursor)
    while True:
        token = cursor.peek()
        value = token.value
        if token.kind == "o" and value == "*":
            cursor.at += 1
            left = mul(left, read_signed_power(cursor))
        elif token.kind == "o" and value == "/":
            cursor.at += 1
            # `60 km/h`: a stroke before a word belongs to the unit
            if cursor.peek().kind == "w" and cursor.peek().value not in NUMBER_WORDS:
                cursor.at -= 1
                return left
            left = ("/", left, read_signed_power(cursor))
        elif token.kind == "c" and value == "oplus":
            cursor.at += 1
            right = read_signed_power(cursor)
            if left[0] not in ("all", "*") or right[0] != "all" or symbols(left) or contains(left, {"n"}):
                raise Unreadable("a sum of other things than groups")
            left = mul(left, right)  # of finitely many groups the sum is the product
        elif starts_factor(cursor, token):
            if token.kind == "n":
                before = cursor.tokens[cursor.at - 1]
                # two numbers in a row are a mixed number or a slip, never a product
                if before.kind == "n" and cursor.closed != cursor.at:
                    left = read_mixed(cursor, left)
                    continue
                if before.value == "}" and token.spaced is False and left[0] == "n":
                    # `{2}3` is 23 or 6: nobody knows
                    raise Unreadable("two numbers side by side")
            elif token.value == "frac" and left[0] == "n" and cursor.tokens[cursor.at - 1].kind == "n":
                left = read_mixed_fraction(cursor, left)
                continue
            left = marked(left, read_power(cursor))
        else:
            return left


def read_signed_power(cursor: Cursor) -> Node:
    """A factor after signs, as it may stand behind an operator."""
    if cursor.peek().value == "-" and cursor.peek().kind == "o":
        cursor.at += 1
        return ("neg", read_signed_power(cursor))
    if cursor.peek().value == "+" and cursor.peek().kind == "o":
        cursor.at += 1
    return read_power(cursor)


def starts_factor(cursor: Cursor, token: Token) -> bool:
    """Whether a token can follow as an implied factor."""
    kind, value = token.kind, token.value
    if kind == "n":
        return True
    if kind == "s":
        return not is_plain_union(cursor)
    if kind == "o":
        if value == "|":
            # between bars a stroke closes them, in a set it parts a name from its condition
            return cursor.bars == 0 and not cursor.in_set
        if value == "[":
            return not cursor.in_set and cursor.peek(1).value not in ("", ",", "cup", "cap", ")", "}", "U")
        return value in ("(", "{")
    if kind == "c":
        return (
            value
            in (
                "pi",
                "frac",
                "sqrt",
                "binom",
                "lfloor",
                "lceil",
                "overline",
                "begin:matrix",
                "begin:array",
                "root",
            )
            or value in FUNCTIONS
        )
    return False


def is_plain_union(cursor: Cursor) -> bool:
    """`(1, 2) U (3, 4)`."""
    token = cursor.peek()
    return (
        token.value == "U"
        and token.kind in ("s", "w")
        and cursor.tokens[cursor.at - 1].value in (")", "]", "}")
        and cursor.peek(1).value in ("(", "[", "{")
    )
