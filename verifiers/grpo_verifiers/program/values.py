"""Values of expressions in test programs, computed without running anything: literals, names, and a closed list of operations.

Every operation is a pure one on plain values whose size is bounded before it is done. What has been handed to the solution
(`given`) may have been changed by it and is not read again.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MOST_BITS = 4096
MOST_ITEMS = 100_000
COMPARABLE = (bool, int, float, complex, str, bytes, bytearray, type(None))
CONTAINERS = (list, tuple, set, frozenset)
CONSTANTS = {
    **{f"math.{name}": getattr(math, name) for name in ("inf", "nan", "pi", "e", "tau")},
    "numpy.inf": math.inf,
    "numpy.nan": math.nan,
    "numpy.pi": math.pi,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]]
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]]
BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
BINARY |= {ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}


class NotLiteral(ValueError):
    """A test that is more than calls and literals."""


class Lazy(list[Any]):
    """What in Python is an iterator or a view of a dict: good for one loop or one builtin, no value by itself."""


def mutables(value: object) -> Iterator[Any]:
    """The lists, dicts, sets and bytearrays inside a value, itself included."""
    if isinstance(value, list | dict | set | bytearray):
        yield value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, CONTAINERS):
        for part in value:
            if type(part) not in COMPARABLE:
                yield from mutables(part)


def check_types(value: object, scalars: tuple[type, ...]) -> None:
    """Raise NotLiteral if a value is of other types than these and plain containers of them."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if type(part) is dict:
            waiting += [*part, *part.values()]
        elif isinstance(part, CONTAINERS) and type(part) is not Lazy:
            waiting += part
        elif type(part) not in scalars:
            raise NotLiteral


