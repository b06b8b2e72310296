"""Sums, products, powers and atoms."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.cursor import END
from grpo_verifiers.maths.reading.lexer import Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.measuring import UnitReader
from grpo_verifiers.maths.reading.numerals import marked
from grpo_verifiers.maths.reading.tree import Node, add, mul, number
from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS
from grpo_verifiers.maths.reading.words import FRACTION_WORDS, NUMBER_WORDS, number_of

DEPTH = 60


class ScalarReader(UnitReader):
    """Sums, products, powers and atoms."""

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

    def power(self) -> Node:
        """An atom with its powers and marks."""
        node = self.atom()
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value in ("^", "**"):
                self.at += 1
                node = self._raised(node)
            elif token.kind == "o" and value == "!":
                self.at += 1
                double = self.peek().value == "!" and self.peek().kind == "o"
                self.at += double
                node = ("!!" if double else "!", node)
            elif token.kind == "o" and value == "'" and node[0] == "s":
                self.at += 1
                node = ("s", node[1] + "'")
            elif token.kind == "o" and value == "'" and node[0] == "n" and not self.currency:
                self.at += 1
                self.currency = "in" if self.take("'") else "ft"
            elif token.kind == "o" and value == "'" and node[0] == "f":
                raise Unreadable("a derivative")
            elif token.kind == "o" and value == "%":
                self.at += 1
                node = ("pct", node)
            elif value == "circ" and token.kind == "c":
                self.at += 1
                node = self._degrees(node)
            elif value == "_" and token.kind == "o":
                node = self._subscript(node)
            elif value in ("ldots",) and node[0] == "n" and node[2]:
                self.at += 1
                node = self._repeating(node, self.tokens[self.at - 2].value)
            else:
                return node

    def _raised(self, node: Node) -> Node:
        braced = self.peek().value == "{" and self.peek().kind == "o"
        inner = self.peek(1) if braced else self.peek()
        after = self.peek(2) if braced else self.peek(1)
        if (inner.value == "circ" and inner.kind == "c") or (
            inner.value == "o" and node[0] == "n" and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return self._degrees(node)
        if inner.value == "'":
            count = 0
            self.at += braced
            while self.take("'"):
                count += 1
            if braced:
                self.need("}")
            if node[0] == "n" and count < 3 and not self.currency:
                self.currency = "in" if count == 2 else "ft"
                return node
            if node[0] != "s":
                raise Unreadable("a prime")
            return ("s", node[1] + "'" * count)
        if inner.kind == "w" and inner.value in ("st", "nd", "rd", "th"):
            self.at += 3 if braced else 1
            return node
        if node[0] == "all" and inner.value in ("+", "*", "-"):
            self.at += 3 if braced else 1
            return ("all", node[1] + inner.value)
        if node[0] == "all" and inner.kind == "n":
            self.at += 3 if braced else 1
            return ("all", node[1] + inner.value)
        if (
            node[0] == "matrix"
            and inner.value in ("T", "top", "intercal", "t")
            and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return ("matrix", tuple(zip(*node[1], strict=True)))
        exponent = self._script()
        return ("^", node, exponent)

    def _script(self) -> Node:
        """An exponent: braces, a signed number, or one atom."""
        token = self.peek()
        if token.kind == "o" and token.value == "-":
            self.at += 1
            return ("neg", self._script())
        if token.kind == "o" and token.value == "+":
            self.at += 1
            return self._script()
        node = self.atom()
        if self.peek().value == "^" and self.peek().kind == "o":
            self.at += 1
            return ("^", node, self._script())
        if self.peek().value == "!" and self.peek().kind == "o" and token.value != "{":
            return node
        return node

    def _subscript(self, node: Node) -> Node:
        start = self.at + 1
        self.at += 1
        if self.take("{"):
            depth = 1
            while depth:
                token = self.peek()
                if token is END:
                    raise Unreadable("a brace is never closed")
                depth += (token.value == "{" and token.kind == "o") - (
                    token.value == "}" and token.kind == "o"
                )
                self.at += 1
            inside = self.tokens[start + 1 : self.at - 1]
        else:
            if self.peek() is END:
                raise Unreadable("an empty subscript")
            inside = [self.peek()]
            self.at += 1
        label = "".join(t.value for t in inside)
        if node[0] == "s":
            return ("s", f"{node[1]}_{label}")
        if node[0] == "all":
            return (
                "all",
                node[1]
                + {">0": "+", "<0": "-", "+": "+", "ge0": "+0", ">=0": "+0", "-": "-"}.get(label, label),
            )
        if node[0] == "n" and node[2] is None:
            base = (
                number_of([label.lower()])
                if label.isalpha()
                else int(label)
                if label.isdigit() and len(label) < 4
                else None
            )
            if base is not None and 2 <= base <= 36:
                text = str(node[1].numerator)
                return ("base", text, base)
        raise Unreadable("a subscript")

    def atom(self) -> Node:
        """A number, a symbol, a word or a group."""
        token = self.peek()
        kind, value = token.kind, token.value
        if kind == "n":
            self.at += 1
            return self._number(value)
        if kind == "s":
            self.at += 1
            if value in ("e", "i", "imath"):
                if value == "e" and self.peek().value == "_":
                    return ("s", "e")
                return ("c", "e" if value == "e" else "i")
            while self.peek().value == "'" and self.peek().kind == "o":
                self.at += 1
                value += "'"
            if (
                self.peek().value == "("
                and self.peek().kind == "o"
                and not self.peek().spaced
                and self._is_call(value)
            ):
                self.at += 1
                arguments = self._items(")")
                return ("f", value, arguments)
            return ("s", value)
        if kind == "o":
            return self._bracketed(value)
        if kind == "c":
            self.at += 1
            return self._command(value)
        if kind == "w":
            return self._word(token)
        raise Unreadable("an expression is missing")

    def _is_call(self, name: str) -> bool:
        """Whether a letter before a bracket is a function: `f(x)`, `P(X > 2)`, or `T(n) = ...`."""
        if name[0] in "fghFGH":
            return True
        depth = 0
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            value = self.tokens[i].value
            depth += (value == "(") - (value == ")")
            if depth == 0:
                return i + 1 < len(self.tokens) and self.tokens[i + 1].value == "="
            if depth == 1 and self.tokens[i].value in ("=", "<", ">", "le", "ge", "mid", "|"):
                return name == "P"
        return False

    def _word(self, token: Token) -> Node:
        value = token.value
        if value == "$":
            self.at += 1
            self.currency = "dollar"
            return self.signed_power()
        words: list[str] = []
        while self.peek().kind == "w" and self.peek().value.lower().split("-")[0] in NUMBER_WORDS:
            words.append(self.peek().value.lower())
            self.at += 1
            if (
                self.peek().value == "-"
                and self.peek(1).kind == "w"
                and self.peek(1).value.lower() in NUMBER_WORDS
            ):
                self.at += 1
        if words:
            if len(words) > 1 and words[-1] in FRACTION_WORDS:
                top = number_of(words[:-1])
                if top is not None:
                    return number(Fraction(top, FRACTION_WORDS[words[-1]]))
            value_of = number_of(words)
            if value_of is not None:
                return number(value_of)
        low = value.lower()
        if not words and low in ("negative", "minus") and self.peek(1) is not END:
            self.at += 1
            return ("neg", self.signed_power())
        if not words and low == "infinity":
            self.at += 1
            return ("inf",)
        if not words and low in ("approximately", "about", "roughly", "exactly", "only", "just"):
            self.at += 1
            return self.signed_power()
        raise Unreadable(f"a word: {value[:20]}")

    def _lost(self) -> Node:
        raise Unreadable("an expression is missing")
