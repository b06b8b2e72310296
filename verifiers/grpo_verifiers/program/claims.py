"""What a literal test claims of a call's result, and whether it holds of what the solution handed out.

A claim looks at the result through views (`len`, `sorted`, `abs(… - 3)`), then compares once. Both work on the tagged
value, so nothing of the solution's is built here but numbers, texts and lists of them, at a cost that the message's size
bounds. What a view cannot see (a generator, a set that would have to be ordered) is `Undecided`: the test process decides.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.program.compare import CompareRule, number, same
from grpo_verifiers.sandbox.inside.wall import values as wire

EXACT = CompareRule(exact=True)
MOST_ITEMS = 100_000


class Undecided(Exception):
    """The tagged value does not show whether the claim holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One comparison: `op` of the result, seen through the views one after another, with the expected value.

    `relative` and `absolute` are the tolerances of `close`, `places` the digits of `almost`.
    """

    op: str
    expected: Any = None
    views: tuple[tuple[str, Any], ...] = ()
    relative: float = 0.0
    absolute: float = 0.0


def holds(claim: Claim, got: object) -> bool:
    """Whether a claim holds of the tagged value `got`.

    Raises:
        Undecided: the value does not show it.
        ValueError, TypeError, LookupError, ArithmeticError: the test would raise, or the value is not honest.
    """
    for name, body in claim.views:
        got = VIEWS[name](got, body)
    if type(got) is dict and "a" in got:
        raise Undecided  # an array compares item by item
    return bool(OPS[claim.op](claim, got))


def of_object(claim: Claim, is_true: object) -> bool:
    """Whether a claim holds of an object that is no plain value, of which only its truth was handed out.

    Such an object equals no literal: its own operators do not decide here.

    Raises:
        Undecided: it may be a sequence, a view of a dict or a number of another kind.
    """
    if claim.views:
        raise Undecided
    if claim.op in ("true", "false"):
        return is_true is (claim.op == "true")
    if claim.op not in ("equal", "is", "is_not"):
        raise Undecided
    return claim.op == "is_not"


def items(got: object) -> list[Any]:
    """The tagged values that iterating over one gives, in its order.

    Raises:
        TypeError: it is a number, a truth value or None.
        Undecided: that cannot be told from its tag.
    """
    if type(got) is list:
        return got
    if type(got) is str:
        return list(got)
    if type(got) is not dict or len(got) != 1:
        raise TypeError("not iterable")
    ((tag, body),) = got.items()
    if tag in ("t", "s", "f") and type(body) is list:
        return body
    if tag in ("n", "D", "Q") and type(body) is list:
        return body[2] if tag == "n" else body[0] if tag == "Q" else [pair[0] for pair in body[1]]
    if tag == "d" and type(body) is list:
        return [pair[0] for pair in body]
    if tag in ("b", "B"):
        return list(bytes.fromhex(body))
    if tag in ("i", "c", "q", "m"):
        raise TypeError("not iterable")
    if tag == "r" and len(made := range(*body)) <= MOST_ITEMS:
        return list(made)
    raise Undecided


def plain(got: object) -> Any:
    """The number, the text, or the list or tuple of such.

    Raises:
        Undecided: it is something else.
    """
    if got is None or type(got) is str:
        return got
    if type(got) is list:
        return [plain(part) for part in got]
    if type(got) is dict and len(got) == 1 and next(iter(got)) in ("t", "n"):
        return tuple(plain(part) for part in items(got))
    value = number(got)
    if value is None:
        raise Undecided
    return value


def truth(got: object) -> bool:
    """The truth of a tagged value, without building it."""
    if type(got) is dict and len(got) == 1:
        ((tag, body),) = got.items()
        if tag == "u":
            return truth(body[1])
        if tag in ("t", "d", "s", "f", "b", "B"):
            return bool(body)
        return bool(wire.decode(got)) if tag in ("i", "c", "r", "q", "m", "ns", "D", "Q", "n", "Ts") else True
    return bool(got)


def _number(got: object) -> Any:
    value = number(got)
    if value is None:
        raise TypeError("no number")
    return value


def _unique(got: object, _: object) -> Any:
    """The set of the items, where equal ones have equal texts: whole numbers, texts and tuples of these."""
    texts: dict[str, Any] = {}
    for item in items(got):
        waiting = [item]
        while waiting:
            part = waiting.pop()
            if type(part) is dict and len(part) == 1 and "t" in part:
                waiting += part["t"]
            elif type(part) not in (int, str):
                raise Undecided
        texts[json.dumps(item)] = item
    return {"s": list(texts.values())}


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "len": lambda got, _: len(items(got)),
    # what Python orders only in part is left to the test process
    "sorted": lambda got, _: wire.encode(sorted(plain(item) for item in items(got))),
    "set": _unique,
    "abs": lambda got, _: wire.encode(abs(_number(got))),
    "round": lambda got, digits: wire.encode(round(_number(got), digits)),
    "minus": lambda got, other: wire.encode(_number(got) - other),
}


def _is_in(claim: Claim, got: object) -> bool:
    expected = claim.expected
    if type(expected) is str:
        if type(got) is not str:
            raise TypeError("`in` of a text")
        return got in expected
    return any(same(one, got, EXACT) for one in expected)


def _contains(claim: Claim, got: object) -> bool:
    if type(got) is str:
        if type(claim.expected) is not str:
            raise TypeError("`in` of a text")
        return claim.expected in got
    return any(same(claim.expected, item, EXACT) for item in items(got))


def _close(claim: Claim, got: object) -> bool:
    """`math.isclose` of one number, `pytest.approx` of one or of a list of them."""
    if isinstance(claim.expected, list | tuple):
        found = items(got)
        return len(found) == len(claim.expected) and all(
            _close(Claim("close", e, (), claim.relative, claim.absolute), g)
            for e, g in zip(claim.expected, found, strict=True)
        )
    value, expected = _number(got), claim.expected
    if value == expected:
        return True
    if isinstance(value, complex) or not (math.isfinite(value) and math.isfinite(expected)):
        return False
    size = abs(expected) if claim.op == "close" else max(abs(expected), abs(float(value)))
    return bool(abs(float(value) - expected) <= max(claim.relative * size, claim.absolute))


def _evalplus(claim: Claim, got: object) -> bool:
    """EvalPlus's comparison: exact, or decimals within `absolute`, which is 1e-6 for decimals where the row gives none."""
    expected = claim.expected
    parts = expected if isinstance(expected, list | tuple) else [expected]
    is_float = bool(parts) and all(isinstance(part, float) for part in parts)
    absolute = claim.absolute or (1e-6 if is_float else 0.0)
    if same(expected, got, EXACT):
        return True
    if not absolute or not parts:
        return False
    if not all(isinstance(p, int | float) for p in parts):
        raise Undecided
    return _close(Claim("close", expected, (), 1e-7, absolute), got)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Claim, Any], bool]:
    return lambda claim, got: compare(plain(got), claim.expected)


OPS: dict[str, Callable[[Claim, Any], bool]] = {
    "equal": lambda claim, got: same(claim.expected, got, EXACT),
    "unequal": lambda claim, got: not same(claim.expected, got, EXACT),
    "is": lambda claim, got: type(got) in (bool, type(None)) and got is claim.expected,
    "is_not": lambda claim, got: not (type(got) in (bool, type(None)) and got is claim.expected),
    "true": lambda _, got: truth(got),
    "false": lambda _, got: not truth(got),
    "less": _ordered(operator.lt),
    "at_most": _ordered(operator.le),
    "more": _ordered(operator.gt),
    "at_least": _ordered(operator.ge),
    "in": _is_in,
    "not_in": lambda claim, got: not _is_in(claim, got),
    "contains": _contains,
    "lacks": lambda claim, got: not _contains(claim, got),
    "close": _close,
    "isclose": _close,
    "almost": lambda claim, got: (
        (value := _number(got)) == claim.expected or round(abs(value - claim.expected), int(claim.absolute)) == 0
    ),
    "evalplus": _evalplus,
}
