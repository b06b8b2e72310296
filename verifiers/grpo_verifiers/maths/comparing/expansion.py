"""Rewrites different notations into one form: plus-minus as two values, systems as lists, names on a left side.

How this works: `expand` rewrites the top of a tree before `match.same` looks at its shape. The second half decides what
a left side is: a name of the value (`x`, `f(x)`, `AB`), which is dropped, or a part of the answer, and which two names
may stand on the left of one answer.
"""

from __future__ import annotations

from functools import reduce
from itertools import product

from grpo_verifiers.maths.reading.tree import Node, choose_signs, contains, number, symbols, walk

SIGNS = frozenset(("pm", "mp"))
SETLIKE = frozenset(("cup", "cap", "minus", "all", "builder"))
REGIONS = SETLIKE | {"set", "tuple"}
_SQUARED = frozenset(("sigma", "s", "S", "R", "chi", "eta", "rho", "tau"))
"""Letters whose squares are quantities of their own: variances, coefficients of determination."""
_INDICES = frozenset("ijkmnpr")
_ENDLESS = frozenset(("inf",))
_NONE: frozenset[str] = frozenset()
_UNSEARCHED = frozenset(("list", "set", "rel", "congruence", "n", "s", "c"))
_VECTORS = frozenset(("tuple", "matrix"))
_SEARCHED = SIGNS | _VECTORS


def expand(node: Node) -> Node:
    """Plus-minus written out, system of equations as a list, sums of one term flattened."""
    if node[0] == "+" and len(node) == 2:
        node = node[1]
    if node[0] == "list" and any(contains(item, SIGNS) for item in node[2]):
        items: list[Node] = []
        for item in node[2]:
            written = expand(item)
            items.extend(written[2] if written[0] == "list" else (written,))
        return ("list", node[1], tuple(items))
    if (
        node[0] == "list"
        and all(item[0] == "tuple" and len(item[3]) == 2 for item in node[2])
        and contains(node, _ENDLESS)
    ):
        return reduce(
            lambda a, b: ("cup", a, b), node[2]
        )  # `(-oo, -2) and (2, oo)`: intervals, of which none is a point
    if node[0] == "set" and any(contains(item, SIGNS) for item in node[1]):
        written = expand(("list", ",", node[1]))
        return ("set", written[2] if written[0] == "list" else (written,))
    if node[0] == "rel" and contains(node, SIGNS) and all(op == "=" for op, _ in node[2]):
        last = node[2][-1][1]
        if not contains(node[1], SIGNS):
            return ("rel", node[1], (*node[2][:-1], ("=", expand(last))))
    if (
        node[0] == "tuple"
        and sum(contains(item, SIGNS) for item in node[3]) > 1
        # a minus-plus ties the signs of its coordinates, as one plus-minus in them all does not
        and not contains(node, {"mp"})
    ):
        # `(\pm a, \pm b)` is four points: nothing ties the signs of two coordinates
        choices = [
            [choose_signs(item, True), choose_signs(item, False)] if contains(item, SIGNS) else [item]
            for item in node[3]
        ]
        points = [(*node[:3], found) for found in product(*choices)] if len(choices) <= 6 else [node]
        return ("list", "pm", tuple(points))
    found = _NONE if node[0] in _UNSEARCHED else {at[0] for at in walk(node)} & _SEARCHED
    if found and found & SIGNS:
        return ("list", "pm", (choose_signs(node, True), choose_signs(node, False)))
    if node[0] == "cases" and all(len(row) == 1 for row in node[1]):
        return ("list", ",", tuple(row[0] for row in node[1]))
    if node[0] == "+" and len(node) == 3 and node[2][0] == "neg" and node[1][0] in REGIONS and node[2][1][0] in REGIONS:
        return ("minus", node[1], node[2][1])
    if node[0] == "matrix" and len(node[1]) == 1 and len(node[1][0]) == 1:
        return expand(node[1][0][0])
    if node[0] == "*" and len(node) == 3 and node[2][0] == "tuple" and node[1][0] == "s" and node[1][1].isupper():
        return expand(node[2])  # a named point, P(2, 3)
    if found and node[0] in ("+", "*", "neg", "/") and (cells := _combined(node)) is not None:
        (_, columns), entries = cells
        if columns == 1:
            return ("tuple", "(", ")", tuple(entries))
        return ("matrix", tuple(tuple(entries[i : i + columns]) for i in range(0, len(entries), columns)))
    if node[0] == "unit" and node[1][0] in ("tuple", "set", "list"):
        return expand(node[1])
    return node


