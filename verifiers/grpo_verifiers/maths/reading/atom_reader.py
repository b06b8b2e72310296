"""Atoms: numbers, symbols, calls and number words."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.reading.cursor import END
from grpo_verifiers.maths.reading.forms.calls import is_application
from grpo_verifiers.maths.reading.lexer import Token, Unreadable
from grpo_verifiers.maths.reading.measuring import UnitReader
from grpo_verifiers.maths.reading.tree import ONE, Node, add, number
from grpo_verifiers.maths.reading.words import FRACTION_WORDS, NUMBER_WORDS, number_of


class AtomReader(UnitReader):
    """Numbers, symbols, calls and number words."""

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
                return self._called(value)
            if (
                value == "E"
                and self.peek().value == "["
                and self.peek(1).kind == "s"
                and self.peek(2).value == "]"
            ):
                self.at += 1  # an expectation, E[X]
                return ("f", "E", self._items("]"))
            return ("s", value)
        if kind == "o":
            return self._bracketed(value)
        if kind == "c":
            self.at += 1
            return self._command(value)
        if kind == "w":
            return self._word(token)
        raise Unreadable("an expression is missing")

    def _called(self, name: str) -> Node:
        """A function value after its opening bracket; `P(A | B)` has two arguments, gamma is a factorial."""
        if name == "P":
            in_set, self.in_set = self.in_set, 1  # the bar of a condition is no absolute value
            event = self.listing()
            self.in_set = in_set
            if self.take("|") or self.take("mid"):
                event = ("list", "|", (event, self.listing()))
            self.need(")")
            return ("f", name, tuple(event[2]) if event[0] == "list" else (event,))
        arguments = self._items(")")
        if name == "Gamma" and len(arguments) == 1:
            return ("!", add([arguments[0], ("neg", ONE)]))
        return ("f", name, arguments)

    def _is_call(self, name: str) -> bool:
        """Whether a letter before a bracket is a function: `f(x)`, `P(X > 2)`, `V(2)`, `T(n - 1)`, or `T(n) = ...`."""
        if name[0] in "fghFGH" or name == "Gamma" or name.endswith("'"):
            return True
        if is_application(self.tokens, self.at, name):
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
