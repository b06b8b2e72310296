"""Whether a test program tests anything: it has a check in code that is run when the program is started as tests are.

Started are: what stands at the top of the program, `check(candidate)`, what pytest and unittest collect, and every
function or class that these name. Read from the text alone, so that `grpo check` can say which rows test nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grpo_verifiers.sandbox.inside.testing.plans import CHECKING_CALLS


def has_check(tree: ast.Module) -> bool:
    """Whether some code that will be run asserts, raises or calls an assert method."""
    definitions = {
        n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    lambdas = {
        t.id: n.value
        for n in tree.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name) and isinstance(n.value, ast.Lambda)
    }
    waiting: list[ast.AST] = [
        n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    waiting += [d for d in definitions.values() if _is_collected(d)]
    seen = set[int]()
    while waiting:
        top = waiting.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, ast.ClassDef) and not _is_collected(top) and top in tree.body:
            continue
        for node in _run_parts(top):
            if is_check(node):
                return True
            if isinstance(node, ast.Name):
                found: ast.AST | None = definitions.get(node.id) or lambdas.get(node.id)
                if found is not None:
                    waiting.append(
                        ast.Module(list(getattr(found, "body", [])), [])
                        if isinstance(found, ast.ClassDef)
                        else found
                    )
    return False


def _is_collected(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == "check" or node.name.startswith("test")
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test") or any("TestCase" in ast.unparse(b) for b in node.bases)
    return False


def _run_parts(top: ast.AST) -> Iterator[ast.AST]:
    """The nodes below that are run: not the branches of conditions that are false as written, nor classes inside classes."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If):
            truth = _truth(node.test)
            waiting.append(node.test)
            waiting += [] if truth is False else node.body
            waiting += [] if truth is True else node.orelse
        elif isinstance(node, ast.While) and _truth(node.test) is False:
            waiting += node.orelse
        else:
            inside = ast.iter_child_nodes(node)
            is_class = isinstance(node, ast.ClassDef)
            waiting += [n for n in inside if not (is_class and isinstance(n, ast.ClassDef))]


def _truth(test: ast.expr) -> bool | None:
    """What a condition comes to as it is written: constants, and `__name__` against a text."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        sides = [test.left, test.comparators[0]]
        texts = [s.value for s in sides if isinstance(s, ast.Constant)]
        if len(texts) == 1 and any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides):
            return (texts[0] == "__main__") is isinstance(test.ops[0], ast.Eq)
    return None


def is_check(node: ast.AST) -> bool:
    """Whether a node decides something: an assert, a raise, a call of an assert method, `raises`, a runner of tests."""
    if isinstance(node, ast.Assert):
        return "run_docstring_examples" not in ast.unparse(node.test)
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return any(c in name.lower() for c in CHECKING_CALLS) or name in ("main", "TextTestRunner", "testmod")
