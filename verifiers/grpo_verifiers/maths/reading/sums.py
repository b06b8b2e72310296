"""Sums, products and powers.

How this works: each function reads from a cursor over tokens, moves it past what it has read and returns a tree.
`read_sum` adds products, `_read_product` multiplies powers, also where no sign is written between them, and
`read_power` reads an atom with its powers, marks and subscripts. Each calls the tighter one. What can be read in two
ways raises `Unreadable`.
"""

from __future__ import annotations

from grpo_verifiers.maths.reading.atoms import marked, read_atom, read_mixed, read_mixed_fraction, read_repeating
from grpo_verifiers.maths.reading.tokens import END, Cursor, Token, TooBig, Unreadable
from grpo_verifiers.maths.reading.tree import Node, add, contains, mul, number, symbols
from grpo_verifiers.maths.reading.units import read_degrees
from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS
from grpo_verifiers.maths.reading.words import NUMBER_WORDS, number_of

DEPTH = 60
_STARTS_FACTOR = frozenset(
    ("pi", "frac", "sqrt", "binom", "lfloor", "lceil", "overline", "begin:matrix", "begin:array", "root")
)


def read_power(cursor: Cursor) -> Node:
    """An atom with its powers and marks."""
    node = read_atom(cursor)
    for _ in range(DEPTH):
        token = cursor.peek()
        value = token.value
        if token.kind == "o" and value in ("^", "**"):
            cursor.at += 1
            node = _raised(cursor, node)
        elif token.kind == "o" and value == "!":
            cursor.at += 1
            # `n!!` is a product of every other number, not the factorial of a factorial
            double = cursor.peek().value == "!" and cursor.peek().kind == "o"
            cursor.at += double
            node = ("!!" if double else "!", node)
        elif token.kind == "o" and value == "'" and node[0] == "s":
            cursor.at += 1
            node = ("s", node[1] + "'")
        elif token.kind == "o" and value == "'" and node[0] == "n" and not cursor.currency:
            cursor.at += 1
            # `5'` is feet, `5''` inches
            cursor.currency = "in" if cursor.take("'") else "ft"
        elif token.kind == "o" and value == "'" and node[0] == "f":
            # nothing here computes derivatives
            raise Unreadable("a derivative")
        elif token.kind == "o" and value == "%":
            cursor.at += 1
            node = ("pct", node)
        elif value == "circ" and token.kind == "c":
            cursor.at += 1
            node = read_degrees(cursor, node)
        elif value == "_" and token.kind == "o":
            node = _subscript(cursor, node)
        elif value == "ldots" and node[0] == "n" and node[2]:
            cursor.at += 1
            node = read_repeating(cursor, node, cursor.tokens[cursor.at - 2].value)
        else:
            return node
    raise TooBig("nested too deep")


def _raised(cursor: Cursor, node: Node) -> Node:
    braced = cursor.peek().value == "{" and cursor.peek().kind == "o"
    inner = cursor.peek(1) if braced else cursor.peek()
    after = cursor.peek(2) if braced else cursor.peek(1)
    skip = 3 if braced else 1
    # `30^o`: the letter is typed for the degree sign
    if (inner.value == "circ" and inner.kind == "c") or (
        inner.value == "o" and node[0] == "n" and (not braced or after.value == "}")
    ):
        cursor.at += skip
        return read_degrees(cursor, node)
    if inner.value == "'":
        count = 0
        cursor.at += braced
        while cursor.take("'"):
            count += 1
        if braced:
            cursor.need("}")
        if node[0] == "n" and count < 3 and not cursor.currency:
            cursor.currency = "in" if count == 2 else "ft"
            return node
        if node[0] != "s":
            raise Unreadable("a prime")
        return ("s", node[1] + "'" * count)
    # an ordinal is compared as its number
    if inner.kind == "w" and inner.value in ("st", "nd", "rd", "th"):
        cursor.at += skip
        return node
    if node[0] == "all" and (inner.value in ("+", "*", "-") or inner.kind in ("n", "s")):
        cursor.at += skip
        return ("all", node[1] + ("^" if inner.kind in ("n", "s") else "") + inner.value)
    if inner.value in ("T", "top", "intercal", "t") and (not braced or after.value == "}"):
        is_row = node[0] == "tuple" and node[1] in ("(", "[", "<") and inner.value != "t"
        if is_row or node[0] == "matrix":
            cursor.at += skip
            return ("matrix", tuple((item,) for item in node[3]) if is_row else tuple(zip(*node[1], strict=True)))
    return ("^", node, read_script(cursor))


def read_script(cursor: Cursor) -> Node:
    """An exponent: braces, a signed number, or one atom."""
    token = cursor.peek()
    if token.kind == "o" and token.value == "-":
        cursor.at += 1
        return ("neg", read_script(cursor))
    if token.kind == "o" and token.value == "+":
        cursor.at += 1
        return read_script(cursor)
    node = read_atom(cursor)
    if cursor.peek().value == "^" and cursor.peek().kind == "o":
        cursor.at += 1
        return ("^", node, read_script(cursor))
    return node