def _combined(node: Node) -> tuple[tuple[int, int], list[Node]] | None:
    """Rows and columns and the entries of a sum of multiples of vectors or of matrices, or None."""
    if node[0] == "tuple" and node[1] in "(<":
        return (len(node[3]), 1), list(node[3])
    if node[0] == "matrix":
        rows, columns = len(node[1]), len(node[1][0])
        return ((columns, 1) if rows == 1 else (rows, columns)), [cell for row in node[1] for cell in row]
    parts = [_combined(part) if contains(part, _VECTORS) else None for part in node[1:]]
    if node[0] == "+" and None not in parts and len({part[0] for part in parts}) == 1:  # type: ignore[index]
        return parts[0][0], [("+", *terms) for terms in zip(*(part[1] for part in parts), strict=True)]  # type: ignore[index]
    if (
        node[0] not in ("neg", "*", "/")
        or sum(part is not None for part in parts) != 1
        or (node[0] == "/" and parts[1])
    ):
        return None
    at = next(i for i, part in enumerate(parts, 1) if part is not None)
    shape, entries = parts[at - 1]  # type: ignore[misc]
    if any(contains(part, _VECTORS) for i, part in enumerate(node[1:], 1) if i != at):
        return None
    return shape, [(node[0], *node[1:at], entry, *node[at + 1 :]) for entry in entries]


def plain_value(node: Node) -> Node:
    """The number of a quantity or percentage, its unit dropped."""
    while node[0] == "unit":
        node = node[1]
    return ("/", node[1], number(100)) if node[0] == "pct" else node


def is_name(node: Node) -> bool:
    """Whether a left side only names the value: `x`, `f(x)`, `AB`, `m+n`, `(x, y)`, `|AB|`."""
    kind = node[0]
    if kind == "s":
        return True
    if kind == "f":
        if node[1] == "abs":
            inner = node[2][0]
            if inner[0] == "f" and inner[1] == "abs" and inner[2][0][0] == "s":
                return True
            return inner == ("s", "z") or (
                is_name(node[2][0]) and not any(c.islower() for c in "".join(symbols(node[2][0])))
            )
        return len(node[1].rstrip("'")) == 1 or all(argument[0] == "s" for argument in node[2])
    if kind == "^" and node[2] == number(2):
        return node[1][0] == "s" and node[1][1].partition("_")[0] in _SQUARED
    if kind == "^":
        return node[1][0] == "s" and node[1][1][:1].isupper() and node[2] in (("neg", number(1)), ("s", "T"))
    if kind == "*":
        parts = factors(node)
        if (
            parts[0][0] in ("^", "deg")
            and parts[0][1][0] == "s"
            and parts[0][1][1] in "fghFGH"
            and all(p[0] == "s" for p in parts[1:])
        ):
            return parts[0][0] == "deg" or bool(parts[0][2] == ("neg", number(1)))
        if len(parts) == 2 and parts[0][0] == "s" and parts[1][0] == "s" and len(parts[0][1]) == 1:
            return parts[0][1] in "PVETCSDNabcdefghkrpquvwABGHKLMQRUWXYZ" and parts[0][1].isupper()
        if parts[-1][0] == "^" and parts[-1][2] == number(2) and len(parts) == 2:  # AB^2, of a segment
            parts[-1] = parts[-1][1]
        return len(parts) <= 4 and all(p[0] == "s" and p[1].isupper() and len(p[1]) == 1 for p in parts)
    if kind == "+":
        return len(node) > 2 and all(term[0] == "s" for term in node[1:]) and len(set(node[1:])) == len(node) - 1
    if kind == "matrix":
        return all(cell[0] == "s" for row in node[1] for cell in row)
    if kind == "tuple":
        return all(item[0] == "s" for item in node[3])
    if kind == "/":
        top, bottom = factors(node[1]), factors(node[2])
        # a name is not a formula that cancels: `a / a` has a value of its own
        is_apart = not set(top) & set(bottom) or (
            len(top) > 1 < len(bottom)
            and all(part[0] == "s" and len(part[1]) == 1 and part[1].isupper() for part in top + bottom)
        )
        return all(is_quantity(f) or f == ("c", "pi") for f in top + bottom) and (top[0] == ("s", "d") or is_apart)
    if kind in ("cup", "cap", "minus"):
        return bool(node[1][0] == node[2][0] == "s")
    if kind == "ratio":
        return all(all(is_quantity(f) for f in factors(part)) for part in node[1])
    return False


