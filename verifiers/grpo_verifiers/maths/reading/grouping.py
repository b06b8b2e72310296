"""What encloses other formulas: brackets of every kind and LaTeX commands with arguments.

How this works: `read_command` reads fractions, roots, functions and their arguments. `read_bracketed`, `read_set` and
`read_rows` read tuples, intervals, sets, set builders and matrices. What stands inside is read by the `Grammar` of the
cursor, since it may be a whole list.
"""

from __future__ import annotations

from grpo_verifiers.maths.reading.atoms import read_atom
from grpo_verifiers.maths.reading.sums import read_power, read_script, read_signed_power, read_sum, starts_factor
from grpo_verifiers.maths.reading.tokens import END, Cursor, Token, Unreadable
from grpo_verifiers.maths.reading.tree import ONE, Node, mul, number, symbols
from grpo_verifiers.maths.reading.vocabulary import CURRENCIES, FUNCTIONS, INVERSES, NUMBER_SETS, REFUSED, TRIGONOMETRIC

_CONSTANTS: dict[str, Node] = {"pi": ("c", "pi"), "infty": ("inf",), "emptyset": ("set", ()), "ldots": ("dots",)}


def read_command(cursor: Cursor, name: str) -> Node:
    """A LaTeX command after its token, with its arguments."""
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if name in ("frac", "binom"):
        top, bottom = _short_argument(cursor), _short_argument(cursor)
        cursor.closed = cursor.at
        return ("/" if name == "frac" else name, top, bottom)
    if name == "sqrt":
        return _root(cursor)
    if name == "cbrt":
        return ("root", _call_argument(cursor), number(3))
    if name == "{":
        return cursor.grammar.set(cursor)
    if name in NUMBER_SETS:
        return ("all", NUMBER_SETS[name])
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
        inner = _short_argument(cursor)
        # a mean, a conjugate, a negation or digits: nothing shows which
        if inner[0] in ("n", "+", "/", "^", "root"):
            raise Unreadable("a bar over a formula")
        # over capitals the bar is that of a segment, `\overline{AB}`, and does not change the value
        return ("s", inner[1] + " bar") if inner[0] == "s" and inner[1].islower() else inner
    if name == "cis":
        angle = _call_argument(cursor)
        return ("+", ("f", "cos", (angle,)), mul(("c", "i"), ("f", "sin", (angle,))))
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
    if name in REFUSED:
        raise Unreadable(f"an operation that is not carried out: `{name}`")
    raise Unreadable(f"a command `{name[:20]}`")


def _short_argument(cursor: Cursor) -> Node:
    r"""Argument of `\frac`: braces, or one digit of a longer number (`\frac12`)."""
    token = cursor.peek()
    if token.kind == "n" and len(token.value) > 1 and token.value.isdigit():
        # TeX takes one digit: `\frac12` is a half, and what is left of the number is the next argument
        cursor.tokens[cursor.at] = Token("n", token.value[1:])
        return number(int(token.value[0]))
    if token.value == "{" and token.kind == "o":
        cursor.at += 1
        node = cursor.afresh(cursor.grammar.measured)
        cursor.need("}")
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
        return ("root", cursor.grammar.round(cursor, "("), index)
    return ("root", read_atom(cursor), index)


def _function(cursor: Cursor, name: str) -> Node:
    power: Node | None = None
    base: Node | None = None
    while cursor.peek().value in ("^", "_") and cursor.peek().kind == "o":
        is_power = cursor.peek().value == "^"
        cursor.at += 1
        if is_power:
            power = read_script(cursor)
        else:
            base = _short_argument(cursor) if cursor.peek().kind != "n" else read_atom(cursor)
    if base is not None and name != "log":
        raise Unreadable("a subscript")
    argument = _call_argument(cursor)
    # `\sin^{-1}` is the inverse function by custom, though `\sin^2` is a power
    if power is not None and power == ("neg", ONE):
        if name not in INVERSES:
            raise Unreadable("an inverse function")
        name, power = INVERSES[name], None
    if name in ("ln", "log", "lg"):
        node: Node = ("log", ("c", "e") if name == "ln" else number(10) if name == "lg" else base, argument)
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
        if (
            not starts_factor(cursor, token)
            or (token.kind == "c" and token.value in FUNCTIONS and token.value != "sqrt")
            or token.value in ("(", "[", "|")
        ):
            return node
        node = mul(node, read_power(cursor))


def read_items(cursor: Cursor, closer: str) -> tuple[Node, ...]:
    """A list up to its closer, which is consumed."""
    node = cursor.afresh(cursor.grammar.listing)
    cursor.need(closer)
    return tuple(node[2]) if node[0] == "list" else (node,)


def read_bracketed(cursor: Cursor, value: str) -> Node:
    """A group of any kind, by its opener, which is still to be read."""
    if value == "{":
        cursor.at += 1
        if cursor.take("}"):
            if not starts_factor(cursor, cursor.peek()) and cursor.peek().value not in ("_", "^"):
                raise Unreadable("an expression is missing")
            return read_atom(cursor)
        bars, cursor.bars = cursor.bars, 0
        currency = cursor.currency
        node = cursor.grammar.listing(cursor)
        cursor.currency = currency or cursor.currency
        cursor.need("}")
        cursor.bars = bars
        return node
    # `]0, 1[` is the French way to write an open interval
    if value in ("(", "[", "]"):
        cursor.at += 1
        return read_round(cursor, value)
    if value == "|":
        cursor.at += 1
        cursor.bars += 1
        inner = read_sum(cursor)
        cursor.need("|")
        cursor.bars -= 1
        return ("f", "abs", (inner,))
    if value == "-":
        cursor.at += 1
        return ("neg", read_power(cursor))
    raise Unreadable(f"unexpected `{value}`")