def _subscript(cursor: Cursor, node: Node) -> Node:
    start = cursor.at + 1
    cursor.at += 1
    if cursor.take("{"):
        depth = 1
        while depth:
            token = cursor.peek()
            if token is END:
                raise Unreadable("a brace is never closed")
            depth += (token.value == "{" and token.kind == "o") - (token.value == "}" and token.kind == "o")
            cursor.at += 1
        inside = cursor.tokens[start + 1 : cursor.at - 1]
    else:
        if cursor.peek() is END:
            raise Unreadable("an empty subscript")
        inside = [cursor.peek()]
        cursor.at += 1
    label = "".join(t.value for t in inside)
    if node == ("s", "C") and label.isdigit() and cursor.take("^"):
        # `C_5^2` counts; a constant's index is small
        k = read_script(cursor)
        if k[0] == "n" and k[1] <= int(label) > 2:
            return ("binom", number(int(label)), k)
        return ("^", ("s", f"C_{label}"), k)
    if node[0] == "s":
        # the index is part of the name: `x_1` and `x_2` are two variables
        return ("s", f"{node[1]}_{label}")
    if node[0] == "all":
        part = {">0": "+", "<0": "-", "+": "+", "ge0": "+0", ">=0": "+0", "-": "-"}.get(label, f"_{label}")
        return ("all", node[1] + part)
    if node[0] == "f" and node[1] == "abs" and label in ("max", "min"):
        return node
    if node[0] == "n" and node[2] is None:
        base = int(label) if label.isdigit() and len(label) < 4 else None
        if label.isalpha():  # `101_{two}`
            base = number_of([label.lower()])
        if base is not None and 2 <= base <= 36:
            return ("base", str(node[1].numerator), base)
    raise Unreadable("a subscript")


def read_sum(cursor: Cursor) -> Node:
    """Terms with their signs."""
    cursor.depth += 1
    # far below Python's own limit: what later walks the tree recurses as well
    if cursor.depth > DEPTH:
        raise TooBig("nested too deep")
    terms: list[Node] = []
    sign = "+"
    token = cursor.peek()
    if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
        cursor.at += 1
        sign = token.value
    while True:
        while cursor.peek().value in ("+", "-") and cursor.peek().kind == "o":
            if cursor.peek().value == "-":
                # `- -3`; behind plus-minus a minus swaps which of the two comes first
                sign = {"+": "-", "-": "+", "pm": "mp", "mp": "pm"}[sign]
            cursor.at += 1
        term = _read_product(cursor)
        terms.append(term if sign == "+" else ("neg", term) if sign == "-" else (sign, term))
        token = cursor.peek()
        if token.value in ("+", "-", "pm", "mp") and token.kind in ("o", "c"):
            following = cursor.peek(1)
            if following is END or following.value in (",", ";"):
                # `3 +` was cut off
                raise Unreadable("an operator without its right side")
            cursor.at += 1
            sign = token.value
        else:
            break
    cursor.depth -= 1
    return add(terms)


def _read_product(cursor: Cursor) -> Node:
    """Factors, written or implied, and quotients."""
    left = read_power(cursor)
    while True:
        token = cursor.peek()
        value = token.value
        if token.kind == "o" and value == "*":
            cursor.at += 1
            left = mul(left, read_signed_power(cursor))
        elif token.kind == "o" and value == "/":
            cursor.at += 1
            # `60 km/h`: a stroke before a word belongs to the unit
            if cursor.peek().kind == "w" and cursor.peek().value not in NUMBER_WORDS:
                cursor.at -= 1
                return left
            left = ("/", left, read_signed_power(cursor))
        elif token.kind == "c" and value == "oplus":
            cursor.at += 1
            right = read_signed_power(cursor)
            if left[0] not in ("all", "*") or right[0] != "all" or symbols(left) or contains(left, {"n"}):
                raise Unreadable("a sum of other things than groups")
            left = mul(left, right)  # of finitely many groups the sum is the product
        elif starts_factor(cursor, token):
            if token.kind == "n":
                before = cursor.tokens[cursor.at - 1]
                # two numbers in a row are a mixed number or a slip, never a product
                if before.kind == "n" and cursor.closed != cursor.at:
                    left = read_mixed(cursor, left)
                    continue
                if before.value == "}" and token.spaced is False and left[0] == "n":
                    # `{2}3` is 23 or 6: nobody knows
                    raise Unreadable("two numbers side by side")
            elif token.value == "frac" and left[0] == "n" and cursor.tokens[cursor.at - 1].kind == "n":
                left = read_mixed_fraction(cursor, left)
                continue
            left = marked(left, read_power(cursor))
        else:
            return left


def read_signed_power(cursor: Cursor) -> Node:
    """A factor after signs, as it may stand behind an operator."""
    if cursor.peek().value == "-" and cursor.peek().kind == "o":
        cursor.at += 1
        return ("neg", read_signed_power(cursor))
    if cursor.peek().value == "+" and cursor.peek().kind == "o":
        cursor.at += 1
    return read_power(cursor)


def starts_factor(cursor: Cursor, token: Token) -> bool:
    """Whether a token can follow as an implied factor."""
    kind, value = token.kind, token.value
    if kind == "n":
        return True
    if kind == "s":
        return not is_plain_union(cursor)
    if kind == "o":
        if value == "|":
            # between bars a stroke closes them, in a set it parts a name from its condition
            return cursor.bars == 0 and not cursor.in_set
        if value == "[":
            return not cursor.in_set and cursor.peek(1).value not in ("", ",", "cup", "cap", ")", "}", "U")
        return value in ("(", "{")
    if kind == "c":
        return value in _STARTS_FACTOR or value in FUNCTIONS
    return False


def is_plain_union(cursor: Cursor) -> bool:
    """`(1, 2) U (3, 4)`."""
    token = cursor.peek()
    return (
        token.value == "U"
        and token.kind in ("s", "w")
        and cursor.tokens[cursor.at - 1].value in (")", "]", "}")
        and cursor.peek(1).value in ("(", "[", "{")
    )
