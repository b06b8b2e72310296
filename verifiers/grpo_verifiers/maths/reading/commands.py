"""LaTeX commands that take arguments: fractions, roots, functions."""

from __future__ import annotations

from grpo_verifiers.maths.reading.lexer import Token, Unreadable
from grpo_verifiers.maths.reading.scalar_reader import ScalarReader
from grpo_verifiers.maths.reading.tree import ONE, Node, mul, number, symbols
from grpo_verifiers.maths.reading.vocabulary import (
    CURRENCIES,
    FUNCTIONS,
    INVERSES,
    NUMBER_SETS,
    REFUSED,
    TRIGONOMETRIC,
)


class CommandReader(ScalarReader):
    """LaTeX commands that take arguments: fractions, roots, functions."""

    def _command(self, name: str) -> Node:
        if name == "pi":
            return ("c", "pi")
        if name == "frac":
            top = self._short_argument()
            return ("/", top, self._short_argument())
        if name == "sqrt":
            return self._root()
        if name == "cbrt":
            return ("root", self._call_argument(), number(3))
        if name == "infty":
            return ("inf",)
        if name == "{":
            return self._set()
        if name in NUMBER_SETS:
            return ("all", NUMBER_SETS[name])
        if name == "emptyset":
            return ("set", ())
        if name == "binom":
            top = self._short_argument()
            return ("binom", top, self._short_argument())
        if name in ("lfloor", "lceil"):
            inner = self.sum()
            self.need("r" + name[1:])
            return ("f", "floor" if name == "lfloor" else "ceil", (inner,))
        if name == "langle":
            return ("tuple", "<", ">", self._items("rangle"))
        if name in CURRENCIES:
            self.currency = CURRENCIES[name]
            return self.signed_power()
        if name == "overline":
            inner = self._short_argument()
            if inner[0] in ("n", "+", "/", "^", "root"):
                raise Unreadable("a bar over a formula")
            return ("s", inner[1] + " bar") if inner[0] == "s" and inner[1].islower() else inner
        if name == "cis":
            angle = self._call_argument()
            return ("+", ("f", "cos", (angle,)), mul(("c", "i"), ("f", "sin", (angle,))))
        if name == "ldots":
            return ("dots",)
        if name in ("begin:matrix", "begin:array"):
            return ("matrix", self._rows("end:" + name[6:]))
        if name == "begin:cases":
            return ("cases", self._rows("end:cases"))
        if name in ("max", "min") and self.peek().value in ("(", "{"):
            closer = ")" if self.peek().value == "(" else "}"
            self.at += 1
            arguments = self._items(closer)
            if any(symbols(a) for a in arguments):
                return ("f", name, tuple(sorted(arguments, key=repr)))
            raise Unreadable("an operation that is not carried out")
        if name in TRIGONOMETRIC or name in ("ln", "log", "lg", "exp", "abs", "floor", "ceil", "sgn"):
            return self._function(name)
        raise Unreadable(
            f"a command `{name[:20]}`"
            if name not in REFUSED
            else f"an operation that is not carried out: `{name}`"
        )

    def _short_argument(self) -> Node:
        r"""Argument of `\frac`: braces, or one digit of a longer number (`\frac12`)."""
        token = self.peek()
        if token.kind == "n" and len(token.value) > 1 and token.value.isdigit():
            self.tokens[self.at] = Token("n", token.value[1:])
            return number(int(token.value[0]))
        if token.value == "{" and token.kind == "o":
            bars, self.bars = self.bars, 0
            in_set, self.in_set = self.in_set, 0
            self.at += 1
            node = self._measured()
            self.need("}")
            self.bars, self.in_set = bars, in_set
            if node[0] in ("unit", "pct"):
                node = node[1] if node[0] == "unit" else ("/", node[1], number(100))
            return node
        if token.kind == "o" and token.value == "-":
            self.at += 1
            return ("neg", self._short_argument())
        return self.atom()

    def _root(self) -> Node:
        index = number(2)
        if self.peek().value == "[" and self.peek().kind == "o":
            self.at += 1
            index = self.sum()
            self.need("]")
        token = self.peek()
        if token.value == "(" and token.kind == "o":
            self.at += 1
            inner = self._round("(")
            return ("root", inner, index)
        return ("root", self.atom(), index)

    def _function(self, name: str) -> Node:
        power: Node | None = None
        base: Node | None = None
        while self.peek().value in ("^", "_") and self.peek().kind == "o":
            if self.peek().value == "^":
                self.at += 1
                power = self._script()
            else:
                self.at += 1
                base = self._short_argument() if self.peek().kind != "n" else self.atom()
        if base is not None and name != "log":
            raise Unreadable("a subscript")
        argument = self._call_argument()
        if power is not None and power == ("neg", ONE):
            if name in INVERSES:
                name, power = INVERSES[name], None
            else:
                raise Unreadable("an inverse function")
        if name in ("ln", "log", "lg"):
            node: Node = (
                "log",
                ("c", "e") if name == "ln" else number(10) if name == "lg" else base,
                argument,
            )
        elif name == "exp":
            node = ("^", ("c", "e"), argument)
        else:
            node = ("f", name, (argument,))
        return ("^", node, power) if power is not None else node

    def _call_argument(self) -> Node:
        token = self.peek()
        if token.value == "(" and token.kind == "o":
            self.at += 1
            return self._round("(")
        if token.value == "{" and token.kind == "o":
            return self.atom()
        if token.value == "-" and token.kind == "o":
            self.at += 1
            return ("neg", self._call_argument())
        node = self.power()
        while True:
            token = self.peek()
            if not self._starts_factor(token) or (
                token.kind == "c" and token.value in FUNCTIONS and token.value != "sqrt"
            ):
                return node
            if token.value in ("(", "[", "|"):
                return node
            node = mul(node, self.power())
