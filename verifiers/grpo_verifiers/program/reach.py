"""Whether a test program tests anything: it has a check that can fail in code that is run when it is started as tests are.

Started are: what stands at the top of the program, `check(candidate)`, what pytest and unittest collect, and every
function or class that these name. Read from the text alone, so that `grpo check` can say which rows test nothing; as is
which function is under test, where the row does not name it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from grpo_verifiers.sandbox.inside.wall.plan import CHECKING_CALLS, DEFINITIONS, called

STARTED = ("test", "runTest", "setup", "setUp", "teardown", "tearDown", "asyncSetUp", "asyncTearDown")
DYNAMIC = ("setattr", "getattr", "globals", "locals", "vars", "dir", "exec", "eval", "addTest", "load_tests")
"""What may run a function that the program does not name; then each of them counts."""
HELPERS = ("isclose", "deepcopy", "Counter", "approx", "allclose")
CATCHING = ("AssertionError", "Exception", "BaseException")


class TestText:
    """A test program, with its functions and classes by name, and the names whose value is true whatever the solution is."""

    def __init__(self, tree: ast.Module, entry: str | None) -> None:
        self.tree, self.known, self.words = tree, dict[str, list[Any]](), set[str]()
        stored, given = set[str](), list[list[str]]()
        for node in ast.walk(tree):
            if isinstance(node, DEFINITIONS):
                self.known.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in [t.id for t in node.targets if isinstance(t, ast.Name)]:
                    self.known.setdefault(name, []).append(node.value)
            elif isinstance(node, ast.Name):
                (stored if isinstance(node.ctx, ast.Store) else self.words).add(node.id)
            elif isinstance(node, ast.Attribute):
                self.words.add(node.attr)
            elif isinstance(node, ast.arguments):
                given.append([a.arg for a in ast.walk(node) if isinstance(a, ast.arg)])
        # what `check` is called with is the solution's function, unless something else is called that
        checks = [n.args.args[0].arg for n in self.known.get("check", []) if hasattr(n, "args") and n.args.args]
        theirs = {c for c in checks if sum(c in names for names in given) == 1}
        stored |= {name for names in given for name in names} - theirs
        lambdas = {n for n, found in self.known.items() if isinstance(found[-1], ast.Lambda)}
        self.always = ({(entry or "").split(".")[0], "candidate", *theirs, *self.known} - stored) | lambdas

    def has_check(self) -> bool:
        """Whether some code that will be run asserts, raises or calls an assert method, in a way that can fail."""
        waiting, seen = [self.tree, *self._started(), *self._unnamed()], set[int]()
        while waiting:
            top = waiting.pop()
            if id(top) in seen:
                continue
            seen.add(id(top))
            for node in run_parts(top):
                if self._can_fail(node):
                    return True
                if isinstance(node, ast.Assert) and isinstance(node.test, ast.Name):
                    seen.add(id(node.test))  # `assert verify` calls nothing
                name = getattr(node, "id", getattr(node, "attr", getattr(node, "value", "")))
                waiting += self.known.get(name, []) if isinstance(name, str) and id(node) not in seen else []
        return False

    def _started(self) -> Iterator[ast.AST]:
        """What `check(candidate)`, pytest and unittest run of the definitions at the top."""
        for node in run_parts(self.tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or _is_skipped(node):
                continue
            if isinstance(node, ast.FunctionDef):
                is_late = any(isinstance(n, ast.Yield) for n in run_parts(node))  # a generator, called, runs nothing
                if (node.name == "check" or node.name.startswith("test")) and not is_late:
                    yield node
            elif node.name.startswith("Test") or any("TestCase" in ast.unparse(b) for b in node.bases):
                methods = [m for m in self._methods(node) if not _is_skipped(m)]
                has_test = any(m.name.startswith(STARTED[:2]) for m in methods)
                yield from (m for m in methods if has_test and m.name.startswith(STARTED))

    def _methods(self, node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The methods of a class and of its bases in the program."""
        waiting, classes = [node], list[ast.ClassDef]()
        while waiting:
            found = waiting.pop()
            bases = [b for name in found.bases for b in self.known.get(ast.unparse(name), [])]
            waiting += [b for b in bases if isinstance(b, ast.ClassDef) and b not in classes]
            classes.append(found)
        return [m for c in classes for m in c.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]

    def _unnamed(self) -> Iterator[ast.AST]:
        """What may be run without being named: by its decorator or as a special method, or where names are made up."""
        for found in self.known.values():
            for node in found:
                is_hidden = not self.words.isdisjoint(DYNAMIC) or getattr(node, "name", "").startswith("__")
                if is_hidden or (getattr(node, "decorator_list", []) and not _is_skipped(node)):
                    yield node

    def _can_fail(self, node: ast.AST) -> bool:
        """Whether a node is a check whose outcome is not the same for every solution."""
        if isinstance(node, ast.Assert):
            return is_check(node) and self.truth(node.test) is not True
        if not isinstance(node, ast.Call) or not is_check(node):
            return is_check(node)
        name, args = called(node), [*node.args, *[k.value for k in node.keywords]]
        if name == "exit":
            return any(self.truth(a) is not False for a in args)
        if name in ("assertTrue", "assert_", "assertIsNotNone") and args:
            return self.truth(args[0]) is not True
        is_fixed = all(isinstance(n, ast.Constant | ast.expr_context) for a in args for n in ast.walk(a))
        return not (args and is_fixed and name.startswith("assert"))

    def truth(self, test: ast.expr) -> bool | None:
        """What an expression comes to whatever the solution is; None where that cannot be told from the text."""
        if isinstance(test, ast.Name) and test.id in self.always:
            return True
        if isinstance(test, ast.Lambda | ast.GeneratorExp):
            return True
        if isinstance(test, ast.Tuple | ast.List | ast.Set):
            return None if any(isinstance(e, ast.Starred) for e in test.elts) else bool(test.elts)
        if isinstance(test, ast.ListComp):
            loop = test.generators[0]
            is_fixed = isinstance(loop.iter, ast.Tuple | ast.List) and self.truth(loop.iter)
            return True if is_fixed and len(test.generators) == 1 and not loop.ifs else None
        if isinstance(test, ast.BoolOp):
            parts, decides = [self.truth(v) for v in test.values], isinstance(test.op, ast.Or)
            return decides if decides in parts else None if None in parts else not decides
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and self.truth(test.left) and isinstance(test.left, ast.Name):
            return True if ast.unparse(test).endswith(" is not None") else None
        if isinstance(test, ast.Call) and called(test) in ("callable", "bool") and len(test.args) == 1:
            return self.truth(test.args[0]) or None
        return as_written(test)


