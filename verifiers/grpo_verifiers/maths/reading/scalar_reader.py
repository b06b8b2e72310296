"""Sums and products."""

from __future__ import annotations

from grpo_verifiers.maths.reading.cursor import END
from grpo_verifiers.maths.reading.lexer import Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.numerals import marked
from grpo_verifiers.maths.reading.power_reader import PowerReader
from grpo_verifiers.maths.reading.tree import Node, add, contains, mul, symbols
from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS
from grpo_verifiers.maths.reading.words import NUMBER_WORDS

DEPTH = 60


class ScalarReader(PowerReader):
    """Sums and products."""

    def sum(self) -> Node:
        """Terms with their signs."""
        self.depth += 1
        if self.depth > DEPTH:
            raise TooBig("nested too deep")
        terms: list[Node] = []
        sign = "+"
        token = self.peek()
        if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
            self.at += 1
            sign = token.value
        while True:
            while self.peek().value in ("+", "-") and self.peek().kind == "o":
                if self.peek().value == "-":
                    sign = {"+": "-", "-": "+", "pm": "mp", "mp": "pm"}[sign]
                self.at += 1
            term = self.product()
            terms.append(term if sign == "+" else ("neg", term) if sign == "-" else (sign, term))
            token = self.peek()
            if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
                following = self.peek(1)
                if following is END or following.value in (",", ";"):
                    raise Unreadable("an operator without its right side")
                self.at += 1
                sign = token.value
            else:
                break
        self.depth -= 1
        return add(terms)

    def product(self) -> Node:
        """Factors, written or implied, and quotients."""
        left = self.power()
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value == "*":
                self.at += 1
                left = mul(left, self.signed_power())
            elif token.kind == "o" and value == "/":
                self.at += 1
                if self.peek().kind == "w" and self.peek().value not in NUMBER_WORDS:
                    self.at -= 1
                    return left
                left = ("/", left, self.signed_power())
            elif token.kind == "c" and value == "oplus":
                self.at += 1
                right = self.signed_power()
                if left[0] not in ("all", "*") or right[0] != "all" or symbols(left) or contains(left, {"n"}):
                    raise Unreadable("a sum of other things than groups")
                left = mul(left, right)  # of finitely many groups the sum is the product
            elif self._starts_factor(token):
                if token.kind == "n":
                    before = self.tokens[self.at - 1]
                    if before.kind == "n":
                        left = self._mixed(left)
                        continue
                    if before.value == "}" and token.spaced is False and left[0] == "n":
                        raise Unreadable("two numbers side by side")
                elif token.value == "frac" and left[0] == "n" and self.tokens[self.at - 1].kind == "n":
                    left = self._mixed_frac(left)
                    continue
                left = marked(left, self.power())
            else:
                return left

    def signed_power(self) -> Node:
        """A factor after signs, as it may stand behind an operator."""
        if self.peek().value == "-" and self.peek().kind == "o":
            self.at += 1
            return ("neg", self.signed_power())
        if self.peek().value == "+" and self.peek().kind == "o":
            self.at += 1
        return self.power()

    def _starts_factor(self, token: Token) -> bool:
        kind, value = token.kind, token.value
        if kind == "n":
            return True
        if kind == "s":
            return not self._is_plain_union()
        if kind == "o":
            if value == "|":
                return self.bars == 0 and not self.in_set
            if value == "[":
                return not self.in_set and self.peek(1).value not in ("", ",", "cup", "cap", ")", "}", "U")
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

    def _is_plain_union(self) -> bool:
        """`(1, 2) U (3, 4)`."""
        token = self.peek()
        return (
            token.value == "U"
            and token.kind in ("s", "w")
            and self.tokens[self.at - 1].value in (")", "]", "}")
            and self.peek(1).value in ("(", "[", "{")
        )
