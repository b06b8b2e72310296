"""Numbers as written: decimals, recurring digits, mixed numbers."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.cursor import Cursor
from grpo_verifiers.maths.reading.tokens.token import TooBig, Unreadable
from grpo_verifiers.maths.reading.tree import Node, mul, number


def read_mixed(cursor: Cursor, whole: Node) -> Node:
    """`1 1/4`: a whole number, a gap and a fraction of whole numbers."""
    top, slash, bottom = cursor.peek(), cursor.peek(1), cursor.peek(2)
    if (
        whole[0] != "n"
        or whole[2] is not None
        or slash.value != "/"
        or bottom.kind != "n"
        or not (top.value + bottom.value).isdigit()
    ):
        raise Unreadable("two numbers side by side")
    cursor.at += 3
    if int(bottom.value) == 0:
        raise Unreadable("a division by zero")
    return number(whole[1] + Fraction(int(top.value), int(bottom.value)))


def read_mixed_fraction(cursor: Cursor, whole: Node) -> Node:
    r"""`1\frac14`, or the product where the fraction is no plain one; the percent or degree sign belongs to all of it."""
    part = cursor.grammar.power(cursor)
    if part[0] in ("pct", "deg"):
        mixed = _mixed_value(cursor, whole, part[1])
        return (part[0], mixed) if mixed is not None else marked(whole, part)
    mixed = _mixed_value(cursor, whole, part)
    return mixed if mixed is not None else mul(whole, part)


def _mixed_value(cursor: Cursor, whole: Node, part: Node) -> Node | None:
    plain = part[0] == "/" and part[1][0] == part[2][0] == "n" and part[1][2] is None and part[2][2] is None
    if whole[2] is None and plain and part[2][1] != 0:
        return number(whole[1] + part[1][1] / part[2][1])
    return None


def read_number(cursor: Cursor, value: str) -> Node:
    """A number literal after its token: decimals with a bar or dots, powers of ten."""
    after = cursor.peek()
    if (value[0] != "." and "." in value) or value[0] == ".":
        whole, _, digits = value.partition(".")
        if after.value in ("overline", "dot") and after.kind == "c" and digits.isdigit() | (digits == ""):
            return _read_bar(cursor, whole, digits)
        if (
            after.value == "("
            and not after.spaced
            and cursor.peek(1).kind == "n"
            and cursor.peek(1).value.isdigit()
            and cursor.peek(2).value == ")"
        ):
            block = cursor.peek(1).value
            cursor.at += 3
            return recurring(whole, digits, block)
    if "e" in value or "E" in value:
        mantissa, _, exponent = value.lower().partition("e")
        # left as a power: digits by the thousand would be written out for nothing
        if abs(int(exponent)) > 4000:
            return mul(read_number(cursor, mantissa), ("^", number(10), number(int(exponent))))
        scaled = Fraction(mantissa + "0" if mantissa.endswith(".") else mantissa) * Fraction(10) ** int(
            exponent
        )
        # no places: written in powers of ten it does not say to how many decimals it was rounded
        return ("n", scaled, None)
    if "." in value:
        digits = value.partition(".")[2]
        return ("n", Fraction(value if digits else value[:-1]), len(digits) if digits else None)
    return ("n", Fraction(int(value)), None)


def _read_bar(cursor: Cursor, whole: str, digits: str) -> Node:
    """`0.1\\overline{6}` and `0.\\dot{3}`, also dots over the first and last digit of the period."""
    block = ""
    name = cursor.peek().value
    while cursor.peek().value == name and cursor.peek().kind == "c":
        cursor.at += 1
        braced = cursor.take("{")
        if cursor.peek().kind != "n" or not cursor.peek().value.isdigit():
            raise Unreadable("a bar over no digits")
        block += cursor.peek().value
        cursor.at += 1
        if braced:
            cursor.need("}")
        if name == "dot" and cursor.peek().kind == "n" and cursor.peek(1).value == "dot":
            block += cursor.peek().value
            cursor.at += 1
    if not block:
        raise Unreadable("a bar over no digits")
    if cursor.peek().value == "ldots":
        cursor.at += 1
    return recurring(whole, digits, block)


def read_repeating(cursor: Cursor, node: Node, text: str) -> Node:
    """`0.333...`: digits that repeat at least twice before the dots."""
    whole, _, digits = text.partition(".")
    # the shortest period that came twice
    for period in range(1, len(digits) // 2 + 1):
        block = digits[-period:]
        repeats = 1
        while digits[: len(digits) - period * repeats].endswith(block):
            repeats += 1
        if repeats >= 2:
            head = digits[: len(digits) - period * repeats]
            return recurring(whole, head, block)
    return node


def recurring(whole: str, head: str, block: str) -> Node:
    """The exact value of whole.head(block)(block)..."""
    if len(head) + len(block) > 300:
        raise TooBig("too many digits")
    shift = 10 ** len(head)
    # 0.h(b) = h / 10^len(h) + b / (10^len(h) (10^len(b) - 1))
    value = Fraction(int(whole or "0") * shift + int(head or "0"), shift) + Fraction(
        int(block), shift * (10 ** len(block) - 1)
    )
    return number(value)


def marked(left: Node, right: Node) -> Node:
    """A product whose last factor carries a percent or degree sign: the sign belongs to all of it."""
    if left[0] == "deg" and right[0] == "n":
        # `30^\circ 15` has lost its mark of minutes
        raise Unreadable("a factor behind degrees")
    if right[0] in ("pct", "deg"):
        return (right[0], mul(left, right[1]))
    return mul(left, right)
