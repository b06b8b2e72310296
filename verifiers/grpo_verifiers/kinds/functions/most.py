"""The most that a function can return, read from its source and nothing run: where every number of its returns stands there.

Anything else, a call or a sum in a loop, leaves it unknown. A bound that is known holds for every completion.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

Ends = tuple[float, float]
"""Least and greatest value."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Unknown(Exception):
    """What an expression comes to does not stand in the source."""


def most_of(file: str, line: int) -> float | None:
    """The greatest number that the function at this line returns, or puts into the list that it returns; None where that cannot
    be told. True is 1."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    found = [n for n in ast.walk(tree) if isinstance(n, Function) and n.lineno == line]
    # a decorator may change what comes back, and then stands on the line that the function is known by
    if len(found) != 1 or found[0].decorator_list:
        return None
    try:
        returned = [n.value for n in _own(found[0]) if isinstance(n, ast.Return)]
        if not returned or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own(found[0])):
            return None
        return max(_Reading(found[0]).ends(value)[1] for value in returned if value is not None)
    except (_Unknown, ValueError, RecursionError):
        return None


def _own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


class _Reading:
    """The ends of expressions inside one function."""

    def __init__(self, function: Function) -> None:
        self.nodes = list(_own(function))
        self.open: set[str] = set()
        named = function.args
        given = [*named.posonlyargs, *named.args, *named.kwonlyargs, named.vararg, named.kwarg]
        self.given = {one.arg for one in given if one is not None}
        # names that are set otherwise than by an assignment
        others = (ast.Nonlocal, ast.Global, ast.Match, ast.Import, ast.ImportFrom)
        self.is_odd = any(isinstance(node, others) for node in ast.walk(function))

    def ends(self, node: ast.expr) -> Ends:
        """Of a number, or of the numbers of a list."""
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return float(number), float(number)
            case ast.Constant(value=None) | ast.List(elts=[]):
                return float("inf"), float("-inf")  # no number
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return 0.0, 1.0
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                low, high = self.ends(inner)
                return -high, -low
            case ast.IfExp(body=one, orelse=other):
                return self._any([one, other])
            case ast.List(elts=some) | ast.Tuple(elts=some):
                return self._any(some)
            case ast.ListComp(elt=inner) | ast.Await(value=inner):
                return self.ends(inner)
            case ast.Dict(keys=keys, values=values):
                return self._of_dict(keys, values)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
                return self._of_sum(op, self.ends(left), self.ends(right))
            case ast.Call(func=ast.Name(id="float" | "int"), args=[inner], keywords=[]):
                return self.ends(inner)
            case ast.Call(func=ast.Name(id="bool"), args=[_], keywords=[]):
                return 0.0, 1.0
            case ast.Name(id=name):
                return self._of_name(name)
        raise _Unknown

    def _any(self, nodes: list[ast.expr]) -> Ends:
        found = [self.ends(one) for one in nodes]
        return min(low for low, _ in found), max(high for _, high in found)

    def _of_dict(self, keys: list[ast.expr | None], values: list[ast.expr]) -> Ends:
        """Of `{"score": …}`; one that says the outcome itself may call anything right."""
        named = {
            key.value: value
            for key, value in zip(keys, values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        if len(named) < len(keys) or "outcome" in named or "score" not in named:
            raise _Unknown
        return self.ends(named["score"])

    @staticmethod
    def _of_sum(op: ast.operator, left: Ends, right: Ends) -> Ends:
        if isinstance(op, ast.Add):
            return left[0] + right[0], left[1] + right[1]
        if isinstance(op, ast.Sub):
            return left[0] - right[1], left[1] - right[0]
        products = [a * b for a in left for b in right]
        return min(products), max(products)

    def _of_name(self, name: str) -> Ends:
        """Of all that a local name is ever set to, or that is appended to it; unknown where it is changed otherwise."""
        values: list[ast.expr] = []
        stores = loads = appends = returns = 0
        for node in self.nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=to)], value=value) if to == name:
                    values.append(value)
                case ast.AnnAssign(target=ast.Name(id=to), value=ast.expr() as value) if to == name:
                    values.append(value)
                case ast.Call(func=ast.Attribute(ast.Name(id=to), "append"), args=[value]) if to == name:
                    values.append(value)
                    appends += 1
                case ast.Return(value=ast.Name(id=to)) if to == name:
                    returns += 1
                case ast.Name(id=to, ctx=ctx) if to == name:
                    loads, stores = (
                        loads + isinstance(ctx, ast.Load),
                        stores + (not isinstance(ctx, ast.Load)),
                    )
        is_list = appends or any(isinstance(one, ast.List | ast.ListComp) for one in values)
        # set by a loop, a sum or an unpacking; or a list that others may change
        is_changed = stores != len(values) - appends or (is_list and loads != appends + returns)
        if name in self.open | self.given or not values or is_changed or self.is_odd:
            raise _Unknown
        self.open.add(name)
        found = self._any(values)
        self.open.discard(name)
        return found
