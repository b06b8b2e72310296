"""LaTeX commands that take arguments: fractions, roots, functions."""

from __future__ import annotations

from grpo_verifiers.maths.reading.atoms import read_atom
from grpo_verifiers.maths.reading.cursor import Cursor
from grpo_verifiers.maths.reading.powers import read_power, read_script
from grpo_verifiers.maths.reading.sums import read_signed_power, read_sum, starts_factor
from grpo_verifiers.maths.reading.tokens.token import Token, Unreadable
from grpo_verifiers.maths.reading.tree import ONE, Node, mul, number, symbols
from grpo_verifiers.maths.reading.vocabulary import (
    CURRENCIES,
    FUNCTIONS,
    INVERSES,
    NUMBER_SETS,
    REFUSED,
    TRIGONOMETRIC,
)


def read_command(cursor: Cursor, name: str) -> Node:
    """A LaTeX command after its token, with its arguments."""
    if name == "pi":
        return ("c", "pi")
    if name in ("frac", "binom"):
        top, bottom = _short_argument(cursor), _short_argument(cursor)
        cursor.closed = cursor.at
        return ("/" if name == "frac" else name, top, bottom)
    if name == "sqrt":
        return _root(cursor)
    if name == "cbrt":
        return ("root", _call_argument(cursor), number(3))
    if name == "infty":
        return ("inf",)
    if name == "{":
        return cursor.grammar.set(cursor)
    if name in NUMBER_SETS:
        return ("all", NUMBER_SETS[name])
    if name == "emptyset":
        return ("set", ())
    if name in ("lfloor", "lceil"):
        inner = read_sum(cursor)
        cursor.need("r" + name[1:])
        return ("f", "floor" if name == "lfloor" else "ceil", (inner,))
    if name == "langle":
        return ("tuple", "<", ">", cursor.grammar.items(cursor, "rangle"))
    if name in CURRENCIES:
        cursor.currency = CURRENCIES[name]
        return read_signed_power(cursor)
    if name == "overline":
        return _overlined(_short_argument(cursor))
    if name == "cis":
        angle = _call_argument(cursor)
        return ("+", ("f", "cos", (angle,)), mul(("c", "i"), ("f", "sin", (angle,))))
    if name == "ldots":
        return ("dots",)
    if name in ("begin:matrix", "begin:array"):
        return ("matrix", cursor.grammar.rows(cursor, "end:" + name[6:]))
    if name == "begin:cases":
        return ("cases", cursor.grammar.rows(cursor, "end:cases"))
    if name in ("max", "min") and cursor.peek().value in ("(", "{"):
        closer = ")" if cursor.peek().value == "(" else "}"
        cursor.at += 1
        arguments = cursor.grammar.items(cursor, closer)
        # of letters a function, whose arguments have no order; of numbers a task that was not done
        if any(symbols(a) for a in arguments):
            return ("f", name, tuple(sorted(arguments, key=repr)))
        raise Unreadable("an operation that is not carried out")
    if name in TRIGONOMETRIC or name in ("ln", "log", "lg", "exp", "abs", "floor", "ceil", "sgn"):
        return _function(cursor, name)
    raise Unreadable(
        f"a command `{name[:20]}`"
        if name not in REFUSED
        else f"an operation that is not carried out: `{name}`"
    )


def _overlined(inner: Node) -> Node:
    # a mean, a conjugate, a negation or digits: nothing says which
    if inner[0] in ("n", "+", "/", "^", "root"):
        raise Unreadable("a bar over a formula")
    # over capitals the bar is that of a segment, `\overline{AB}`, and says nothing of the value
    return ("s", inner[1] + " bar") if inner[0] == "s" and inner[1].islower() else inner


def _short_argument(cursor: Cursor) -> Node:
    r"""Argument of `\frac`: braces, or one digit of a longer number (`\frac12`)."""
    token = cursor.peek()
    if token.kind == "n" and len(token.value) > 1 and token.value.isdigit():
        # TeX takes one digit: `\frac12` is a half, and what is left of the number is the next argument
        cursor.tokens[cursor.at] = Token("n", token.value[1:])
        return number(int(token.value[0]))
    if token.value == "{" and token.kind == "o":
        bars, cursor.bars = cursor.bars, 0
        in_set, cursor.in_set = cursor.in_set, 0
        cursor.at += 1
        node = cursor.grammar.measured(cursor)
        cursor.need("}")
        cursor.bars, cursor.in_set = bars, in_set
        if node[0] in ("unit", "pct"):
            node = node[1] if node[0] == "unit" else ("/", node[1], number(100))
        return node
    if token.kind == "o" and token.value == "-":
        cursor.at += 1
        return ("neg", _short_argument(cursor))
    return read_atom(cursor)


def _root(cursor: Cursor) -> Node:
    index = number(2)
    if cursor.peek().value == "[" and cursor.peek().kind == "o":
        cursor.at += 1
        index = read_sum(cursor)
        cursor.need("]")
    token = cursor.peek()
    if token.value == "(" and token.kind == "o":
        cursor.at += 1
        inner = cursor.grammar.round(cursor, "(")
        return ("root", inner, index)
    return ("root", read_atom(cursor), index)


def _function(cursor: Cursor, name: str) -> Node:
    power: Node | None = None
    base: Node | None = None
    while cursor.peek().value in ("^", "_") and cursor.peek().kind == "o":
        if cursor.peek().value == "^":
            cursor.at += 1
            power = read_script(cursor)
        else:
            cursor.at += 1
            base = _short_argument(cursor) if cursor.peek().kind != "n" else read_atom(cursor)
    if base is not None and name != "log":
        raise Unreadable("a subscript")
    argument = _call_argument(cursor)
    # `\sin^{-1}` is the inverse function by custom, though `\sin^2` is a power
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


def _call_argument(cursor: Cursor) -> Node:
    token = cursor.peek()
    if token.value == "(" and token.kind == "o":
        cursor.at += 1
        return cursor.grammar.round(cursor, "(")
    if token.value == "{" and token.kind == "o":
        return read_atom(cursor)
    if token.value == "-" and token.kind == "o":
        cursor.at += 1
        return ("neg", _call_argument(cursor))
    # `\sin 2x` takes factors up to the next function or bracket: `\sin x \cos y` is a product of two
    node = read_power(cursor)
    while True:
        token = cursor.peek()
        if not starts_factor(cursor, token) or (
            token.kind == "c" and token.value in FUNCTIONS and token.value != "sqrt"
        ):
            return node
        if token.value in ("(", "[", "|"):
            return node
        node = mul(node, read_power(cursor))