def read_round(cursor: Cursor, opener: str) -> Node:
    """Round or square brackets after their opener: a group, a tuple or an interval."""
    currency = cursor.currency
    if cursor.peek().value in (")", "]"):
        raise Unreadable("empty brackets")
    node = cursor.afresh(cursor.grammar.listing)
    cursor.currency = currency
    closer = cursor.peek().value
    if closer not in (")", "]", "[") or (closer == "[" and opener not in "]["):
        raise Unreadable("brackets do not match")
    cursor.at += 1
    if node[0] == "unit" and node[2] == "degree":  # an argument in degrees keeps its sign
        node = ("deg", node[1])
    if node[0] == "list":
        return ("tuple", opener, closer, tuple(node[2]))
    if opener == "[" and closer == "]" and node[0] in ("tuple", "list"):
        return ("tuple", "[", "]", (node,))
    if (opener, closer) not in (("(", ")"), ("[", "]")):
        raise Unreadable("brackets do not match")
    return node


def read_set(cursor: Cursor) -> Node:
    """Set braces after their opener: members or a set builder."""
    if cursor.take("}"):
        return ("set", ())
    mark = _builder_mark(cursor)
    if mark:
        return _builder(cursor, mark)
    node = cursor.afresh(cursor.grammar.listing, in_set=1)
    cursor.need("}")
    return ("set", tuple(node[2]) if node[0] == "list" else (node,))


def _builder_mark(cursor: Cursor) -> int:
    """Where the bar of a set builder stands, counted from here; 0 if this is no set builder."""
    depth = 0
    # far enough for what a builder states of its name, and no scan to the end from every brace
    for i in range(cursor.at, min(len(cursor.tokens), cursor.at + 40)):
        token = cursor.tokens[i]
        depth += (token.value in ("(", "{")) - (token.value in (")", "}"))
        if depth < 0:
            return 0
        if depth == 0 and token.value in ("mid", ":"):
            return i - cursor.at
        if (
            depth == 0
            and token.value == "|"
            and i > cursor.at
            and cursor.tokens[i - 1].value not in ("+", "-", "*", ",", "=")
        ):
            return i - cursor.at
    return 0


def _builder(cursor: Cursor, mark: int) -> Node:
    if mark > 1 and cursor.peek(1).value != "in":
        # `{2k : k in Z}`: the values of an expression
        in_set, cursor.in_set = cursor.in_set, 1
        value = read_sum(cursor)
        cursor.in_set = in_set
        if cursor.peek().value not in ("|", "mid", ":"):
            raise Unreadable("a set builder")
        cursor.at += 1
        node = cursor.grammar.listing(cursor)
        cursor.need("}")
        return ("builder", "", value, node)
    if cursor.peek().kind != "s":
        raise Unreadable("a set builder")
    name = cursor.peek().value
    domain: Node | None = None
    cursor.at += 1
    if mark > 1:
        if not cursor.take("in"):
            raise Unreadable("a set builder")
        in_set, cursor.in_set = cursor.in_set, 1
        domain = cursor.grammar.sets(cursor)
        cursor.in_set = in_set
    cursor.at += 1
    node = cursor.grammar.listing(cursor)
    cursor.need("}")
    return ("builder", name, domain, node)


def read_rows(cursor: Cursor, closer: str) -> tuple[tuple[Node, ...], ...]:
    """Rows of a matrix or of cases, up to the closer, which is consumed."""
    rows: list[tuple[Node, ...]] = []
    bars, cursor.bars = cursor.bars, 0
    in_set, cursor.in_set = cursor.in_set, 0
    cells: list[Node] = []
    while True:
        if cursor.take(closer):
            break
        if cursor.take("newline"):
            if cells:
                rows.append(tuple(cells))
            cells = []
            continue
        if cursor.peek() is END:
            raise Unreadable("a matrix is never closed")
        if cursor.peek().value == "hline":
            cursor.at += 1
            continue
        if cursor.take("&") or cursor.take(","):
            continue
        word = cursor.peek().value.lower() if cursor.peek().kind == "w" else ""
        if word in ("if", "for", "when", "where", "otherwise", "else"):
            cursor.at += 1
            if word in ("otherwise", "else"):
                cells.append(("s", "otherwise"))
            continue
        cells.append(cursor.grammar.relation(cursor))
    if cells:
        rows.append(tuple(cells))
    cursor.bars, cursor.in_set = bars, in_set
    # cells are compared one by one: this bounds what an answer can cost
    if not rows or sum(map(len, rows)) > 100:
        raise Unreadable("an empty or oversized matrix")
    if closer != "end:cases" and len({len(row) for row in rows}) != 1:
        raise Unreadable("a ragged matrix")
    return tuple(rows)