def run_parts(top: ast.AST) -> Iterator[ast.AST]:
    """The nodes below that are run: not what functions and classes inside hold, nor branches that are false as written."""
    waiting: list[ast.AST] = list(top.body) if isinstance(top, (*DEFINITIONS, ast.Module)) else [top]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If):
            truth = as_written(node.test)
            waiting.append(node.test)
            waiting += [] if truth is False else node.body
            waiting += [] if truth is True else node.orelse
        elif isinstance(node, ast.While) and as_written(node.test) is False:
            waiting += node.orelse
        elif isinstance(node, ast.Try) and any(map(_swallows, node.handlers)):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, DEFINITIONS):
            waiting += node.decorator_list
            if isinstance(node, ast.ClassDef):
                waiting += [n for n in node.body if not isinstance(n, DEFINITIONS)]
        else:
            waiting += ast.iter_child_nodes(node)


def as_written(test: ast.expr) -> bool | None:
    """The value of a condition that is certain from its text: constants, and `__name__` against a text."""
    if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        sides = [test.left, test.comparators[0]]
        texts = [s.value for s in sides if isinstance(s, ast.Constant)]
        if len(texts) == 1 and any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides):
            return (texts[0] == "__main__") is isinstance(test.ops[0], ast.Eq)
        if len(texts) == len(sides):
            return (texts[0] == texts[1]) is isinstance(test.ops[0], ast.Eq)
    return bool(test.value) if isinstance(test, ast.Constant) else None


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes a failed assert and does nothing about it."""
    kinds = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    catches = any(kind is None or ast.unparse(kind) in CATCHING for kind in kinds)
    return catches and all(
        isinstance(n, ast.Pass | ast.Continue)
        or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and called(n.value) == "print")
        for n in handler.body
    )


def _is_skipped(node: ast.AST) -> bool:
    """Whether a test is left out whatever happens: `@pytest.mark.skip`, `@unittest.skip("…")`."""
    words = (ast.unparse(d).partition("(")[0] for d in getattr(node, "decorator_list", []))
    return any(word.endswith("skip") for word in words)


def is_check(node: ast.AST) -> bool:
    """Whether a node decides something: an assert, a raise, a call of an assert method, `raises`, an exit."""
    if isinstance(node, ast.Assert):
        return "run_docstring_examples" not in ast.unparse(node.test)
    if isinstance(node, ast.Call):
        return any(c in called(node).lower() for c in CHECKING_CALLS)
    return isinstance(node, ast.Raise)


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
    if own is None:  # a function may well be called `sum`: then the assert is about what it calls first
        asserted = [node.test for tree in trees for node in tree.body if isinstance(node, ast.Assert)]
        sides = [s for a in asserted for s in ([a.left, *a.comparators] if isinstance(a, ast.Compare) else [a])]
        own = next((s.func.id for s in sides if isinstance(s, ast.Call) and isinstance(s.func, ast.Name)), None)
    return own
