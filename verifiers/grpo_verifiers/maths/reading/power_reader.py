"""Atoms with their powers, marks and subscripts."""

from __future__ import annotations

from grpo_verifiers.maths.reading.atom_reader import AtomReader
from grpo_verifiers.maths.reading.cursor import END
from grpo_verifiers.maths.reading.lexer import Unreadable
from grpo_verifiers.maths.reading.tree import Node
from grpo_verifiers.maths.reading.words import number_of


class PowerReader(AtomReader):
    """Atoms with their powers, marks and subscripts."""

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
        if node[0] == "all" and (inner.kind == "n" or inner.kind == "s"):
            self.at += 3 if braced else 1
            return ("all", f"{node[1]}^{inner.value}")
        if (
            node[0] == "matrix"
            and inner.value in ("T", "top", "intercal", "t")
            and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return ("matrix", tuple(zip(*node[1], strict=True)))
        if (
            node[0] == "tuple"
            and node[1] in ("(", "[", "<")
            and inner.value in ("T", "top", "intercal")
            and (not braced or after.value == "}")
        ):
            self.at += 3 if braced else 1
            return ("matrix", tuple((item,) for item in node[3]))
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
                + {">0": "+", "<0": "-", "+": "+", "ge0": "+0", ">=0": "+0", "-": "-"}.get(
                    label, f"_{label}"
                ),
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
