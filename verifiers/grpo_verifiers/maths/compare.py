"""Do two trees give the same answer? Shapes are matched here, down to scalars; the order of arguments is gold, answer."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.exact import Undefined
from grpo_verifiers.maths.numeric import NoValue, approximate
from grpo_verifiers.maths.realsets import NotReal, real_set, same_sets
from grpo_verifiers.maths.scalars import Trial, proportional, same_scalar, value_of
from grpo_verifiers.maths.tree import SCALARS, Node, choose_signs, contains, mul, number, rename, symbols
from grpo_verifiers.maths.units import conversion, units_agree

_SIGNS = frozenset(("pm", "mp"))
_SETLIKE = frozenset(("cup", "cap", "minus", "all", "builder"))
_ORDERED = frozenset(("<", ">", "<=", ">=", "!="))
_REGIONS = _SETLIKE | {"set", "tuple"}
MOST_MATCHED = 12
"""Unordered lists up to this length are matched exhaustively, longer ones greedily."""


def same(gold: Node, answer: Node, trial: Trial) -> bool:
    """Whether `answer` gives the value of `gold`; unsettled scalars are left in `trial.pending`."""
    mark = len(trial.pending)
    if _same(gold, answer, trial):
        return True
    del trial.pending[mark:]
    return False


def _same(gold: Node, answer: Node, trial: Trial) -> bool:
    gold, answer = _spread(gold), _spread(answer)
    g, a = gold[0], answer[0]
    if g == "rel" or a == "rel":
        return _relations(gold, answer, trial)
    if g == "list" or a == "list":
        return _lists(gold, answer, trial)
    if g in ("unit", "pct") or a in ("unit", "pct"):
        return _measures(gold, answer, trial)
    if (g in SCALARS or g == "inf") and (a in SCALARS or a == "inf"):
        return _scalars(gold, answer, trial)
    if g in _SETLIKE or a in _SETLIKE:
        return _real_sets(gold, answer, trial)
    if g == "set" or a == "set":
        return _sets(gold, answer, trial)
    if "matrix" in (g, a) or _is_scaled_matrix(gold) or _is_scaled_matrix(answer):
        return _matrices(gold, answer, trial)
    if g == "tuple" and a == "tuple":
        return _tuples(gold, answer, trial)
    if g == "cases" and a == "cases":
        return _cases(gold, answer, trial)
    if g in ("ratio", "clock") or a in ("ratio", "clock"):
        return _ratios(gold, answer, trial)
    if g == "base" or a == "base":
        return _bases(gold, answer)
    return bool(gold == answer) and g in ("inf", "dots", "neg", "+")


def _spread(node: Node) -> Node:
    """Plus-minus written out, system of equations as a list, sums of one term flattened."""
    if node[0] == "+" and len(node) == 2:
        node = node[1]
    if node[0] == "list" and any(contains(item, _SIGNS) for item in node[2]):
        items: list[Node] = []
        for item in node[2]:
            spread = _spread(item)
            items.extend(spread[2] if spread[0] == "list" else (spread,))
        return ("list", node[1], tuple(items))
    if node[0] == "set" and any(contains(item, _SIGNS) for item in node[1]):
        spread = _spread(("list", ",", node[1]))
        return ("set", spread[2] if spread[0] == "list" else (spread,))
    if node[0] == "rel" and contains(node, _SIGNS) and all(op == "=" for op, _ in node[2]):
        last = node[2][-1][1]
        if not contains(node[1], _SIGNS):
            return ("rel", node[1], (*node[2][:-1], ("=", _spread(last))))
    if node[0] not in ("list", "set", "rel") and contains(node, _SIGNS):
        return ("list", "pm", (choose_signs(node, True), choose_signs(node, False)))
    if node[0] == "cases" and all(len(row) == 1 for row in node[1]):
        return ("list", ",", tuple(row[0] for row in node[1]))
    if (
        node[0] == "+"
        and len(node) == 3
        and node[2][0] == "neg"
        and node[1][0] in _REGIONS
        and node[2][1][0] in _REGIONS
    ):
        return ("minus", node[1], node[2][1])
    if node[0] == "matrix" and len(node[1]) == 1 and len(node[1][0]) == 1:
        return _spread(node[1][0][0])
    if node[0] == "unit" and node[1][0] in ("tuple", "set", "list"):
        return _spread(node[1])
    return node


# relations


def is_name(node: Node) -> bool:
    """Whether a left side only names the value: `x`, `f(x)`, `AB`, `m+n`, `(x, y)`, `|AB|`."""
    kind = node[0]
    if kind == "s":
        return True
    if kind == "f":
        if node[1] == "abs":
            return node[2][0] == ("s", "z") or (
                is_name(node[2][0]) and not any(c.islower() for c in "".join(symbols(node[2][0])))
            )
        return len(node[1].rstrip("'")) == 1 or all(argument[0] == "s" for argument in node[2])
    if kind == "*":
        parts = _factors(node)
        if (
            parts[0][0] in ("^", "deg")
            and parts[0][1][0] == "s"
            and parts[0][1][1] in "fghFGH"
            and all(p[0] == "s" for p in parts[1:])
        ):
            return parts[0][0] == "deg" or bool(parts[0][2] == ("neg", number(1)))
        if len(parts) == 2 and parts[0][0] == "s" and parts[1][0] == "s" and len(parts[0][1]) == 1:
            return parts[0][1] in "PVETCSDNabcdefghkrpquvwABGHKLMQRUWXYZ" and (parts[0][1].isupper() or False)
        return len(parts) <= 4 and all(p[0] == "s" and p[1].isupper() and len(p[1]) == 1 for p in parts)
    if kind == "+":
        return (
            len(node) > 2 and all(term[0] == "s" for term in node[1:]) and len(set(node[1:])) == len(node) - 1
        )
    if kind == "tuple":
        return all(item[0] == "s" for item in node[3])
    if kind == "/":
        top, bottom = _factors(node[1]), _factors(node[2])
        return (
            all(f[0] == "s" for f in top + bottom) and top[0] == bottom[0] == ("s", "d") and len(bottom) == 2
        )
    return False


def _factors(node: Node) -> list[Node]:
    if node[0] == "*":
        return [f for part in node[1:] for f in _factors(part)]
    return [node]


def _relations(gold: Node, answer: Node, trial: Trial) -> bool:
    if gold[0] != "rel":
        return _gold_value(gold, answer, trial)
    ops = {op for op, _ in gold[2]}
    if ops <= {"=", "~", "to"}:
        return _gold_equation(gold, answer, trial)
    if answer[0] == "list" and answer[1] not in ("or", "and") and ops & {"="}:
        return False
    return _real_sets(gold, answer, trial) or _same_inequality(gold, answer, trial)


def _chain(node: Node) -> tuple[Node | None, list[Node], list[str]]:
    """Name (if the first side is one), values, and the signs between them."""
    parts = [node[1], *(part for _, part in node[2])]
    ops = [op for op, _ in node[2]]
    if is_name(parts[0]):
        return parts[0], parts[1:], ops[1:]
    if len(parts) == 2 and parts[1][0] == "s" and ops[0] == "=":
        return parts[1], parts[:1], []
    return None, parts, ops


def _gold_value(gold: Node, answer: Node, trial: Trial) -> bool:
    """The gold is a bare value, the answer a relation."""
    ops = {op for op, _ in answer[2]}
    if not ops <= {"=", "~", "to"}:
        if ops == {"in"} and len(answer[2]) == 1 and is_name(answer[1]):
            target = answer[2][0][1]
            return (target[0] != "set" or gold[0] not in SCALARS) and _same(gold, target, trial)
        if gold[0] in SCALARS or gold[0] in ("unit", "pct"):
            return False
        return _real_sets(gold, answer, trial)
    name, values, signs = _chain(answer)
    if (
        name is not None
        and name[0] == "tuple"
        and gold[0] == "list"
        and len(values) == 1
        and values[0][0] == "tuple"
    ):
        return _in_order(gold[2], values[0][3], trial)
    if name is not None and gold == name and gold[0] == "s" and len(values) == 1 and values[0][0] != "s":
        return False
    if (
        name is None
        and any(symbols(v) for v in values)
        and not all(_may_equal(values[0], v, trial) for v in values[1:])
    ):
        return False
    return _any_part(gold, values, signs, trial)


def _may_equal(a: Node, b: Node, trial: Trial) -> bool:
    return same(a, b, trial)


def _any_part(gold: Node, values: list[Node], signs: list[str], trial: Trial) -> bool:
    """The parts of a chain agree with each other (roughly across an approximation sign) and one is the gold."""
    for i, sign in enumerate(signs):
        if sign == "~":
            if not _roughly(values[i], values[i + 1]):
                return False
        elif not same(values[i], values[i + 1], trial):
            return False
    return any(same(gold, value, trial) for value in values)


def _plain(node: Node) -> Node:
    while node[0] == "unit":
        node = node[1]
    return ("/", node[1], number(100)) if node[0] == "pct" else node


def _roughly(a: Node, b: Node) -> bool:
    """Whether one is the other rounded or cut to the digits shown."""
    try:
        x, y = approximate(_plain(a), {}), approximate(_plain(b), {})
    except (NoValue, KeyError):
        return False
    shown = [_shown_places(side) for side in (a, b)]
    places = min((p for p in shown if p is not None), default=None)
    return places is not None and abs(x.value - y.value) < 10.0**-places


def _shown_places(node: Node) -> int | None:
    """Decimals of a number as written; None for an expression."""
    while node[0] in ("unit", "neg"):
        node = node[1]
    if node[0] == "pct":
        inner = _shown_places(node[1])
        return None if inner is None else inner + 2
    if node[0] != "n" or (node[2] is None and node[1].denominator != 1):
        return None
    return int(node[2] or 0)


def _gold_equation(gold: Node, answer: Node, trial: Trial) -> bool:
    name, values, signs = _chain(gold)
    if answer[0] != "rel":
        if name is None:
            return "~" in signs and any(same(v, answer, trial) for v in values)
        return any(same(v, answer, trial) for v in values)
    if not {op for op, _ in answer[2]} <= {"=", "~", "to"}:
        return name is not None and any(same(v, answer, trial) for v in values)
    other, parts, others = _chain(answer)
    if name is None and "~" in signs:
        return any(same(v, answer, trial) for v in values)
    if name is not None and other is not None:
        if _same_function(name, other) and not any(name[2][0][1] in symbols(part) for part in parts):
            parts = [rename(part, {other[2][0][1]: name[2][0][1]}) for part in parts]
            other = name
        if name == other or _loosely_named(name, other):
            return any(_any_part(v, parts, others, trial) for v in values)
        if len(values) == 1 and len(parts) == 1 and values[0][0] in SCALARS and parts[0][0] in SCALARS:
            return _same_equation(gold, answer, trial)
        return False
    return _same_equation(gold, answer, trial)


def _same_function(a: Node, b: Node) -> bool:
    """`f(x)` and `f(z)`."""
    return (
        a[0] == b[0] == "f"
        and a != b
        and a[1] == b[1]
        and len(a[2]) == len(b[2]) == 1
        and a[2][0][0] == b[2][0][0] == "s"
    )


def _loosely_named(a: Node, b: Node) -> bool:
    """Two names that do not contradict: only plain letters do."""
    if a[0] == "s" and b[0] == "s":
        return False
    return (
        a[0] != b[0]
        and "f" not in (a[0], b[0])
        and "tuple" not in (a[0], b[0])
        and not (symbols(a) & symbols(b))
    )


def _same_equation(gold: Node, answer: Node, trial: Trial) -> bool:
    if len(gold[2]) != 1 or len(answer[2]) != 1:
        return False
    left, right, a, b = gold[1], gold[2][0][1], answer[1], answer[2][0][1]
    if any(side[0] not in SCALARS for side in (left, right, a, b)):
        return (same(left, a, trial) and same(right, b, trial)) or (
            same(left, b, trial) and same(right, a, trial)
        )
    if symbols(gold) != symbols(answer):
        return False
    first, second = _numerator(left, right), _numerator(a, b)
    return proportional(first, second, trial) or proportional(
        ("+", left, ("neg", right)), ("+", a, ("neg", b)), trial
    )


def _numerator(left: Node, right: Node) -> Node:
    """left - right, both sides multiplied by their denominators."""
    (top, bottom), (other, under) = _over(left), _over(right)
    return ("+", ("*", top, under), ("neg", ("*", other, bottom)))


def _over(node: Node) -> tuple[Node, Node]:
    """Numerator and denominator of a sum, product or quotient."""
    one = number(1)
    kind = node[0]
    if kind == "/":
        (a, b), (c, d) = _over(node[1]), _over(node[2])
        return mul(a, d), mul(b, c)
    if kind == "neg":
        top, bottom = _over(node[1])
        return ("neg", top), bottom
    if kind == "*":
        top, bottom = one, one
        for factor in node[1:]:
            a, b = _over(factor)
            top, bottom = mul(top, a), mul(bottom, b)
        return top, bottom
    if kind == "+" and len(node) <= 12 and contains(node, {"/"}):
        top, bottom = _over(node[1])
        for term in node[2:]:
            a, b = _over(term)
            if b == one:
                top = ("+", top, mul(a, bottom))
            elif bottom == one:
                top, bottom = ("+", mul(top, b), a), b
            else:
                top, bottom = ("+", mul(top, b), mul(a, bottom)), mul(bottom, b)
        if not symbols(bottom):
            return node, one
        return top, bottom
    if kind == "^" and node[2][0] == "neg":
        return one, ("^", node[1], node[2][1])
    return node, one


def _same_inequality(gold: Node, answer: Node, trial: Trial) -> bool:
    if answer[0] != "rel" or len(gold[2]) != len(answer[2]):
        return False
    first, second = _oriented(gold), _oriented(answer)
    if len(first) > 1:
        return all(
            op == other and same(a, c, trial) and same(b, d, trial)
            for (a, op, b), (c, other, d) in zip(first, second, strict=True)
        )
    (a, op, b), (c, other, d) = first[0], second[0]
    if op != other:
        return False
    if any(side[0] not in SCALARS for side in (a, b, c, d)):
        return same(a, c, trial) and same(b, d, trial)
    return proportional(("+", a, ("neg", b)), ("+", c, ("neg", d)), trial, positive=op != "!=")


def _oriented(node: Node) -> list[tuple[Node, str, Node]]:
    """Links written with `<` or `<=`."""
    parts = [node[1], *(part for _, part in node[2])]
    ops = [op for op, _ in node[2]]
    if ops[0] in (">", ">="):
        parts.reverse()
        ops = [{">": "<", ">=": "<=", "<": ">", "<=": ">="}.get(op, op) for op in reversed(ops)]
    return [(parts[i], op, parts[i + 1]) for i, op in enumerate(ops)]


# lists and sets


def _lists(gold: Node, answer: Node, trial: Trial) -> bool:
    if gold[0] != "list":
        return _one_against_list(gold, answer, trial)
    if answer[0] == "list":
        return _list_against_list(gold, answer, trial)
    named = _named(gold[2])
    if answer[0] == "tuple":
        if named is not None and len(named) > 1:
            return _in_order([named[k] for k in sorted(named)], answer[3], trial)
        if trial.options.order == "free" and gold[1] != "pm":
            return _unordered(list(gold[2]), list(answer[3]), trial)
        return False
    if answer[0] == "set":
        return _sets(("set", _values(gold[2])), answer, trial)
    if (gold[1] == "or" and all(item[0] == "rel" for item in gold[2])) or answer[0] in _SETLIKE:
        return _real_sets(gold, answer, trial)
    if gold[1] == "or" and answer[0] in (*SCALARS, "unit", "pct"):
        return all(same(item, answer, trial) for item in _values(gold[2]))
    return _real_sets(gold, answer, trial) if gold[1] in ("and", "or") else False


def _one_against_list(gold: Node, answer: Node, trial: Trial) -> bool:
    items = answer[2]
    if gold[0] == "tuple":
        named = _named(items)
        if named is not None and len(named) == len(items):
            return bool(
                len(named) == len(gold[3]) and _in_order(gold[3], [named[k] for k in sorted(named)], trial)
            )
        if answer[1] in (",", "and") and gold[1] in "(<" and not any(item[0] == "rel" for item in items):
            return _in_order(gold[3], items, trial)
        return _real_sets(gold, answer, trial)
    if gold[0] == "set":
        return _sets(gold, ("set", _values(items)), trial)
    if gold[0] in _SETLIKE or gold[0] == "rel":
        return _real_sets(gold, answer, trial)
    if answer[1] == "or" and gold[0] in (*SCALARS, "unit", "pct"):
        return all(same(gold, item, trial) for item in _values(items))
    return False


def _named(items: tuple[Node, ...]) -> dict[str, Node] | None:
    """`x = 2, y = 3` by name; None if any item is no assignment, or a name comes twice."""
    named: dict[str, Node] = {}
    for item in items:
        if (
            item[0] != "rel"
            or len(item[2]) != 1
            or item[2][0][0] != "="
            or item[1][0] != "s"
            or item[1][1] in named
        ):
            return None
        named[item[1][1]] = item[2][0][1]
    return named


def _values(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """Left sides dropped: all of one name, or only the first (`n = 2, 3, 4`)."""
    named = [
        item
        for item in items
        if item[0] == "rel" and len(item[2]) == 1 and item[2][0][0] == "=" and is_name(item[1])
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
        value = _spread(value)
        out.extend(value[2] if value[0] == "list" else (value,))
    return tuple(out)


def _list_against_list(gold: Node, answer: Node, trial: Trial) -> bool:
    g, a = gold[2], answer[2]
    first, second = _named(g), _named(a)
    if first is not None and second is not None and len(first) > 1 and len(second) > 1:
        if set(first) != set(second):
            return False
        return all(same(first[k], second[k], trial) for k in first)
    if (
        first is not None
        and len(first) > 1
        and len({k[:1] for k in first}) == len(first)
        and second is None
        and not any(i[0] == "rel" for i in a)
    ):
        return _in_order([first[k] for k in sorted(first)], a, trial)
    if (
        second is not None
        and len(second) > 1
        and len({k[:1] for k in second}) == len(second)
        and not any(i[0] == "rel" for i in g)
    ):
        return _in_order(g, [second[k] for k in sorted(second)], trial) or _in_order(
            g, list(second.values()), trial
        )
    if any(item[0] == "dots" for item in (*g, *a)):
        return _in_order(_written_out(g), _written_out(a), trial)
    g, a = _values(g), _values(a)
    if _is_condition(g) or _is_condition(a):
        if _real_sets(("list", gold[1], g), ("list", answer[1], a), trial):
            return True
        if gold[1] == "or" or answer[1] == "or":
            return False
    if trial.options.order == "kept" and gold[1] != "pm" and answer[1] != "pm":
        return _in_order(g, a, trial)
    return _unordered(list(g), list(a), trial)


def _is_condition(items: tuple[Node, ...]) -> bool:
    return all(item[0] == "rel" and {op for op, _ in item[2]} <= _ORDERED | {"in"} for item in items)


def _written_out(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """`2, ..., 7` as its six members, if the steps are whole and few; otherwise as it is."""
    places = [i for i, item in enumerate(items) if item[0] == "dots"]
    if len(places) != 1 or not 0 < places[0] < len(items) - 1:
        return items
    at = places[0]
    try:
        before = [value_of(item) for item in items[:at] if item[0] in SCALARS]
        end = value_of(items[at + 1]) if items[at + 1][0] in SCALARS else None
    except Undefined:
        return items
    if end is None or not before or None in before:
        return items
    last = before[-1]
    step = before[-1] - before[-2] if len(before) > 1 else Fraction(1)  # type: ignore[operator]
    if (
        last is None
        or step == 0
        or (end - last) / step > 1000
        or (end - last) / step < 1
        or ((end - last) / step).denominator != 1
    ):
        return items
    middle = [number(last + step * (i + 1)) for i in range(int((end - last) / step) - 1)]
    return (*items[:at], *middle, *items[at + 1 :])


def _in_order(
    gold: list[Node] | tuple[Node, ...], answer: list[Node] | tuple[Node, ...], trial: Trial
) -> bool:
    return len(gold) == len(answer) and all(same(g, a, trial) for g, a in zip(gold, answer, strict=True))


def _unordered(gold: list[Node], answer: list[Node], trial: Trial) -> bool:
    """A perfect matching. Pairs that need the child are tried after those that do not."""
    if len(gold) != len(answer) or len(gold) > 400:
        return False
    used = [False] * len(answer)
    open_pairs: list[Node] = []
    for g in gold:
        for j, a in enumerate(answer):
            if not used[j] and g == a:
                used[j] = True
                break
        else:
            open_pairs.append(g)
    gold, answer = open_pairs, [a for j, a in enumerate(answer) if not used[j]]
    if len(gold) > MOST_MATCHED:
        gold = sorted(gold, key=_place)
        answer = sorted(answer, key=_place)
        return all(same(g, a, trial) for g, a in zip(gold, answer, strict=True))
    return _matched(gold, answer, trial)


def _place(node: Node) -> tuple[float, float, str]:
    try:
        value = approximate(_plain(node), {}).value
        return (round(value.real, 9), round(value.imag, 9), "")
    except (NoValue, KeyError):
        return (0.0, 0.0, repr(node))


def _matched(gold: list[Node], answer: list[Node], trial: Trial) -> bool:
    """Equality is transitive, so the first partner will do; an unproved one is given up for a proved one."""
    left = list(answer)
    for g in gold:
        best = None
        for j, a in enumerate(left):
            mark = len(trial.pending)
            if same(g, a, trial):
                proved = len(trial.pending) == mark
                if proved or best is None:
                    best = j
                if proved:
                    break
                del trial.pending[mark:]
        if best is None:
            return False
        if not same(g, left[best], trial):
            return False
        del left[best]
    return True


def _distinct(items: tuple[Node, ...], trial: Trial) -> list[Node]:
    out: list[Node] = []
    if len(items) > 60:
        return list(dict.fromkeys(items))
    quiet = Trial(trial.options, trial.log10)
    for item in items:
        if not any(item == other or (same(other, item, quiet) and not quiet.pending) for other in out):
            out.append(item)
        quiet.pending.clear()
    return out


def _sets(gold: Node, answer: Node, trial: Trial) -> bool:
    if gold[0] == "set" and answer[0] == "set":
        first, second = _values(gold[1]), _values(answer[1])
        if any(item[0] == "dots" for item in (*first, *second)):
            return _in_order(_written_out(first), _written_out(second), trial)
        spread_first, spread_second = _spread(("set", first))[1], _spread(("set", second))[1]
        return _unordered(_distinct(spread_first, trial), _distinct(spread_second, trial), trial)
    one, other = (gold, answer) if gold[0] == "set" else (answer, gold)
    if len(one[1]) == 1 and other[0] in (*SCALARS, "tuple", "unit", "pct"):
        return same(one[1][0], other, trial) if gold[0] == "set" else same(other, one[1][0], trial)
    if other[0] == "rel" or other[0] in _SETLIKE:
        return _real_sets(gold, answer, trial)
    return False


def _real_sets(gold: Node, answer: Node, trial: Trial) -> bool:
    try:
        return same_sets(real_set(gold), real_set(answer), trial)
    except NotReal:
        pass
    finite_gold, finite_answer = _finite_union(gold), _finite_union(answer)
    if finite_gold is not None and finite_answer is not None:
        return _sets(("set", finite_gold), ("set", finite_answer), trial)
    if gold[0] == answer[0] and gold[0] in ("cup", "cap", "minus"):
        if same(gold[1], answer[1], trial) and same(gold[2], answer[2], trial):
            return True
        return gold[0] != "minus" and same(gold[1], answer[2], trial) and same(gold[2], answer[1], trial)
    if gold[0] == answer[0] == "builder":
        return gold[1:3] == answer[1:3] and same(gold[3], answer[3], trial)
    if gold[0] == "all" and answer[0] == "rel":
        return len(answer[2]) == 1 and answer[2][0][0] == "in" and bool(answer[2][0][1] == gold)
    if gold[0] == "rel" and answer[0] == "all":
        return len(gold[2]) == 1 and gold[2][0][0] == "in" and bool(gold[2][0][1] == answer)
    if gold[0] == "list" and answer[0] == "list" and all(item[0] == "rel" for item in (*gold[2], *answer[2])):
        return gold[1] == answer[1] and _unordered_conditions(gold[2], answer[2], trial)
    return bool(gold == answer) and gold[0] != "rel"


def _unordered_conditions(gold: tuple[Node, ...], answer: tuple[Node, ...], trial: Trial) -> bool:
    left = list(answer)
    for g in gold:
        for a in left:
            if _same_inequality(g, a, trial):
                left.remove(a)
                break
        else:
            return False
    return not left


def _finite_union(node: Node) -> tuple[Node, ...] | None:
    if node[0] == "set":
        items: tuple[Node, ...] = node[1]
        return items
    if node[0] == "cup":
        a, b = _finite_union(node[1]), _finite_union(node[2])
        return None if a is None or b is None else (*a, *b)
    return None


# tuples, matrices, cases


def _bracket(mark: str, is_left: bool) -> str:
    mark = {"<": "(", ">": ")"}.get(mark, mark)
    if is_left:
        return "(" if mark == "]" else mark
    return ")" if mark == "[" else mark


def _tuples(gold: Node, answer: Node, trial: Trial) -> bool:
    g, a = gold[3], answer[3]
    if len(g) != len(a):
        return False
    if len(g) == 2:
        for mark, other, is_left in ((gold[1], answer[1], True), (gold[2], answer[2], False)):
            end = g[0] if is_left else g[1]
            infinite = end in (("inf",), ("neg", ("inf",)))
            if _bracket(mark, is_left) != _bracket(other, is_left) and not infinite:
                return False
    if any(item[0] == "dots" for item in (*g, *a)):
        return _in_order(_written_out(g), _written_out(a), trial)
    if trial.options.order == "free":
        return _unordered(list(g), list(a), trial)
    return _in_order(g, a, trial)


def _is_scaled_matrix(node: Node) -> bool:
    return node[0] in ("*", "neg", "/") and contains(node, {"matrix"})


def _matrix(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """Rows of a matrix, a scalar multiple of one, or nested brackets."""
    kind = node[0]
    if kind == "matrix":
        rows: tuple[tuple[Node, ...], ...] = node[1]
        return rows
    if kind == "neg":
        inner = _matrix(node[1])
        return None if inner is None else tuple(tuple(("neg", cell) for cell in row) for row in inner)
    if kind == "/":
        inner = _matrix(node[1])
        return None if inner is None else tuple(tuple(("/", cell, node[2]) for cell in row) for row in inner)
    if kind == "*" and len(node) == 3:
        left, right = _matrix(node[1]), _matrix(node[2])
        if (left is None) == (right is None):
            return None
        scalar, inner = (node[1], right) if left is None else (node[2], left)
        return None if inner is None else tuple(tuple(mul(scalar, cell) for cell in row) for row in inner)
    if kind == "tuple":
        items: tuple[Node, ...] = node[3]
        if all(item[0] == "tuple" for item in items):
            return tuple(tuple(item[3]) for item in items)
        return tuple((item,) for item in items)
    return None


def _matrices(gold: Node, answer: Node, trial: Trial) -> bool:
    first, second = _matrix(gold), _matrix(answer)
    if first is None or second is None:
        return False
    if "tuple" in (gold[0], answer[0]) and len(second) != len(first):
        first, second = (
            (first, tuple(zip(*second, strict=False)))
            if answer[0] == "tuple"
            else (tuple(zip(*first, strict=False)), second)
        )
    return len(first) == len(second) and all(
        _in_order(g, a, trial) for g, a in zip(first, second, strict=True)
    )


def _cases(gold: Node, answer: Node, trial: Trial) -> bool:
    left = list(answer[1])
    if len(left) != len(gold[1]):
        return False
    for row in gold[1]:
        for other in left:
            if len(row) == len(other) and all(same(g, a, trial) for g, a in zip(row, other, strict=True)):
                left.remove(other)
                break
        else:
            return False
    return True


# numbers with something attached


def _infinite(node: Node) -> int:
    """1 or -1 for plus and minus infinity, else 0."""
    if node[0] == "neg":
        return -_infinite(node[1])
    return int(node[0] == "inf")


def _scalars(gold: Node, answer: Node, trial: Trial) -> bool:
    if _infinite(gold) or _infinite(answer):
        return _infinite(gold) == _infinite(answer)
    if "deg" in (gold[0], answer[0]):
        gold, answer = _undegree(gold), _undegree(answer)
    if contains(answer, {"pct", "unit"}) or contains(gold, {"pct", "unit"}):
        gold, answer = _inline(gold), _inline(answer)
    if same_scalar(gold, answer, trial):
        return True
    if trial.bare_log and not trial.log10:
        trial.log10 = True
        found = same_scalar(gold, answer, trial)
        trial.log10 = False
        if found and not trial.pending:
            return True
    return False


def _undegree(node: Node) -> Node:
    return node[1] if node[0] == "deg" else node


def _inline(node: Node) -> Node:
    if node[0] == "pct":
        return ("/", node[1], number(100))
    if node[0] == "unit":
        inner: Node = _inline(node[1])
        return inner
    if node[0] in ("n", "s", "c"):
        return node
    return tuple(
        _inline(part) if isinstance(part, tuple) and part and isinstance(part[0], str) else part
        for part in node
    )


def _measures(gold: Node, answer: Node, trial: Trial) -> bool:
    unit_g, unit_a = "", ""
    if gold[0] == "unit":
        unit_g, gold = gold[2], gold[1]
    if answer[0] == "unit":
        unit_a, answer = answer[2], answer[1]
    if gold[0] == "pct" or answer[0] == "pct":
        if trial.options.units != "ignore" and (unit_g if answer[0] == "pct" else unit_a):
            return False
        return _percentages(gold, answer, trial)
    if trial.options.units != "ignore" and not units_agree(unit_g, unit_a):
        if trial.options.units == "convert":
            factor = conversion(unit_a, unit_g)
            return factor is not None and same(gold, mul(number(factor), answer), trial)
        if {unit_g, unit_a} == {"pm", ""} or "clock" in (gold[0], answer[0]):
            return _ratios(("unit", gold, unit_g), ("unit", answer, unit_a), trial)
        return False
    if "clock" in (gold[0], answer[0]):
        return _ratios(("unit", gold, unit_g), ("unit", answer, unit_a), trial)
    if gold[0] in ("unit", "pct") or answer[0] in ("unit", "pct"):
        return same(gold, answer, trial)
    if same(gold, answer, trial):
        return True
    if unit_g != unit_a and "degree" in (unit_g, unit_a) and "" in (unit_g, unit_a):
        if unit_a == "degree" and contains(gold, {"c", "f"}):
            return gold[0] in SCALARS and answer[0] in SCALARS and same_scalar(gold, ("deg", answer), trial)
        if unit_g == "degree" and contains(answer, {"c", "f"}):
            return gold[0] in SCALARS and answer[0] in SCALARS and same_scalar(("deg", gold), answer, trial)
    return False


def _percentages(gold: Node, answer: Node, trial: Trial) -> bool:
    """A percentage against a number: its value, or the number before the sign (see the option)."""
    if gold[0] == answer[0] == "pct":
        return same(gold[1], answer[1], trial)
    mode = trial.options.percent
    has_gold_sign = gold[0] == "pct"
    inside, bare = (gold[1], answer) if has_gold_sign else (answer[1], gold)
    if bare[0] not in (*SCALARS, "unit") or inside[0] not in SCALARS:
        return False
    if mode != "sign":
        value = ("/", inside, number(100))
        if same(value, bare, trial) if has_gold_sign else same(bare, value, trial):
            return True
        if has_gold_sign and bare[0] != "unit" and same(inside, mul(number(100), bare), trial):
            return True
    if mode == "value":
        return False
    if not (same(inside, bare, trial) if has_gold_sign else same(bare, inside, trial)):
        return False
    return has_gold_sign or _at_least_one(inside)


def _at_least_one(node: Node) -> bool:
    try:
        return abs(approximate(node, {}).value) >= 1
    except (NoValue, KeyError):
        return False


def _ratios(gold: Node, answer: Node, trial: Trial) -> bool:
    half_g = half_a = ""
    if gold[0] == "unit":
        half_g, gold = gold[2], gold[1]
    if answer[0] == "unit":
        half_a, answer = answer[2], answer[1]
    halves = [next((h for h in ("am", "pm") if h in half.split()), "") for half in (half_g, half_a)]
    half_g, half_a = halves
    if gold[0] == "clock" and answer[0] == "clock":
        first, second = list(gold[1]), list(answer[1])
        if half_g in ("am", "pm") and half_a in ("am", "pm") and half_g != half_a:
            return False
        if first == second:
            return True
        if half_g == "pm" and not half_a:
            first[0] = first[0] % 12 + 12
        elif half_a == "pm" and not half_g:
            second[0] = second[0] % 12 + 12
        return first == second
    first_items, second_items = _ratio_items(gold), _ratio_items(answer, whole=gold[0] == "ratio")
    if (
        gold[0] == "clock"
        or first_items is None
        or second_items is None
        or len(first_items) != len(second_items)
    ):
        return False
    pivot, other = first_items[0], second_items[0]
    for g, a in zip(first_items[1:], second_items[1:], strict=True):
        if not same(mul(g, other), mul(a, pivot), trial):
            return False
    return any(symbols(x) or value_of(x) != 0 for x in second_items) and not all(
        _is_zero(x) for x in (other, *second_items[1:])
    )


def _is_zero(node: Node) -> bool:
    try:
        return value_of(node) == 0
    except Undefined:
        return True


def _ratio_items(node: Node, whole: bool = False) -> tuple[Node, ...] | None:
    if node[0] == "ratio":
        items: tuple[Node, ...] = node[1]
        return items
    if node[0] == "clock":
        return tuple(number(part) for part in node[1])
    if node[0] in SCALARS and (whole or not (node[0] == "n" and node[1].denominator == 1)):
        return (node, number(1))
    return None


def _bases(gold: Node, answer: Node) -> bool:
    if gold[0] == "base":
        if answer[0] == "base":
            return gold[2] == answer[2] and _digits(gold) == _digits(answer)
        return answer[0] == "n" and answer[1].denominator == 1 and _digits(gold) == str(answer[1].numerator)
    try:
        value = value_of(gold) if gold[0] in SCALARS else None
    except Undefined:
        value = None
    try:
        return value is not None and int(answer[1], answer[2]) == value and answer[2] == 10
    except ValueError:
        return False


def _digits(node: Node) -> str:
    return str(node[1]).upper().lstrip("0") or "0"
