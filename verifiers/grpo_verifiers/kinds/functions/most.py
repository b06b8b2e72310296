"""The most that a function can return, read from its source without running it."""

from __future__ import annotations

import ast
import operator
from collections import Counter, defaultdict
from pathlib import Path

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_ODD = (ast.Nonlocal, ast.Global, ast.Match, ast.Import, ast.ImportFrom)  # set a name without an assignment


def most_of(file: str, line: int) -> float | None:
    """The greatest number that the function at this line returns, or puts into the list that it returns; None where its source
    does not bound every return. True is 1."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        found = [n for n in ast.walk(tree) if isinstance(n, _Function) and n.lineno == line]
        # a decorator may change what comes back, and then stands on the line that the function is known by
        return _most(found[0]) if len(found) == 1 and not found[0].decorator_list else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _most(function: _Function) -> float:
    """As `most_of`; ValueError where it is not known."""
    values: dict[str, list[ast.expr]] = defaultdict(
        list
    )  # of each name: all that it is set to, or that is appended
    returned, uses = (
        list[ast.expr](),
        Counter[tuple[str, type]](),
    )  # uses of a name that could change it unseen
    waiting: list[ast.AST] = list(function.body)
    while waiting:  # the nodes of this function, without those of functions inside it
        match node := waiting.pop():
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(
                ast.Name(id=name), _, ast.expr() as value
            ):
                values[name].append(value)
                uses[name, ast.Store] -= 1
            case ast.Call(func=ast.Attribute(ast.Name(id=name), "append"), args=[value]):
                values[name] += [value, ast.List([value])]
                uses[name, ast.Load] -= 1
            case ast.Return(value=ast.expr() as value):
                returned.append(value)
                uses[ast.unparse(value), ast.Load] -= 1
            case ast.Name(id=name, ctx=ctx):
                uses[name, type(ctx)] += 1
            case ast.Yield() | ast.YieldFrom():
                raise ValueError("a generator")
        if not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    unknown = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for name, set_to in values.items():
        is_list = any(isinstance(one, ast.List | ast.ListComp) for one in set_to)
        if uses[name, ast.Store] or uses[name, ast.Del] or (is_list and uses[name, ast.Load]):
            unknown.add(name)
    if any(isinstance(node, _ODD) for node in ast.walk(function)):
        unknown |= values.keys()

    def ends(*nodes: ast.expr) -> set[float]:
        """The least and the greatest of the numbers that these can be, or hold."""
        found = set[float]()
        for node in nodes:
            match node:
                case ast.Constant(value=bool() | int() | float() as number):
                    found.add(float(number))
                case ast.Constant(value=None):
                    pass
                case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(ast.Name(id="bool"), [_], []):
                    found |= {0.0, 1.0}
                case ast.UnaryOp(op=ast.USub(), operand=inner):
                    found |= {-end for end in ends(inner)}
                case (
                    ast.ListComp(elt=inner)
                    | ast.Await(inner)
                    | ast.Call(ast.Name(id="float" | "int"), [inner], [])
                ):
                    found |= ends(inner)
                case ast.IfExp(body=one, orelse=other):
                    found |= ends(one, other)
                case ast.List(elts=some) | ast.Tuple(elts=some):
                    found |= ends(*some)
                case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                    found |= {_ARITHMETIC[type(op)](a, b) for a in ends(left) for b in ends(right)}
                case ast.Dict(keys=keys, values=parts):  # one with an `outcome` may call anything right
                    named = {
                        k.value: part
                        for k, part in zip(keys, parts, strict=True)
                        if isinstance(k, ast.Constant)
                    }
                    if len(named) < len(keys) or "outcome" in named or "score" not in named:
                        raise ValueError("a dict that is not understood")
                    found |= ends(named["score"])
                case ast.Name(id=name) if name in values and name not in unknown:
                    unknown.add(name)  # while its own values are read
                    found |= ends(*values[name])
                    unknown.discard(name)
                case _:
                    raise ValueError("an expression that is not understood")
        return {min(found), max(found)} if found else found

    return max(ends(*returned))
