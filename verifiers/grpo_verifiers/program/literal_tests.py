"""Tests that are only calls with literals, read as inputs and claims: the host compares, and no test code runs.

How it works. A test program is interpreted in the order in which it would run: what stands at the top, then `check`, the
functions that pytest and the methods that unittest would collect. `Reader` keeps the values of names; an expression is either
a value, computed here from literals by a closed list of operations (`values`), or a view of a call's result. Each call of the
function under test becomes a `LiteralCall` with what the test claims of its result (`claims`). Everything else (a helper, a
class, a second function, a name that is handed over and read again and may have been changed by then) raises
`NotLiteral`, and the row is left to the test process.

Forms: asserts, `check(candidate)`, `def test_*()` of straight lines, `parametrize` with literals, loops over literals,
`pytest.raises` and its kin, test cases of unittest with literal `setUp`, and the loop that EvalPlus writes.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_verifiers.program.claims import Claim
from grpo_verifiers.program.values import COMPARABLE, NotLiteral, Values, check_types, mutables

MOST_ROUNDS = 1000
MIRRORED = {"less": "more", "at_most": "at_least", "more": "less", "at_least": "at_most"}
OPERATORS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
NAMES = "equal unequal is is_not less at_most more at_least in not_in".split()  # noqa: SIM905
COMPARED = dict(zip(OPERATORS, NAMES, strict=True))
UNITTEST: dict[str, ast.cmpop] = {
    f"assert{name}": getattr(ast, op)()
    for name, _, op in (
        pair.partition(":")
        for pair in """Equal:Eq ListEqual:Eq DictEqual:Eq TupleEqual:Eq SetEqual:Eq NotEqual:NotEq Is:Is IsNot:IsNot In:In
        NotIn:NotIn Less:Lt LessEqual:LtE Greater:Gt GreaterEqual:GtE""".split()  # noqa: SIM905
    )
}
UNCHANGED = ("equal", "is", "is_not", "isclose", "almost", "less", "at_most", "more", "at_least")
"""With a number, a text or None: no list that a later call could change is any of these."""
EXPECTING = ("pytest.raises", "self.assertRaises")


@dataclass(frozen=True, slots=True)
class LiteralCall:
    """One call with what must hold of its result, or the built-in exceptions of which it must raise one.

    `test` is the number of the test program it belongs to.
    """

    test: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    claims: tuple[Claim, ...] = ()
    raises: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultView:
    """A call's result, looked at in steps."""

    call: int
    steps: tuple[tuple[str, Any], ...] = ()

    def then(self, name: str, body: object = None) -> ResultView:
        """The view one step further."""
        return ResultView(self.call, (*self.steps, (name, body)))