class Values:
    """The names of a test program with their values (`known`), or where they were imported from (`origins`)."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.given: dict[int, Any] = {}
        self.steps = 0

    def bind(self, name: str, value: object) -> None:
        """Bind a name to a value; the names of the operations keep their meaning."""
        if name in RESERVED or type(value) is Lazy:
            raise NotLiteral
        self.origins.pop(name, None)
        self.known[name] = value

    def bind_origin(self, name: str, origin: str) -> None:
        """Note where an imported name is from."""
        if name in self.known or name in RESERVED:
            raise NotLiteral
        self.origins[name] = origin

    def bind_target(self, target: ast.expr, value: object) -> None:
        """Bind a name, an attribute of `self`, or several names to the parts of a value."""
        if isinstance(target, ast.Tuple | ast.List):
            if not isinstance(value, list | tuple) or len(value) != len(target.elts):
                raise NotLiteral
            for part, item in zip(target.elts, value, strict=True):
                self.bind_target(part, item)
        elif isinstance(target, ast.Name) or (
            isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
        ):
            self.bind(ast.unparse(target), value)
        else:
            raise NotLiteral

    def origin(self, node: ast.expr) -> str:
        """The dotted name behind a name or attribute, through imports; empty where it is something else or a value."""
        if isinstance(node, ast.Attribute):
            owner = self.origin(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if not isinstance(node, ast.Name) or node.id in self.known:
            return ""
        return self.origins.get(node.id, node.id)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression.

        Raises:
            NotLiteral: it is more than a literal, a known name or one of the operations, or larger than is computed here.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List):
            return self.items(node.elts)
        if isinstance(node, ast.Tuple):
            return tuple(self.items(node.elts))
        if isinstance(node, ast.Set):
            return set(self.items(node.elts))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {self.value(k) if k is not None else _refuse(): self.value(v) for k, v in pairs}
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            return UNARY[type(node.op)](self.number(node.operand))
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Subscript):
            return self.value(node.value)[self.value(node.slice)]
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp) and len(node.generators) == 1:
            found = list(self.comprehended(node.generators[0], node.elt))
            kinds = {ast.ListComp: list, ast.SetComp: set, ast.GeneratorExp: Lazy}
            return kinds[type(node)](found)
        if isinstance(node, ast.Call):
            return self.operation(node)
        return self.named(node)

    def named(self, node: ast.expr) -> Any:
        """The value of a name, an attribute of `self` or a constant of a module."""
        name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if name in self.known:
            value = self.known[name]
            if any(id(part) in self.given for part in mutables(value)):
                raise NotLiteral
            return value
        origin = self.origin(node)
        if origin not in CONSTANTS:
            raise NotLiteral
        return CONSTANTS[origin]

    def number(self, node: ast.expr) -> Any:
        """The value of an expression that is a number."""
        value = self.value(node)
        if type(value) not in (int, float, complex):
            raise NotLiteral
        return value

    def comparable(self, node: ast.expr) -> Any:
        """The value of an expression, of the types alone that a result is compared with."""
        value = self.value(node)
        check_types(value, COMPARABLE)
        return value

    def items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """The values of expressions, those of a starred one in its place."""
        found = list[Any]()
        for node in nodes:
            if isinstance(node, ast.Starred):
                part = self.value(node.value)
                found += part if not isinstance(part, set | frozenset) else _refuse()  # whose order is chance
            else:
                found.append(self.value(node))
        return found

    def arithmetic(self, op: ast.operator, left: Any, right: Any) -> Any:
        """The result of an operator on numbers, or on texts and lists that are put together or repeated."""
        kinds = {type(left), type(right)}
        if kinds <= {int, float, complex, bool}:
            if isinstance(op, ast.Pow):
                is_small = type(left) is int and type(right) is int and 0 <= right * left.bit_length() <= MOST_BITS
                if not is_small and kinds != {float} and not (float in kinds and -64 <= right <= 64):
                    raise NotLiteral
                return left**right
            return BINARY[type(op)](left, right)
        sequence, times = (left, right) if type(right) is int else (right, left)
        if isinstance(op, ast.Mult) and type(sequence) in (str, bytes, list, tuple) and type(times) is int:
            self.spend(len(sequence) * max(times, 0))
            return sequence * times
        if isinstance(op, ast.Add) and len(kinds) == 1 and type(left) in (str, bytes, list, tuple):
            self.spend(len(left) + len(right))
            return left + right
        raise NotLiteral

    def comprehended(self, loop: ast.comprehension, element: ast.expr) -> Iterator[Any]:
        """The elements of a comprehension over a literal, without conditions."""
        if loop.ifs or loop.is_async:
            raise NotLiteral
        known, items = dict(self.known), self.value(loop.iter)
        if isinstance(items, set | frozenset):  # whose order is chance
            raise NotLiteral
        for item in items:
            self.spend(1)
            self.bind_target(loop.target, item)
            yield self.value(element)
        self.known = known

    def operation(self, node: ast.Call) -> Any:
        """The result of a builtin that changes nothing."""
        args, name = self.items(node.args), self.origin(node.func)
        for arg in args:
            self.spend(len(arg) if hasattr(arg, "__len__") else 0)
        has_chance = name in ("list", "tuple", "zip", "enumerate") and any(isinstance(a, set | frozenset) for a in args)
        if node.keywords or name not in PURE or has_chance:
            raise NotLiteral
        made = PURE[name](*args)
        if isinstance(made, range):
            self.spend(len(made))
        return made

    def spend(self, steps: int) -> None:
        """Count what a program makes; what would be too much is not made."""
        self.steps += steps
        if self.steps > 10 * MOST_ITEMS or steps > MOST_ITEMS:
            raise NotLiteral


PURE: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (set, list, dict, tuple, frozenset, len, sum, min, max, abs, round, bool, int, float)},
    "complex": complex,
    "range": range,
    "sorted": sorted,
    "str": lambda value: str(value) if type(value) in (int, float, str, bool, type(None)) else _refuse(),
    "zip": lambda *args: Lazy(zip(*args, strict=False)),
    "enumerate": lambda *args: Lazy(enumerate(*args)),
}
RESERVED = {"isinstance", "print", "self", *PURE}


def _refuse() -> Any:
    raise NotLiteral
