"""Asserts that are plain calls become calls: `assert f(1, [2]) == 3` needs no test process, the host compares.

Most of MBPP and HumanEval is of this kind. What is not recognised with certainty is left to the test process.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Claim = Literal["equal", "is", "true", "false", "near"]
MOST_BITS = 4096


@dataclass(frozen=True, slots=True)
class PlainCall:
    """One call with what must hold of its result; `test` is the number of the test it belongs to."""

    test: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    claim: Claim
    expected: Any
    tolerance: float = 0.0
    is_strict: bool = True  # `near`: < or <=


class NotPlainCall(ValueError):
    """A test that is more than calls and literals."""


def plain_calls(tests: list[str], entry: str) -> tuple[PlainCall, ...] | None:
    """The calls that these tests are, None if they are more than that."""
    try:
        calls = [call for i, test in enumerate(tests) for call in _test_calls(i, ast.parse(test).body, entry)]
    except (NotPlainCall, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    covered = {call.test for call in calls}
    return tuple(calls) if covered == set(range(len(tests))) else None


def _test_calls(number: int, body: list[ast.stmt], entry: str) -> list[PlainCall]:
    """Asserts at the top, or one `def check(candidate)` with nothing but asserts (and HumanEval's METADATA)."""
    checks = [node for node in body if isinstance(node, ast.FunctionDef)]
    if checks:
        others = [n for n in body if n is not checks[0] and not _is_metadata(n) and not _is_start(n, entry)]
        check = checks[0]
        if len(checks) > 1 or others or check.name != "check" or check.decorator_list:
            raise NotPlainCall
        if [a.arg for a in check.args.args] != ["candidate"] or check.args.defaults:
            raise NotPlainCall
        return [c for node in check.body for c in _statement(number, node, ("candidate", entry))]
    return [c for node in body for c in _statement(number, node, (entry,))]


def _is_metadata(node: ast.stmt) -> bool:
    return (isinstance(node, ast.Assign) and _is_named(node.targets[0], "METADATA")) or _says_nothing(node)


def _is_start(node: ast.stmt, entry: str) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _is_named(node.value.func, "check")
        and len(node.value.args) == 1
        and _is_named(node.value.args[0], entry)
        and not node.value.keywords
    )


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _statement(number: int, node: ast.stmt, names: tuple[str, ...]) -> list[PlainCall]:
    if _says_nothing(node):
        return []
    if not isinstance(node, ast.Assert):
        raise NotPlainCall
    test = node.test
    if isinstance(test, ast.Constant) and test.value is True:
        return []
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [_claim(number, part, names) for part in test.values]
    return [_claim(number, test, names)]


def _claim(number: int, test: ast.expr, names: tuple[str, ...]) -> PlainCall:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return PlainCall(number, *_call(test.operand, names), "false", None)
    if not isinstance(test, ast.Compare):
        return PlainCall(number, *_call(test, names), "true", None)
    if len(test.ops) != 1:
        raise NotPlainCall
    left, op, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(op, ast.Lt | ast.LtE):
        return _near(number, left, isinstance(op, ast.Lt), right, names)
    if isinstance(op, ast.Eq):
        if not _is_call(left, names):
            left, right = right, left
        return PlainCall(number, *_call(left, names), "equal", literal(right))
    if isinstance(op, ast.Is):
        value = literal(right)
        if value is None or value is True or value is False:
            return PlainCall(number, *_call(left, names), "is", value)
    raise NotPlainCall


def _near(number: int, left: ast.expr, is_strict: bool, right: ast.expr, names: tuple[str, ...]) -> PlainCall:
    """`abs(f(…) - 1.5) < 1e-6`."""
    inner = left.args[0] if isinstance(left, ast.Call) and _is_named(left.func, "abs") and len(left.args) == 1 else None
    if not (isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub)):
        raise NotPlainCall
    first, second = inner.left, inner.right
    if not _is_call(first, names):
        first, second = second, first
    value, tolerance = literal(second), literal(right)
    if type(value) not in (int, float) or type(tolerance) not in (int, float):
        raise NotPlainCall
    return PlainCall(number, *_call(first, names), "near", value, tolerance, is_strict)


def _is_call(node: ast.expr, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _call(node: ast.expr, names: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(node, ast.Call) or not _is_call(node, names):
        raise NotPlainCall
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        raise NotPlainCall
    return tuple(literal(a) for a in node.args), {str(k.arg): literal(k.value) for k in node.keywords}


def literal(node: ast.expr) -> Any:
    """The value of a literal, of arithmetic on number literals, of texts and lists put together, of `float("inf")`, `set()` and the like.

    Raises:
        NotPlain: it is more than that.
    """
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    if isinstance(node, ast.List):
        return [literal(e) for e in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(literal(e) for e in node.elts)
    if isinstance(node, ast.Dict) and all(k is not None for k in node.keys):
        return {literal(k): literal(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        if type(value) in (int, float):
            return -value
    if isinstance(node, ast.BinOp):
        return _arithmetic(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name, args = node.func.id, node.args
        if name in ("set", "list", "dict", "tuple", "frozenset") and not args:
            return {"set": set, "list": list, "dict": dict, "tuple": tuple, "frozenset": frozenset}[name]()
        if name == "float" and len(args) == 1 and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str):
            try:
                return float(args[0].value)
            except ValueError as err:
                raise NotPlainCall from err
    raise NotPlainCall


def _arithmetic(node: ast.BinOp) -> Any:
    left, right = literal(node.left), literal(node.right)
    if type(left) is type(right) and type(left) in (str, bytes, list, tuple) and isinstance(node.op, ast.Add):
        return left + right
    if type(left) not in (int, float) or type(right) not in (int, float):
        raise NotPlainCall
    try:
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        small = type(left) is int and type(right) is int and right >= 0 and left.bit_length() * right <= MOST_BITS
        if isinstance(node.op, ast.Pow) and small:
            return left**right
    except ArithmeticError as err:
        raise NotPlainCall from err
    raise NotPlainCall


def called_name(tests: Sequence[str]) -> str | None:
    """The function under test: the first called name that the tests do not bind themselves and that is no builtin or module."""
    trees = [ast.parse(test) for test in tests]
    bound, imported = set(dir(builtins)) | set(sys.stdlib_module_names), set[str]()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "solution":
                imported |= {a.name for a in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.alias):
                bound.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
    calls = [
        n.func.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    own = next((name for name in calls if name in imported), None)
    own = own or next((name for name in calls if name not in bound and name not in HELPERS), None)
    # a function may well be called `sum`: then the assert is about what it calls first
    return own or next((name for tree in trees for name in _asserted(tree)), None)


HELPERS = ("isclose", "deepcopy", "Counter", "approx", "allclose")


def _asserted(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        sides = [node.test] if isinstance(node, ast.Assert) else []
        if sides and isinstance(sides[0], ast.Compare):
            sides = [sides[0].left, *sides[0].comparators]
        for side in sides:
            if isinstance(side, ast.Call) and isinstance(side.func, ast.Name):
                yield side.func.id
