"""Numbers as written: decimals, recurring digits, mixed numbers."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.cursor import Cursor
from grpo_verifiers.maths.reading.lexer import TooBig, Unreadable
from grpo_verifiers.maths.reading.tree import Node, mul, number


class NumeralReader(Cursor):
    """Numbers as written: decimals, recurring digits, mixed numbers."""

    def _mixed(self, whole: Node) -> Node:
        """`1 1/4`: a whole number, a gap and a fraction of whole numbers."""
        top, slash, bottom = self.peek(), self.peek(1), self.peek(2)
        if (
            whole[0] != "n"
            or whole[2] is not None
            or slash.value != "/"
            or bottom.kind != "n"
            or not (top.value + bottom.value).isdigit()
        ):
            raise Unreadable("two numbers side by side")
        self.at += 3
        if int(bottom.value) == 0:
            raise Unreadable("a division by zero")
        return number(whole[1] + Fraction(int(top.value), int(bottom.value)))

    def _mixed_frac(self, whole: Node) -> Node:
        part = self.power()
        if part[0] in ("pct", "deg"):
            mixed = self._mixed_value(whole, part[1])
            return (part[0], mixed) if mixed is not None else marked(whole, part)
        mixed = self._mixed_value(whole, part)
        return mixed if mixed is not None else mul(whole, part)

    def _mixed_value(self, whole: Node, part: Node) -> Node | None:
        plain = (
            part[0] == "/" and part[1][0] == part[2][0] == "n" and part[1][2] is None and part[2][2] is None
        )
        if whole[2] is None and plain and part[2][1] != 0:
            return number(whole[1] + part[1][1] / part[2][1])
        return None

    def _number(self, value: str) -> Node:
        after = self.peek()
        if (value[0] != "." and "." in value) or value[0] == ".":
            whole, _, digits = value.partition(".")
            if after.value in ("overline", "dot") and after.kind == "c" and digits.isdigit() | (digits == ""):
                return self._bar(whole, digits)
            if (
                after.value == "("
                and not after.spaced
                and self.peek(1).kind == "n"
                and self.peek(1).value.isdigit()
                and self.peek(2).value == ")"
            ):
                block = self.peek(1).value
                self.at += 3
                return recurring(whole, digits, block)
        if "e" in value or "E" in value:
            mantissa, _, exponent = value.lower().partition("e")
            if abs(int(exponent)) > 4000:
                return mul(self._number(mantissa), ("^", number(10), number(int(exponent))))
            scaled = Fraction(mantissa + "0" if mantissa.endswith(".") else mantissa) * Fraction(10) ** int(
                exponent
            )
            return ("n", scaled, None)
        if "." in value:
            digits = value.partition(".")[2]
            return ("n", Fraction(value if digits else value[:-1]), len(digits) if digits else None)
        return ("n", Fraction(int(value)), None)

    def _bar(self, whole: str, digits: str) -> Node:
        """`0.1\\overline{6}` and `0.\\dot{3}`, also dots over the first and last digit of the period."""
        block = ""
        name = self.peek().value
        while self.peek().value == name and self.peek().kind == "c":
            self.at += 1
            braced = self.take("{")
            if self.peek().kind != "n" or not self.peek().value.isdigit():
                raise Unreadable("a bar over no digits")
            block += self.peek().value
            self.at += 1
            if braced:
                self.need("}")
            if name == "dot" and self.peek().kind == "n" and self.peek(1).value == "dot":
                block += self.peek().value
                self.at += 1
        if not block:
            raise Unreadable("a bar over no digits")
        if self.peek().value == "ldots":
            self.at += 1
        return recurring(whole, digits, block)

    def _repeating(self, node: Node, text: str) -> Node:
        """`0.333...`: digits that repeat at least twice before the dots."""
        whole, _, digits = text.partition(".")
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
    value = Fraction(int(whole or "0") * shift + int(head or "0"), shift) + Fraction(
        int(block), shift * (10 ** len(block) - 1)
    )
    return number(value)


def marked(left: Node, right: Node) -> Node:
    """A product whose last factor carries a percent or degree sign: the sign belongs to all of it."""
    if left[0] == "deg" and right[0] == "n":
        raise Unreadable("a factor behind degrees")
    if right[0] in ("pct", "deg"):
        return (right[0], mul(left, right[1]))
    return mul(left, right)
