"""What an answer is made of: nested tuples whose first entry is the kind. Built by `reader`, never by `eval`.

Scalars
    ("n", Fraction, places)       number; `places` decimals as written, None for a whole number or a fraction
    ("s", name)  ("c", "pi"|"e"|"i")  ("inf",)
    ("+", a, b, ...)  ("*", a, b, ...)  ("/", a, b)  ("neg", a)  ("^", a, b)  ("root", a, n)
    ("f", name, args)  ("log", base | None, a)  ("!", a)  ("!!", a)  ("binom", n, k)  ("deg", a)
    ("pm", a)  ("mp", a)          one sign choice for all of an element: expanded before comparing
Shapes
    ("unit", a, name)  ("pct", a)  ("base", digits, base)  ("ratio", items)  ("clock", items)
    ("tuple", open, close, items)  ("set", items)  ("list", joiner, items)  ("dots",)
    ("rel", first, ((op, next), ...))  ("cup" | "cap" | "minus", a, b)  ("all", name)
    ("builder", name, conditions)  ("matrix", rows)  ("cases", rows)
    ("congruence", joiner, clauses)   see `forms.Clause`   ("date", year | None, month, day)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from grpo_verifiers.maths.reading.vocabulary import names

Node = tuple[Any, ...]

ONE: Node = ("n", Fraction(1), None)
ZERO: Node = ("n", Fraction(0), None)

SCALARS = frozenset(
    ("n", "s", "c", "+", "*", "/", "neg", "^", "root", "f", "log", "!", "!!", "binom", "deg", "pm", "mp")
)


WHOLE = "k in Z"
"""The name of the one parameter that stands for any whole number in an answer."""
WHOLE_LETTERS = frozenset(("k", "m", "n", "j", "l", WHOLE))
"""Letters that name whole numbers where they are an exponent or a parameter."""
REAL = "c in R"
"""The name of the one constant that stands for any real number."""
REAL_LETTERS = names("a b c d k m p q r s t u A B C K alpha beta lambda mu") | {REAL}
_SHAPES = names(
    "inf unit pct base ratio clock tuple set list dots rel cup cap minus all builder matrix cases congruence date"
)


def number(value: int | Fraction) -> Node:
    """An exact number."""
    return ("n", Fraction(value), None)


def add(terms: list[Node]) -> Node:
    """A sum, flat if it has one term."""
    return terms[0] if len(terms) == 1 else ("+", *terms)


def mul(a: Node, b: Node) -> Node:
    """A product of two."""
    return ("*", a, b)


def children(node: Node) -> list[Node]:
    """The nodes directly below this one."""
    found: list[Node] = []
    stack: list[Any] = list(node[1:])
    while stack:
        entry = stack.pop()
        # an entry is a node, or a tuple of nodes or of (sign, node): one whose head names no kind is taken apart
        if isinstance(entry, tuple) and entry:
            if isinstance(entry[0], str) and (entry[0] in SCALARS or entry[0] in _SHAPES):
                found.append(entry)
            else:
                stack.extend(entry)
    return found


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        if at[0] not in ("n", "s", "c"):
            stack.extend(children(at))


def symbols(node: Node) -> set[str]:
    """Names of the free symbols."""
    return {at[1] for at in walk(node) if at[0] == "s"}


def mapped(entries: tuple[Any, ...], change: Callable[[Node], Node]) -> Node:
    """The entries with every node among them changed, also inside tuples of nodes."""
    return tuple(
        entry
        if not isinstance(entry, tuple) or not entry
        else change(entry)
        if isinstance(entry[0], str)
        else mapped(entry, change)
        for entry in entries
    )


def rename(node: Node, names: dict[str, str]) -> Node:
    """The node with symbols renamed."""
    kind = node[0]
    if kind == "s":
        return ("s", names.get(node[1], node[1]))
    if kind in ("n", "c", "inf"):
        return node
    return mapped(node, lambda part: rename(part, names))


def replaced(node: Node, leaf: Node, new: Node) -> Node:
    """The node with every such leaf (a symbol, a constant) replaced."""
    if node == leaf:
        return new
    if node[0] in ("n", "s", "c", "inf"):
        return node
    return mapped(node, lambda part: replaced(part, leaf, new))


def contains(node: Node, kinds: frozenset[str] | set[str]) -> bool:
    """Whether a node of one of these kinds occurs."""
    return any(at[0] in kinds for at in walk(node))


def anywhere(node: Node, test: Callable[[tuple[Any, ...]], bool]) -> bool:
    """Whether a test holds for a node, or for a tuple inside one, whatever the shape of either."""
    stack: list[object] = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, tuple):
            if test(at):
                return True
            stack.extend(at)
    return False


def choose_signs(node: Node, plus: bool) -> Node:
    """The node with every plus-minus read as plus (or minus), and minus-plus the other way."""
    kind = node[0]
    if kind in ("n", "s", "c", "inf"):
        return node
    # one choice for all of them: `\pm a \mp b` is two values, not four
    if kind in ("pm", "mp"):
        inner = choose_signs(node[1], plus)
        return inner if (kind == "pm") == plus else ("neg", inner)
    return mapped(node, lambda part: choose_signs(part, plus))
