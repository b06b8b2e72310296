"""What stands after a number: units, percent words, degrees, ordinals."""

from __future__ import annotations

from grpo_verifiers.maths.reading.cursor import END, UNIT_STOP
from grpo_verifiers.maths.reading.lexer import Unreadable
from grpo_verifiers.maths.reading.numerals import NumeralReader
from grpo_verifiers.maths.reading.tree import Node, mul, number, symbols
from grpo_verifiers.maths.reading.units import GENERIC, SCALES, canonical_unit, find_unit
from grpo_verifiers.maths.reading.vocabulary import PERCENT_WORDS, names
from grpo_verifiers.maths.reading.words import CARDINALS, FRACTION_WORDS, HEDGES, NOT_NOUNS

_QUALITIES = names("odd even prime composite positive negative nonnegative integer real rational irrational")
"""What is said of a number rather than counted by it: `n >= 3 odd` is not `n >= 3`."""


def _counts_letters(words: list[str]) -> bool:
    """Whether words behind a letter can be its unit: `n coins` and `x cm`, not `n must be prime`."""
    if all(
        find_unit(w)
        or w.startswith("^")
        or w.lower() in GENERIC
        or w in ("/", "per", "square", "cubic", "sq")
        for w in words
    ):
        return True
    return len(words) == 1 and words[0].endswith("s")


class UnitReader(NumeralReader):
    """What stands after a number: units, percent words, degrees, ordinals."""

    def _unit(self, node: Node) -> Node:
        words: list[str] = []
        while True:
            token = self.peek()
            value = token.value
            if token.kind in ("w", "u"):
                low = value.lower()
                if value in UNIT_STOP:
                    break
                if low in CARDINALS:
                    raise Unreadable("a second number")
                if low in HEDGES or low in NOT_NOUNS or (low in ("squared", "cubed") and not words):
                    raise Unreadable("a hedge")
                self.at += 1
                if value == "$":
                    words.append("dollar")
                    continue
                if low in PERCENT_WORDS or (low == "per" and self.peek().value.lower() == "cent"):
                    self.at += low == "per"
                    node = ("pct", node)
                elif low in SCALES and not words:
                    node = mul(node, number(SCALES[low]))
                elif (
                    low in FRACTION_WORDS
                    and (low.endswith("s") or low == "half")
                    and not words
                    and node[0] == "n"
                ):
                    node = ("/", node, number(FRACTION_WORDS[low]))
                elif low in ("st", "nd", "rd", "th") and not token.spaced and not words:
                    continue
                else:
                    words.append(value)
            elif value == "^" and words:
                self.at += 1
                words.append("^" + self._unit_power())
            elif self._at_rate() or (words and self._at_joint()):
                self.at += 1
                if value == "/":
                    words.append("/")
            elif (
                token.kind == "s"
                and words
                and value in "smhLg"
                and self.tokens[self.at - 1].value in ("/", "*")
            ):
                self.at += 1
                words.append(value)
            elif value == "." and self.peek(1) is END:
                self.at += 1
            else:
                break
        if words and words[-1].lower() in _QUALITIES:
            raise Unreadable("a quality")
        name = canonical_unit(tuple(words))
        if name and symbols(node) and not _counts_letters(words):
            raise Unreadable("a sentence about a letter")
        if not words or (not name and all(w.lower() in GENERIC for w in words)):
            return node
        return ("unit", node, name) if name else node

    def _at_rate(self) -> bool:
        """A stroke before the name of a unit: `3/hour`."""
        behind = self.tokens[self.at - 1].kind if self.at else ""
        named = ("w", "u", "s") if behind in ("w", "u", "s") else ("w",)
        return self.peek().value == "/" and self.peek(1).kind in named

    def _at_joint(self) -> bool:
        """A sign between two names of units: `N*m`."""
        return self.peek().value in ("*", "-", ".") and self.peek(1).kind in ("w", "u", "s")

    def _unit_power(self) -> str:
        braced = self.take("{")
        sign = "-" if self.take("-") else ""
        token = self.peek()
        if token.kind != "n":
            raise Unreadable("a power of a unit")
        self.at += 1
        if braced:
            self.need("}")
        return sign + token.value

    def _degrees(self, node: Node) -> Node:
        after = self.peek()
        if after.value in ("C", "F", "K", "Celsius", "celsius", "Fahrenheit") and self.peek(1).value in (
            "",
            ",",
            ".",
            "}",
        ):
            self.at += 1
            self.currency = "celsius" if after.value[0] in "Cc" else "fahrenheit"
            return node
        return ("deg", node)