@dataclass(slots=True)
class Draft:
    """A call that is being put together."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    claims: list[Claim] = field(default_factory=list)
    raises: tuple[str, ...] = ()


def literal_calls(tests: Sequence[str], entry: str) -> tuple[LiteralCall, ...] | None:
    """The calls that these test programs are, None if they are more than that."""
    if entry[:1].isupper() and "." not in entry:
        return None  # a class: what the test makes of it is compared where its operators are known
    found = list[LiteralCall]()
    try:
        for number, test in enumerate(tests):
            drafts = Reader(entry).program(ast.parse(test))
            if not any(d.claims or d.raises for d in drafts):
                return None
            found += [LiteralCall(number, d.args, d.kwargs, tuple(d.claims), d.raises) for d in drafts]
    except (NotLiteral, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError):
        return None
    return tuple(found)


class Reader(Values):
    """Interprets one test program."""

    def __init__(self, entry: str) -> None:
        super().__init__()
        self.entry = entry.rpartition(".")[2]
        self.names = {self.entry}
        self.drafts = list[Draft]()
        self.results: dict[str, ResultView] = {}
        self.has_evalplus = False

    def program(self, tree: ast.Module) -> list[Draft]:
        """The calls of a program.

        Raises:
            NotLiteral: it is more than calls with literals.
        """
        later: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and _is_evalplus(node):
                self.has_evalplus = self.has_evalplus or node.name == "assertion"
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                later.pop(node.name, None)  # the last one of a name is the one that is run
                later[node.name] = node
            elif not _is_left_out(node, self.entry):
                self.statement(node)
        if "check" in later and len(later) > 1:
            raise NotLiteral
        for node in later.values():
            known, results = dict(self.known), dict(self.results)
            if isinstance(node, ast.ClassDef):
                self.test_class(node)
            elif node.name == "check" and [a.arg for a in node.args.args] == ["candidate"] and not node.decorator_list:
                self.names.add("candidate")
                self.run(node.body)
            elif node.name.startswith("test"):
                self.test_function(node)
            else:
                raise NotLiteral
            self.known, self.results = known, results
        return self.drafts

    def test_function(self, node: ast.FunctionDef) -> None:
        """What pytest runs of one function: once, or once for each of its literal parameters."""
        names = [a.arg for a in node.args.args]
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or arguments.defaults:
            raise NotLiteral
        if not names and not node.decorator_list:
            self.run(node.body)
            return
        marks = node.decorator_list
        if len(marks) != 1 or not isinstance(marks[0], ast.Call) or len(marks[0].args) != 2 or marks[0].keywords:
            raise NotLiteral
        given, cases = (self.value(a) for a in marks[0].args)
        said = [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)
        if self.origin(marks[0].func) != "pytest.mark.parametrize" or sorted(said) != sorted(names):
            raise NotLiteral
        for case in self.rounds(cases):
            known, results = dict(self.known), dict(self.results)
            for name, value in zip(said, (case,) if said == [given] else case, strict=True):
                self.bind(name, value)
            self.run(node.body)
            self.known, self.results = known, results

    def test_class(self, node: ast.ClassDef) -> None:
        """What unittest or pytest runs of one class, each method with what `setUp` gives it."""
        is_case = [self.origin(base) for base in node.bases] == ["unittest.TestCase"]
        if node.decorator_list or node.keywords or not (is_case or (node.name.startswith("Test") and not node.bases)):
            raise NotLiteral
        methods: dict[str, ast.FunctionDef] = {}
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and [a.arg for a in part.args.args] == ["self"]:
                methods[part.name] = part
            elif not _says_nothing(part):
                raise NotLiteral
        before = methods.pop("setUp" if is_case else "setup_method", None)
        for name in sorted(methods) if is_case else methods:
            if not name.startswith("test") or methods[name].decorator_list:
                raise NotLiteral
            known, results = dict(self.known), dict(self.results)
            self.run([*(before.body if before else ()), *methods[name].body])
            self.known, self.results = known, results

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Interpret statements in order."""
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Interpret one statement."""
        if _says_nothing(node):
            return
        if isinstance(node, ast.Assert):
            self.assertion(node.test)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self.assign(node.targets[0], node.value)
        elif isinstance(node, ast.For) and not node.orelse:
            for item in self.rounds(self.value(node.iter)):
                self.bind_target(node.target, item)
                self.run(node.body)
        elif isinstance(node, ast.With) and len(node.items) == 1 and isinstance(node.items[0].context_expr, ast.Call):
            self.with_context(node.items[0].context_expr, node.body)
        elif isinstance(node, ast.Try):
            self.expects(self.caught(node), node.body[:1])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.call_statement(node.value)
        else:
            raise NotLiteral

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what an import binds; of the solution only the function under test."""
        for alias in node.names:
            module = node.module if isinstance(node, ast.ImportFrom) else alias.name
            root = (module or "").split(".")[0]
            if alias.name == "*" or getattr(node, "level", False):
                raise NotLiteral
            if root == "solution":
                if not isinstance(node, ast.ImportFrom) or alias.name != self.entry:
                    raise NotLiteral
                self.names.add(alias.asname or alias.name)
            elif root in sys.stdlib_module_names or root in ("pytest", "numpy"):
                whole = f"{module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
                self.bind_origin(alias.asname or alias.name, whole)
            else:
                raise NotLiteral

    def with_context(self, context: ast.Call, body: Sequence[ast.stmt]) -> None:
        """`with pytest.raises(E):` around one call, or a subtest."""
        origin = self.origin(context.func)
        if origin in EXPECTING and len(context.args) == 1 and not context.keywords:
            self.expects(self.exceptions(context.args[0]), body)
        elif origin == "self.subTest":
            self.run(body)
        else:
            raise NotLiteral

    def expects(self, raises: tuple[str, ...], body: Sequence[ast.stmt]) -> None:
        """One statement that must raise: a bare call of the function, or one whose result is not used."""
        node = body[0]
        value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if len(body) != 1 or not isinstance(value, ast.Call) or not self.is_call(value):
            raise NotLiteral
        self.drafts[self.view(value).call].raises = raises

    def caught(self, node: ast.Try) -> tuple[str, ...]:
        """What `try: f(…); assert False` with `except E: pass` expects, or the same with `else: assert False`."""
        ends = [*node.body[1:], *node.orelse]
        if len(node.handlers) != 1 or len(ends) != 1 or node.finalbody or node.handlers[0].type is None:
            raise NotLiteral
        is_end = isinstance(ends[0], ast.Assert) and isinstance(ends[0].test, ast.Constant) and not ends[0].test.value
        passes = all(_says_nothing(n) or _is_assert_true(n) for n in node.handlers[0].body)
        raises = self.exceptions(node.handlers[0].type)
        # an assert that fails in the body is caught by these as well: nothing would be tested
        if not is_end or not passes or (node.body[1:] and {"Exception", "BaseException", "AssertionError"} & {*raises}):
            raise NotLiteral
        return raises

    def exceptions(self, node: ast.expr) -> tuple[str, ...]:
        """The names of built-in exceptions that an expression stands for."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        names = tuple(self.origin(part) for part in parts)
        kinds = [getattr(builtins, name, None) for name in names]
        if not kinds or not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
            raise NotLiteral
        return names

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind a name to a value or to a result."""
        if self.asks(value):
            name, view = ast.unparse(target), self.view(value)
            self.bind_target(target, None)
            self.known.pop(name)
            self.results[name] = view
        else:
            self.bind_target(target, self.value(value))

    def bind(self, name: str, value: object) -> None:
        """Bind a name to a value."""
        if name in self.names or isinstance(getattr(builtins, name, None), type):
            raise NotLiteral
        self.results.pop(name, None)
        super().bind(name, value)

    def asks(self, node: ast.expr) -> bool:
        """Whether an expression calls the function under test or reads a result of it."""
        return any(
            (isinstance(n, ast.Call) and self.is_call(n))
            or (isinstance(n, ast.Name | ast.Attribute) and ast.unparse(n) in self.results)
            for n in ast.walk(node)
        )

    def is_call(self, node: ast.Call) -> bool:
        """Whether a call is one of the function under test."""
        return isinstance(node.func, ast.Name) and node.func.id in self.names

    def view(self, node: ast.expr) -> ResultView:
        """The view that an expression is of a call's result; the call is added where it stands."""
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in self.results:
            return self.results[ast.unparse(node)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return self.view(node.left).then("minus", self.number(node.right))
        if not isinstance(node, ast.Call):
            raise NotLiteral
        if self.is_call(node):
            return self.called(node.args, node.keywords)
        name, keywords = self.origin(node.func), {k.arg: k.value for k in node.keywords}
        if name == "round" and len(node.args) in (1, 2) and not keywords:
            return self.view(node.args[0]).then("round", self.value(node.args[1]) if node.args[1:] else None)
        if name in ("len", "set", "sorted", "abs") and len(node.args) == 1 and not keywords:
            return self.view(node.args[0]).then(name)
        raise NotLiteral

    def called(self, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> ResultView:
        """A new call of the function under test; what it is handed may be changed by it, and is not read again."""
        made: dict[str, Any] = {}
        positional = self.items(args)
        for keyword in keywords:
            value = self.value(keyword.value)
            made |= {keyword.arg: value} if keyword.arg else value
        handed = [*positional, *made.values()]
        check_types(handed, (*COMPARABLE, range))
        changing = [part for value in handed for part in mutables(value)]
        if len({id(part) for part in changing}) < len(changing):
            raise NotLiteral  # the same object twice in one call
        self.given |= {id(part): part for part in changing}
        self.drafts.append(Draft(tuple(positional), made))
        return ResultView(len(self.drafts) - 1)

    def add(
        self, view: ResultView, op: str, expected: object = None, relative: float = 0.0, absolute: float = 0.0
    ) -> None:
        """Note a claim; of an earlier result only what a later call, which may hold on to it, cannot have changed."""
        is_last = view.call == len(self.drafts) - 1
        if not is_last and (view.steps or op not in UNCHANGED or not isinstance(expected, COMPARABLE)):
            raise NotLiteral
        self.drafts[view.call].claims.append(Claim(op, expected, view.steps, relative, absolute))

    def assertion(self, test: ast.expr) -> None:
        """Note what an asserted expression claims."""
        if isinstance(test, ast.Constant) and test.value is True:
            return
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                self.assertion(part)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.add(self.view(test.operand), "false")
        elif isinstance(test, ast.Compare):
            self.compare([test.left, *test.comparators], test.ops)
        elif isinstance(test, ast.Call) and self.origin(test.func) == "math.isclose" and len(test.args) == 2:
            said = {k.arg: self.number(k.value) for k in test.keywords}
            first, second = test.args if self.asks(test.args[0]) else reversed(test.args)
            tolerances = (said.get("rel_tol", 1e-9), said.get("abs_tol", 0.0))
            self.add(self.view(first), "isclose", self.number(second), *tolerances)
        else:
            self.add(self.view(test), "true")

    def compare(self, sides: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> None:
        """Note the claims of a comparison, chained or not, of which one side is a view and the others are values."""
        asking = [at for at, side in enumerate(sides) if self.asks(side)]
        if len(asking) != 1 or len(sides) > 3 or (len(sides) == 3 and asking != [1]):
            raise NotLiteral
        at = asking[0]
        view = self.view(sides[at])  # first: what it is handed must not be read behind it
        for place, op in enumerate(ops):
            other, is_left = sides[place + 1 if place == at else place], place == at
            name = COMPARED[type(op)]
            if name in ("in", "not_in") and not is_left:
                name = {"in": "contains", "not_in": "lacks"}[name]
            self.compare_with(view, name if is_left else MIRRORED.get(name, name), other)

    def compare_with(self, view: ResultView, name: str, other: ast.expr) -> None:
        """Note one claim against a value or `pytest.approx` of one."""
        if name == "equal" and isinstance(other, ast.Call) and self.origin(other.func) == "pytest.approx":
            said = {k.arg: self.number(k.value) for k in other.keywords}
            values = [self.value(a) for a in other.args]
            parts = values[0] if isinstance(values[0], list | tuple) else values
            if len(values) != 1 or said.keys() - {"rel", "abs"} or not all(type(p) in (int, float) for p in parts):
                raise NotLiteral
            relative = said.get("rel", 0.0 if "abs" in said else 1e-6)
            self.add(view, "close", values[0], relative, said.get("abs", 1e-12))
            return
        expected = self.comparable(other)
        if name in ("is", "is_not") and not (expected is None or expected is True or expected is False):
            raise NotLiteral
        if name in ("in", "not_in") and not isinstance(expected, str | list | tuple | set | frozenset | dict):
            raise NotLiteral
        self.add(view, name, expected)

    def call_statement(self, node: ast.Call) -> None:
        """A call that stands by itself: of the function, of an assert method, of EvalPlus's helper, of `print`."""
        origin = self.origin(node.func)
        if self.is_call(node):
            self.view(node)
        elif origin == "print" and not any(map(self.asks, node.args)):
            return
        elif origin == "assertion" and self.has_evalplus and len(node.args) == 3:
            view = self.view(node.args[0])
            self.add(view, "evalplus", self.comparable(node.args[1]), 0.0, float(self.number(node.args[2])))
        elif origin.startswith("self.assert"):
            self.assert_method(origin.removeprefix("self."), node)
        else:
            raise NotLiteral

    def assert_method(self, name: str, node: ast.Call) -> None:
        """A call of a method of `unittest.TestCase`."""
        args, keywords = node.args, {k.arg: k.value for k in node.keywords if k.arg != "msg"}
        if name == "assertRaises" and len(args) > 1 and isinstance(args[1], ast.Name) and args[1].id in self.names:
            self.drafts[self.called(args[2:], node.keywords).call].raises = self.exceptions(args[0])
        elif name in UNITTEST and len(args) in (2, 3) and not keywords:
            self.compare(args[:2], [UNITTEST[name]])
        elif name in ("assertTrue", "assertFalse") and args and not keywords:
            self.assertion(args[0] if name == "assertTrue" else ast.UnaryOp(ast.Not(), args[0]))
        elif name in ("assertIsNone", "assertIsNotNone") and args and not keywords:
            self.compare([args[0], ast.Constant(None)], [ast.Is() if name == "assertIsNone" else ast.IsNot()])
        elif name == "assertAlmostEqual" and len(args) in (2, 3) and not keywords.keys() - {"places", "delta"}:
            first, second = args[:2] if self.asks(args[0]) else reversed(args[:2])
            view, expected = self.view(first), self.number(second)
            if "delta" in keywords:
                self.add(view.then("minus", expected).then("abs"), "at_most", self.number(keywords["delta"]))
            else:
                places = args[2] if len(args) == 3 else keywords.get("places", ast.Constant(7))
                self.add(view, "almost", expected, 0.0, self.number(places))
        else:
            raise NotLiteral

    def rounds(self, cases: object) -> Sequence[Any]:
        """The items of a literal, in as many rounds of a loop or test as are unrolled."""
        if not isinstance(cases, list | tuple | range) or len(cases) > MOST_ROUNDS:
            raise NotLiteral
        return cases


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_assert_true(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value is True


def _is_left_out(node: ast.stmt, name: str) -> bool:
    """What is no test: HumanEval's METADATA, `check(f)` at the end, and what runs the file as a program."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "METADATA"
    if isinstance(node, ast.Expr):
        return ast.unparse(node) in (f"check({name})", f"check(Solution().{name})")
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "__name__ == '__main__'" or node.orelse:
        return False
    return len(node.body) == 1 and ast.unparse(node.body[0]).startswith(("unittest.main(", "pytest.main("))


def _is_evalplus(node: ast.FunctionDef) -> bool:
    """The helpers of EvalPlus's loop by name and shape: `is_floats`, and `assertion`, which is exact or close."""
    names, text = [a.arg for a in node.args.args], ast.unparse(node)
    if node.name == "assertion":
        return names == ["out", "exp", "atol"] and all(w in text for w in ("exact_match = out == exp", "np.allclose("))
    return node.name == "is_floats" and names == ["x"] and "isinstance(x, float)" in text
