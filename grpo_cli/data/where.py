"""Selects rows by an expression on their columns: `level >= 3 and source in ['amc', 'aime']`. It is parsed, never
executed.

Allowed are columns by name (`meta.level`, `choices[0]`, `column('a name with blanks')`), numbers, quoted texts, lists,
`true`, `false`, `null`, comparisons, `in`, `and`, `or`, `not`, + - * /, `len(x)` and `lower(x)`. `<` or `>` with null
is false; between a text and a number it is an error of the row, not false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_cli.data.template import FillError, TemplateError, look_up

MOST_CHARS = 2000
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SAME: dict[type[ast.cmpop], bool] = {ast.Eq: True, ast.Is: True, ast.NotEq: False, ast.IsNot: False}
_SUMS: dict[type[ast.operator], Callable[[Any, Any], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CALLS = ("len", "lower", "column")


@dataclass(frozen=True, slots=True)
class Where:
    """A read expression."""

    source: str
    tree: ast.expr

    def keeps(self, fields: Mapping[str, Any]) -> bool:
        """Whether the row stays.

        Raises:
            FillError: a missing column, or values that cannot be compared.
        """
        return _claim(self.tree, fields)

    def columns(self) -> list[str]:
        """The columns that the expression names, in order, without repetition."""
        return list(dict.fromkeys(path for node in ast.walk(self.tree) if (path := _path(node))))


def parse_where(source: str) -> Where:
    """Read an expression.

    Raises:
        TemplateError: the text is no expression, or holds something that is not allowed.
    """
    text = " ".join(source.split("\n")).strip()
    if len(text) > MOST_CHARS:
        raise TemplateError(f"longer than {MOST_CHARS} characters", 0)
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as err:
        # operators of other languages are a common mistake, and Python's message does not name the right word
        hints = {"&&": "`and`", "||": "`or`", "!": "`not`", "=": "`==`"}
        found = next((f"; say {word}" for sign, word in hints.items() if sign in text), "")
        message = f"no expression: {(err.msg or 'cannot be read').lower()}{found}"
        raise TemplateError(message, min(max((err.offset or 1) - 1, 0), len(source))) from None
    except (ValueError, RecursionError, MemoryError):
        raise TemplateError("cannot be read: nested too deeply, or NUL bytes", 0) from None
    _allow(tree)
    return Where(source, tree)


def _allow(node: ast.expr) -> None:
    """Refuse every kind of node but those that `_value` and `_claim` read."""
    # bytes, complex numbers and `...` are Python constants too, but never a value of a row
    is_plain = isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int | float))
    if isinstance(node, ast.Name) or is_plain or _path(node):
        return
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _CALLS or node.keywords or len(node.args) != 1:
            raise TemplateError(f"calls {', '.join(f'`{one}(x)`' for one in _CALLS)} only", node.col_offset)
    elif isinstance(node, ast.BinOp) and type(node.op) not in _SUMS:
        raise TemplateError("of signs between numbers only + - * / are known", node.col_offset)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not | ast.USub):
        raise TemplateError("of signs before a value only `not` and - are known", node.col_offset)
    elif not isinstance(node, ast.BoolOp | ast.UnaryOp | ast.BinOp | ast.Compare | ast.List | ast.Tuple | ast.Set):
        raise TemplateError("an expression is made of columns, numbers, texts, lists and comparisons", node.col_offset)
    inner = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in inner:
        if isinstance(child, ast.expr):
            _allow(child)


def _path(node: ast.AST) -> str:
    """The column path that a node stands for: `a.b`, `a[0]`, `a['b']`; empty if it is none."""
    if isinstance(node, ast.Name):
        return "" if node.id.lower() in _WORDS or node.id in _CALLS else node.id
    if isinstance(node, ast.Attribute):
        outer = _path(node.value)
        return outer and f"{outer}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        outer, key = _path(node.value), node.slice.value
        return f"{outer}.{key}" if outer and isinstance(key, str | int) else ""
    return ""


def _claim(node: ast.expr, fields: Mapping[str, Any]) -> bool:
    """A node that is true or false."""
    if isinstance(node, ast.BoolOp):
        claims = (_claim(one, fields) for one in node.values)
        return all(claims) if isinstance(node.op, ast.And) else any(claims)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _claim(node.operand, fields)
    if isinstance(node, ast.Compare):
        sides = [_value(one, fields) for one in (node.left, *node.comparators)]
        return all(_holds(sign, left, right) for sign, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True))
    value = _value(node, fields)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise FillError(f"`{ast.unparse(node)}` is {_shown(value)}, not true or false: compare it with something")


def _holds(sign: ast.cmpop, left: object, right: object) -> bool:
    if type(sign) in _SAME:
        return (left == right) is _SAME[type(sign)]
    if isinstance(sign, ast.In | ast.NotIn):
        if isinstance(right, str) and not isinstance(left, str):
            raise FillError(f"{_shown(left)} is no text to look for in {_shown(right)}")
        if not (right is None or isinstance(right, str | list | dict)):
            raise FillError(f"{_shown(right)} is no text, list or object to look in")
        return (right is not None and left in right) is isinstance(sign, ast.In)
    if left is None or right is None:
        return False
    if isinstance(left, str) is not isinstance(right, str) or not all(
        isinstance(side, str | int | float) for side in (left, right)
    ):
        raise FillError(f"{_shown(left)} and {_shown(right)} have no order")
    return _ORDER[type(sign)](left, right)


def _value(node: ast.expr, fields: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_value(one, fields) for one in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name, value = node.func.id, _value(node.args[0], fields)
        if name == "column":
            return look_up(fields, str(value))
        if name == "lower" and isinstance(value, str):
            return value.lower()
        if name == "len" and isinstance(value, str | list | dict):
            return len(value)
        if value is None:
            return None
        raise FillError(f"`{name}` does not apply to {_shown(value)}")
    if isinstance(node, ast.BinOp | ast.UnaryOp) and not isinstance(getattr(node, "op", None), ast.Not):
        return _sum(node, fields)
    if path := _path(node):
        return look_up(fields, path)
    if isinstance(node, ast.Name):
        return _WORDS[node.id.lower()] if node.id.lower() in _WORDS else look_up(fields, node.id)
    return _claim(node, fields)


def _sum(node: ast.BinOp | ast.UnaryOp, fields: Mapping[str, Any]) -> float | None:
    sides = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    values = [_value(one, fields) for one in sides]
    if any(value is None for value in values):
        return None
    wrong = next((v for v in values if isinstance(v, bool) or not isinstance(v, int | float)), None)
    if wrong is not None:
        raise FillError(f"{_shown(wrong)} is no number to reckon with")
    try:
        return -values[0] if isinstance(node, ast.UnaryOp) else _SUMS[type(node.op)](*values)
    except (ZeroDivisionError, OverflowError) as err:
        raise FillError(f"`{ast.unparse(node)}`: {err}") from err


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