def is_quantity(node: Node) -> bool:
    """A letter or the value of a function, as they stand in the ratio of two quantities."""
    return node[0] == "s" or (node[0] == "f" and len(node[1].rstrip("'")) == 1)


def as_quotient(name: Node | None) -> Node | None:
    """`a : b` as the quotient it names."""
    if name is not None and name[0] == "ratio" and len(name[1]) == 2:
        return ("/", *name[1])
    return name


def is_graph(a: Node, b: Node) -> bool:
    """`y` and `f(x)`, `x` and `x(t)`: two names of the left side of a graph."""
    if a[0] == "f":
        a, b = b, a
    if a[0] == "s" and b[0] == "f" and b[1] == a[1] and len(b[2]) == 1 and b[2][0][0] == "s":
        return True
    return (
        a == ("s", "y")
        and b[0] == "f"
        and b[1] in ("f", "g", "h", "F", "G", "H", "y")
        and len(b[2]) == 1
        and b[2][0] == ("s", "x")
    )


def same_sequence(a: Node, b: Node) -> tuple[str, str] | None:
    """The two letters of the index of `a_n` and `a_k`, or None."""
    if a[0] != "s" or b[0] != "s" or a == b:
        return None
    (stem, _, first), (other, _, second) = a[1].partition("_"), b[1].partition("_")
    return (first, second) if stem == other and {first, second} <= _INDICES else None


def factors(node: Node) -> list[Node]:
    """Factors of a product, flat."""
    if node[0] == "*":
        return [f for part in node[1:] for f in factors(part)]
    return [node]


def same_function(a: Node, b: Node) -> bool:
    """`f(x)` and `f(z)`."""
    return (
        a[0] == b[0] == "f"
        and a != b
        and a[1] == b[1]
        and len(a[2]) == len(b[2]) == 1
        and a[2][0][0] == b[2][0][0] == "s"
        and not (a[2][0][1][0].isupper() and b[2][0][1][0].isupper())  # P(A) is not P(B)
    )


def names_may_agree(a: Node, b: Node) -> bool:
    """Two names that do not contradict: only plain letters do."""
    if a[0] == "s" and b[0] == "s":
        return False
    return (
        a[0] != b[0]
        and not {"f", "/", "ratio", "^"} & {a[0], b[0]}
        and "tuple" not in (a[0], b[0])
        and not (symbols(a) & symbols(b))
    )


def named_values(items: tuple[Node, ...]) -> dict[str, Node] | None:
    """`x = 2, y = 3` by name; None if any item is no assignment, or a name comes twice."""
    named: dict[str, Node] = {}
    for item in items:
        if item[0] != "rel" or len(item[2]) != 1 or item[2][0][0] != "=" or item[1][0] != "s" or item[1][1] in named:
            return None
        named[item[1][1]] = item[2][0][1]
    return named


def coordinates(named: dict[str, Node]) -> list[Node]:
    """Named values as coordinates: by the alphabet where the names run on in it (`x, y`; `x_1, x_2`), else as given."""
    letters = sorted({name[:1] for name in named})
    runs_on = ord(letters[-1]) - ord(letters[0]) == len(letters) - 1 and all(len(k) == 1 or "_" in k for k in named)
    return [named[k] for k in sorted(named)] if runs_on else list(named.values())


def without_left_sides(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """Left sides dropped: all of one name, or only the first (`n = 2, 3, 4`)."""
    named = [
        item for item in items if item[0] == "rel" and len(item[2]) == 1 and item[2][0][0] == "=" and is_name(item[1])
    ]
    if not named or (
        len(named) == len(items)
        and len({item[1] for item in items}) > 1
        and len({i[1][1][:1] for i in items if i[1][0] == "s"}) != 1
    ):
        return items
    if len(named) != len(items) and (
        len(named) != 1 or items[0] is not named[0] or any(i[0] == "rel" for i in items[1:])
    ):
        return items
    out: list[Node] = []
    for item in items:
        value = item[2][0][1] if item[0] == "rel" else item
        value = expand(value)
        out.extend(value[2] if value[0] == "list" else (value,))
    return tuple(out)
