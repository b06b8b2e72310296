"""A test program made ready: its code with a commit after every statement and a note at every check, the names that it asks
of the solution, and what of it the wall does not carry, by its text alone."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import re
import symtable
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

COMMIT, CHECK, SAME = "__commit__", "__check__", "__same__"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NO_COMMIT_AFTER = (*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Pass, ast.Return)
COMPOUND = (ast.If, ast.While, ast.For, ast.With, ast.Try, ast.TryStar, ast.ExceptHandler, ast.Match)
CHECKING_CALLS = ("assert", "raises", "fail", "exit")
MODULES = {"threading": "threads", "_thread": "threads", "concurrent": "threads", "multiprocessing": "threads"}
MODULES |= {"pickle": "pickle", "asyncio": "asyncio", "subprocess": "processes", "socket": "sockets"}
SAYS_SOMETHING = frozenset({"antigravity", "this"})
"""Modules that open a browser or print when they are imported, which the host would do for a row."""
LIBRARY_VALUES = re.compile(
    r"(re\.)?compile|(types\.)?SimpleNamespace|(array\.)?array|(ipaddress\.)?ip_\w+|ipaddress\.\w+"
)
"""What a test compares a result with and the wall does not carry."""
ASKS = {
    "signature": re.compile(
        r"\binspect\.(signature|getfullargspec|getsource\w*|getmembers)|\bsignature\(|\.__(code|defaults|signature)__"
    ),
    "annotations": re.compile(r"__annotations__|get_type_hints|__mro__|__bases__|__notes__|__context__"),
    "asyncio": re.compile(r"IsolatedAsyncioTestCase|\basync def\b|\bawait "),
    "unittest.expectedFailure": re.compile(r"@unittest\.expectedFailure|\bload_tests\b"),
    "types of the solution": re.compile(r"\bGeneratorType\b|, property\)|\bis(generator|coroutine)function\b"),
    "os.environ": re.compile(
        r"\bos\.(environ|putenv|chdir|getcwd)\b|\bfrom os import [^\n]{0,200}\b(environ|putenv|chdir|getcwd)\b"
    ),
    "numpy.random.seed": re.compile(r"\b(np|numpy)\.random\.(seed|set_state)\("),
    "warnings": re.compile(r"\bcatch_warnings\([^)\n]{0,200}record"),
    "a patched module": re.compile(r"__builtins__"),
}
NOT_RUN = frozenset(
    """setup_class teardown_class setup_module teardown_module setup_function teardown_function teardown_method pytestmark
    setUpModule tearDownModule setUpClass tearDownClass addCleanup addClassCleanup addModuleCleanup enterContext
    enterClassContext assertLogs assertNoLogs assertWarns assertWarnsRegex""".split()  # noqa: SIM905
)
"""Of pytest and unittest: what the wall would silently ignore, so that a test would check less than it states."""
OF_PYTEST = frozenset({"raises", "approx", "fail", "main", "mark", "parametrize"})
"""What the shim has; `mark` only with `parametrize`."""
PATCHED = re.compile(
    r"""\bpatch(?:\.object|\.dict|\.multiple)?\(\s*(?:["']([\w.]+)["']|([\w.]+))(?:\s*,\s*["'](\w+)["'])?"""
)
STREAMS = ("sys.stdout", "sys.stderr")
"""What a test may patch: the solution prints into the stream of the moment."""


PLAIN_MODULES = frozenset(
    """abc bisect cmath collections copy dataclasses datetime enum fractions functools heapq itertools json math numbers
    numpy operator pytest random re scipy solution statistics string timeit typing unittest""".split()  # noqa: SIM905
)
"""Modules in which a test program that sets nothing of theirs leaves nothing behind; each trial seeds `random` anew."""
NOT_PLAIN = frozenset(
    """exec eval compile getattr setattr delattr globals locals vars open input breakpoint register seterr seterrcall
    setbufsize set_printoptions""".split()  # noqa: SIM905
)


class BrokenTests(Exception):
    """The tests themselves cannot be run: a fault of the row."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A test program made ready once."""

    before: types.CodeType
    tests: tuple[types.CodeType, ...]
    free: tuple[str, ...]
    only_read: frozenset[str]
    starts_itself: bool
    shared: frozenset[str]
    has_files: bool
    has_random: bool
    expects_stop: bool
    leaves_nothing: bool
    libraries: frozenset[str]
    unsupported: str


def prepare(job: dict[str, Any]) -> Plan:
    """Compile a test program.

    Raises:
        BrokenTests: the tests do not parse.
    """
    try:
        return _prepare(job)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise BrokenTests(f"{type(err).__name__}: {err}") from err


def _prepare(job: dict[str, Any]) -> Plan:
    trees = [ast.parse(t) for t in job["tests"]]
    text = "\n".join([job["before"], *job["tests"]])
    free = free_names([job["before"], *job["tests"]])
    # a name that is only read, and that nobody defines, is a mistake of the row and not of a solution
    only_read = frozenset(free) - {name for tree in trees for name in _used_names(tree)}
    starts_itself = any(_starts_itself(tree) for tree in trees)
    unsupported = not_carried(trees, "\n".join(job["tests"]), {*free, job["entry"] or ""})
    adding, codes = Instrumented(), list[types.CodeType]()
    for tree in trees:
        adding.visit(tree)
        # without this module's own `from __future__ import annotations`, which would be inherited
        codes.append(compile(ast.fix_missing_locations(tree), "<tests>", "exec", dont_inherit=True))
    before = compile(job["before"], "<prompt>", "exec", dont_inherit=True)

    def mentions(*words: str) -> bool:
        return any(word in text for word in words)

    return Plan(
        before,
        tuple(codes),
        free,
        only_read,
        starts_itself,
        frozenset(job["shared"]),
        has_files=mentions("open(", "tmp", "Path(", "tempfile", "cwd", "os.remove", "connect("),
        has_random="random" in text and mentions("seed", "setstate"),
        expects_stop="StopIteration" in text,
        leaves_nothing=is_plain(ast.parse(text)),
        libraries=frozenset(_libraries(trees)),
        unsupported=unsupported,
    )


def _libraries(trees: list[ast.Module]) -> Iterator[str]:
    """The modules outside the standard library that a program imports."""
    for node in (node for tree in trees for node in ast.walk(tree)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        yield from (n for n in names if n.split(".")[0] not in (*sys.stdlib_module_names, "pytest", "solution"))


def is_plain(tree: ast.Module) -> bool:
    """Whether a program leaves nothing behind in the process that runs it, by its text: it imports little, and sets
    attributes and items of its own names alone."""
    imported, nodes = set[str](), list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            imported |= {(a.asname or a.name).split(".")[0] for a in node.names}
            if any(
                m.split(".")[0] not in PLAIN_MODULES or m.startswith(("unittest.", "numpy.", "scipy.stats"))
                for m in modules
            ):
                return False
            # of `numpy.random` and `scipy.stats`, whose state stays
            if modules[0] in ("numpy", "scipy") and isinstance(node, ast.ImportFrom):
                return False
    for node in nodes:
        name = getattr(node, "attr", getattr(node, "id", ""))
        is_state = name == "random" and isinstance(node, ast.Attribute) and ast.unparse(node.value) != "random"
        if is_state or name in NOT_PLAIN or (name[:2] == "__" and name not in ("__name__", "__init__")):
            return False
        # it would catch the end of its time, and a process of its own can be killed
        if isinstance(node, ast.ExceptHandler) and (node.type is None or "BaseException" in ast.unparse(node.type)):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            owner: ast.AST = node.value
            while isinstance(node, ast.Subscript) and isinstance(owner, ast.Subscript | ast.Attribute):
                owner = owner.value
            if not isinstance(owner, ast.Name) or owner.id in imported:
                return False
        if isinstance(node, ast.Attribute) and name[:1] == "_" and ast.unparse(node.value).split(".")[0] in imported:
            return False
    return True


def not_carried(trees: Sequence[ast.Module], text: str, asked: set[str]) -> str:
    """What of a test program the wall does not carry, by its text; "" where it is all carried."""
    nodes = [n for tree in trees for n in ast.walk(tree)]
    starred = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.names[0].name == "*" and n.module}
    for module in starred & sys.stdlib_module_names - SAYS_SOMETHING:
        with contextlib.suppress(ImportError):
            asked = asked.difference(dir(importlib.import_module(module)))
    modules = {(a.asname or a.name).split(".")[0] for n in nodes if isinstance(n, ast.Import) for a in n.names}
    is_tested = "pytest" in text or "unittest" in text or "def test" in text
    for node in nodes:
        found = _imported(node) or _compared(node) or _patched(node, modules)
        if isinstance(node, ast.ClassDef):
            values = [n.value for n in node.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
            bases = {b.id if isinstance(b, ast.Name) else ast.unparse(b).split(".")[0] for b in node.bases}
            inner = [n for n in node.body if isinstance(n, ast.ClassDef) and any(_is_test(m) for m in n.body)]
            if not node.name.startswith("Test") and any(called(v)[:1].isupper() and called(v) in asked for v in values):
                found = found or "descriptors"
            elif bases & (asked | {"solution"}):
                found = found or "subclassing"
            elif inner and any(_is_test(m) for m in (*node.body, *inner[0].body)):
                found = found or "tests in a nested class"
        if is_tested:
            name = getattr(node, "attr", getattr(node, "id", getattr(node, "name", "")))
            if name in NOT_RUN:
                found = found or f"{'pytest' if name.islower() else 'unittest'}.{name}"
            if isinstance(node, ast.Attribute) and name in ("code", "type") and "SystemExit" in text:
                found = found or "the code of a SystemExit"
        if found:
            return found
    for what, pattern in ASKS.items():
        if pattern.search(text):
            return what
    for dotted, target, name in PATCHED.findall(text):
        full = dotted or (f"{target}.{name}" if name else target)
        if full not in STREAMS and (dotted or target.split(".")[0] not in asked):
            return f"mock.patch of {full}"
    return ""


def _imported(node: ast.AST) -> str:
    """What is asked of a module that is not carried, or of pytest and not in the shim."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [a.name for a in node.names]
        roots = [n.split(".")[0] for n in ([node.module or ""] if isinstance(node, ast.ImportFrom) else names)]
        of_pytest = names if roots == ["pytest"] and isinstance(node, ast.ImportFrom) else []
        if found := next((MODULES[r] for r in roots if r in MODULES), ""):
            return found
    else:
        owner = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
        of_pytest = [node.attr] if isinstance(node, ast.Attribute) and owner in ("pytest", "pytest.mark") else []
    return next((f"pytest.{n}" for n in of_pytest if n not in OF_PYTEST and n[:1] != "_"), "")


def _compared(node: ast.AST) -> str:
    """What of the library's values a result is compared with and the wall does not carry."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    parts = [n for s in sides for n in (s.elts if isinstance(s, ast.Tuple | ast.List) else [s])]
    names = [ast.unparse(n.func) for n in parts if isinstance(n, ast.Call)]
    return next((name for name in names if LIBRARY_VALUES.fullmatch(name)), "")


def _patched(node: ast.AST, modules: set[str]) -> str:
    """Whether an attribute of a module is set or taken away, but for the streams."""
    owners: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        owners = [t.value for t in node.targets if isinstance(t, ast.Attribute) and ast.unparse(t) not in STREAMS]
    elif isinstance(node, ast.Call) and called(node) in ("setattr", "delattr"):
        owners = node.args[:1]
    return "a patched module" if any(isinstance(o, ast.Name) and o.id in modules for o in owners) else ""


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


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
    tops = [n for n in tree.body if not isinstance(n, DEFINITIONS)]
    names = [called(inner) for top in tops for inner in ast.walk(top) if isinstance(inner, ast.Call)]
    return any(name in ("check", "main", "run") or name.startswith("test") for name in names)


def called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_check(node: ast.stmt) -> bool:
    """Whether running this statement decides something: an assert, an assert method, or a branch that may raise."""
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    # of what is defined nothing is run; a loop may run not once: only what is reached inside of it counts
    if isinstance(node, (*DEFINITIONS, ast.For, ast.While)):
        return False
    if isinstance(node, ast.If | ast.Try | ast.Match):
        return any(isinstance(n, ast.Raise | ast.Assert) or _is_checking_call(n) for n in ast.walk(node))
    parts = [i.context_expr for i in node.items] if isinstance(node, ast.With) else [node]
    return any(_is_checking_call(n) for part in parts for n in ast.walk(part))


def _is_checking_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(c in called(node).lower() for c in CHECKING_CALLS)


class Instrumented(ast.NodeTransformer):
    """Adds the commit after simple statements and at the start of the bodies of compound ones, and notes the checks."""

    def visit(self, node: ast.AST) -> Any:
        """Every list of statements below."""
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                for child in statements:
                    self.visit(child)
                if field not in ("handlers", "cases") and statements:
                    setattr(node, field, self._with_notes(node, statements))
        return node

    def _with_notes(self, node: ast.AST, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = [_call(COMMIT)] if isinstance(node, COMPOUND) else []
        is_future = [isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in statements]
        future = max((i + 1 for i, found in enumerate(is_future) if found), default=0)
        # in `assert f(xs) is None and xs == […]` the second part sees what the first has changed
        for at, statement in [(at, part) for at, whole in enumerate(statements) for part in _parts(whole)]:
            if isinstance(statement, ast.Assert):
                statement.test = _Identity().visit(statement.test)
            if at >= future and _is_check(statement):
                out.append(_call(CHECK))
                # a check whose frame is left by its own statement counts as done; so does none that an exception leaves
                out += [_call(COMMIT)] if isinstance(statement, ast.Raise | ast.Return) else []
            out.append(statement)
            is_docstring = (
                len(out) == 1 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            )
            if not isinstance(statement, NO_COMMIT_AFTER) and not is_docstring:
                out.append(_call(COMMIT))
        return out


class _Identity(ast.NodeTransformer):
    """Has `f(xs) is xs` asked of the connection: what a call has changed is another object here until the commit."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """One `is` or `is not` between what are no constants."""
        self.generic_visit(node)
        sides = (node.left, *node.comparators)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        if any(isinstance(s, ast.Constant) for s in sides):
            return node
        asked = ast.Call(ast.Name(SAME, ast.Load()), list(sides), [])
        return asked if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), asked)


def _parts(node: ast.stmt) -> list[ast.stmt]:
    """The asserts of one that asks for several things."""
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.BoolOp) or isinstance(node.test.op, ast.Or):
        return [node]
    return [ast.copy_location(ast.Assert(test, node.msg), node) for test in node.test.values]


def _call(name: str) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
