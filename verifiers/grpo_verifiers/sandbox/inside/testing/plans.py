"""A test program made ready: compiled, with a commit after every statement and a note at every check, its free names found."""

from __future__ import annotations

import ast
import builtins
import symtable
import types
from dataclasses import dataclass
from typing import Any

COMMIT, CHECK, SAME, ANY = "__commit__", "__check__", "__same__", "__any__"
NO_COMMIT_AFTER = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass, ast.Return)
COMPOUND = (
    *(ast.If, ast.While, ast.For, ast.With, ast.AsyncFor, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.ExceptHandler),
)
CHECKING_CALLS = ("assert", "raises", "fail", "exit")


class BrokenTests(Exception):
    """The tests themselves cannot be run: a fault of the row."""


@dataclass(frozen=True, slots=True)
class PreparedTests:
    """A test program made ready once: code of each test, names it cannot resolve itself, how it is to be started."""

    before: types.CodeType
    tests: tuple[types.CodeType, ...]
    free: tuple[str, ...]
    only_read: frozenset[str]
    starts_itself: bool
    shared: frozenset[str]
    has_files: bool
    has_random: bool
    expects_stop: bool


def prepare(job: dict[str, Any]) -> PreparedTests:
    """Compile a test program.

    Raises:
        BrokenTests: the tests do not parse.
    """
    try:
        return _prepare(job)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise BrokenTests(f"{type(err).__name__}: {err}") from err


def _prepare(job: dict[str, Any]) -> PreparedTests:
    trees = [ast.parse(t) for t in job["tests"]]
    free = free_names([job["before"], *job["tests"]])
    # a name that is only read, and that nobody defines, is a mistake of the row and not of a solution
    only_read = frozenset(free) - {name for tree in trees for name in _used_names(tree)}
    starts_itself = any(_starts_itself(tree) for tree in trees)
    codes = []
    adding = Committing()
    for tree in trees:
        adding.visit(tree)
        # without this module's own `from __future__ import annotations`, which would be inherited
        codes.append(compile(ast.fix_missing_locations(tree), "<tests>", "exec", dont_inherit=True))
    before = compile(job["before"], "<prompt>", "exec", dont_inherit=True)
    text = "\n".join([job["before"], *job["tests"]])
    return PreparedTests(
        before,
        tuple(codes),
        free,
        only_read,
        starts_itself,
        frozenset(job["shared"]),
        any(word in text for word in ("open(", "tmp", "Path(", "tempfile", "cwd", "chdir")),
        "random" in text and any(word in text for word in ("seed", "state")),
        "StopIteration" in text,
    )


def free_names(sources: list[str]) -> tuple[str, ...]:
    """Global names that are read somewhere and bound nowhere at the top."""
    bound: set[str] = set(dir(builtins))
    read: set[str] = set()
    for source in sources:
        top = symtable.symtable(source, "<tests>", "exec")
        bound |= {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
        waiting = [top]
        while waiting:
            table = waiting.pop()
            read |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (table is top or s.is_global())}
            # a `global` within a function binds at the top as well
            bound |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
            waiting += table.get_children()
    return tuple(sorted(read - bound))


def _used_names(tree: ast.AST) -> set[str]:
    """Names that are called, asked for an attribute, subclassed or handed over: what a solution may have to define."""
    used = set[str]()
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            parts = [node.func, *node.args, *[k.value for k in node.keywords]]
        elif isinstance(node, ast.Attribute | ast.Subscript):
            parts = [node.value]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.bases, *node.decorator_list]
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            parts = [node.type]
        used |= {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
    return used


def _starts_itself(tree: ast.Module) -> bool:
    """Whether the program calls `check` or runs its test cases on its own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                name = _called(inner)
                if name in ("check", "main", "run") or name.startswith("test"):
                    return True
    return False


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_check(node: ast.stmt) -> bool:
    """Whether running this statement decides something: an assert, an assert method, or a branch that may raise."""
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if isinstance(node, ast.If | ast.Try | ast.Match):
        return any(isinstance(n, ast.Raise | ast.Assert) or _is_checking_call(n) for n in ast.walk(node))
    # a loop may run not once: only what is reached inside of it counts
    if isinstance(node, ast.For | ast.While | ast.AsyncFor):
        return False
    parts = [i.context_expr for i in node.items] if isinstance(node, ast.With | ast.AsyncWith) else [node]
    return any(_is_checking_call(n) for part in parts for n in ast.walk(part))


def _is_checking_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(c in _called(node).lower() for c in CHECKING_CALLS)


class Committing(ast.NodeTransformer):
    """Adds the commit after simple statements and at the start of the bodies of compound ones, and notes the checks."""

    places = 0

    def _place(self, statement: ast.stmt) -> int:
        """The place of a check; 0 where it fails whatever the solution is."""
        looked_at = statement.test if isinstance(statement, ast.Assert) else statement
        # `assert False` fails whatever the solution is
        if not any(isinstance(n, ast.Name | ast.Call) for n in ast.walk(looked_at)):
            return 0
        self.places += 1
        return self.places

    def visit(self, node: ast.AST) -> Any:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                for child in statements:
                    if isinstance(child, ast.ExceptHandler) and child.type is None:
                        # so that the code says that it catches every end of the solution
                        child.type = ast.Name(ANY, ast.Load())
                    self.visit(child)
                if field not in ("handlers", "cases") and statements:
                    setattr(node, field, self._with_commits(node, statements))
        return node

    def _with_commits(self, node: ast.AST, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        if isinstance(node, COMPOUND):
            out.append(_call(COMMIT))
        for at, statement in enumerate(statements):
            if isinstance(statement, ast.Assert):
                statement.test = Identity().visit(statement.test)
                _commit_between(statement)
            place = self._place(statement) if is_check(statement) and not _is_future(statements, at) else None
            if place is not None:
                out.append(_call(CHECK, place))
            out.append(statement)
            if not isinstance(statement, NO_COMMIT_AFTER) and not _is_docstring_place(statement, out):
                out.append(_call(COMMIT))
        return out


class Identity(ast.NodeTransformer):
    """Has `f(xs) is xs` asked of the connection: what a call has changed is another object here until the commit."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """One `is` or `is not` between what are no constants."""
        self.generic_visit(node)
        sides = (node.left, *node.comparators)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        # `is None` needs no help
        if any(isinstance(s, ast.Constant) for s in sides):
            return node
        asked = ast.Call(ast.Name(SAME, ast.Load()), list(sides), [])
        return asked if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), asked)


def _commit_between(statement: ast.Assert) -> None:
    """In `assert f(xs) is None and xs == […]` the second part sees what the first has changed."""
    for node in ast.walk(statement.test):
        if isinstance(node, ast.BoolOp):
            step: ast.expr = ast.Call(ast.Name(COMMIT, ast.Load()), [], [])
            if isinstance(node.op, ast.And):
                # the commit returns None, which would end an `and`
                step = ast.BoolOp(ast.Or(), [step, ast.Constant(True)])
            parts: list[ast.expr] = []
            for value in node.values:
                parts += [step, value] if parts else [value]
            node.values = parts


def _is_future(statements: list[ast.stmt], at: int) -> bool:
    return any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in statements[at:])


def _is_docstring_place(statement: ast.stmt, out: list[ast.stmt]) -> bool:
    return len(out) == 1 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _call(name: str, *args: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(a) for a in args], []))
