"""The source tree as a graph: every module of both packages, and which module imports which, read from the syntax.

Imports inside functions count like those at the head of a file; imports under `if TYPE_CHECKING:` are marked, since
they say what a signature means and run never.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"grpo_cli": ROOT, "grpo_verifiers": ROOT / "verifiers"}


@dataclass(frozen=True)
class Import:
    """`importer` imports `imported`, both full module names, in this line."""

    importer: str
    imported: str
    line: int
    for_types: bool


@cache
def modules() -> dict[str, Path]:
    """Every module's dotted name and its file; a package stands for its `__init__`."""
    found = {}
    for package, root in PACKAGES.items():
        for path in sorted((root / package).rglob("*.py")):
            if "starters" in path.parts and path.name != "__init__.py":
                continue  # data that `grpo init` copies
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imports() -> tuple[Import, ...]:
    """Every import of a module of ours by another, also inside functions."""
    return tuple(one for module in modules() for one in _imports_of(module))


def outside(module: str) -> set[str]:
    """Top-level names of the foreign packages that `module` imports when it runs, also inside functions."""
    return {
        name.split(".")[0]
        for node, for_types in _walk(tree(module), False)
        if not for_types
        for name in _named(node, module)
        if name.split(".")[0] not in PACKAGES
    }


def _imports_of(module: str) -> Iterator[Import]:
    for node, for_types in _walk(tree(module), False):
        for name in _named(node, module):
            target = _known(name)
            if target and target != module:
                yield Import(module, target, getattr(node, "lineno", 0), for_types)


def _named(node: ast.AST, module: str) -> Iterator[str]:
    """The dotted names that an import statement may mean; `from a import b` may name module `a.b` or a thing of `a`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            is_package = modules()[module].name == "__init__.py"
            above = module.split(".")[: None if node.level == 1 and is_package else is_package - node.level]
            base = ".".join([*above, *([base] if base else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _known(name: str) -> str | None:
    """The longest head of `name` that is a module of ours."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


def _walk(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _asks_type_checking(child.test):
            for inner in child.body:
                yield inner, True
                yield from _walk(inner, True)
            for inner in child.orelse:
                yield inner, for_types
                yield from _walk(inner, for_types)
        else:
            yield child, for_types
            yield from _walk(child, for_types)


def _asks_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other, largest first (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in arrows.get(node, ()):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)
