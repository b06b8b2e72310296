"""The rules of CONTRIBUTING.md, "Light", that a program can hold: 1 (modules), 3 (Protocols), 6 (how this works), 8 (the sum)."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from tests.architecture.figures import sizes
from tests.architecture.source import ROOT, imports, modules, tree
from tests.architecture.test_rooms import none

MOST_LINES = 500
SMALL = 80
LONG = 150
FEW_WORDS = 40
"""A paragraph has as many words; one sentence is no account of a long file."""

KEPT_APART = {"grpo_cli.train.prefer.free"}
"""Small modules with one user that stay apart: importing this one loads TRL's experimental trainers."""
LEFT_SMALL = 0
"""Small modules with one importer beside them that are still to be folded; the number may only fall."""
LEFT_SHORT = 0
"""Long modules whose head is still one sentence; the number may only fall."""


def lines(module: str) -> int:
    return len(modules()[module].read_text().splitlines())


def is_wall(module: str) -> bool:
    """The code verifier's wall is rebuilt by itself."""
    return module.startswith(("grpo_verifiers.sandbox", "grpo_verifiers.program"))


def test_no_module_is_longer_than_500_lines() -> None:
    """One idea a file: what has grown beyond that holds two."""
    none(
        f"modules over {MOST_LINES} lines",
        [f"{module} {lines(module)}" for module in modules() if lines(module) > MOST_LINES],
    )


def lone_importers(arrows: list[tuple[str, str]]) -> dict[str, str]:
    """Modules that one other module imports, and which."""
    importers: dict[str, set[str]] = {}
    for importer, imported in arrows:
        importers.setdefault(imported, set()).add(importer)
    return {module: next(iter(those)) for module, those in importers.items() if len(those) == 1}


def test_a_module_under_80_lines_lives_with_its_only_user() -> None:
    found = []
    for module, user in lone_importers([(one.importer, one.imported) for one in imports()]).items():
        is_beside = module.rpartition(".")[0] == user.rpartition(".")[0]
        is_package = modules()[module].name == "__init__.py"
        fits = lines(module) < SMALL and lines(module) + lines(user) <= MOST_LINES
        if is_beside and fits and not is_package and not is_wall(module) and module not in KEPT_APART:
            found.append(f"{module} {lines(module)} -> {user}")
    assert len(found) <= LEFT_SMALL, f"modules under {SMALL} lines with one user beside them:\n" + "\n".join(found)


def test_lone_importers_are_found() -> None:
    arrows = [("a", "c"), ("b", "c"), ("a", "d"), ("a", "d")]
    assert lone_importers(arrows) == {"d": "a"}


def above(module: str) -> set[str]:
    """All modules that import this one, themselves or through others: it may import none of them."""
    importers: dict[str, set[str]] = {}
    for one in imports():
        importers.setdefault(one.imported, set()).add(one.importer)
    found: set[str] = set()
    left = [module]
    while left:
        new = importers.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def protocols_of_one() -> list[str]:
    """Protocols that one class has the members of and one module names, where that module could name the class instead."""
    protocols: dict[str, tuple[str, set[str]]] = {}
    classes: list[tuple[str, str, set[str]]] = []
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                members = members_of(node)
                if any(ast.unparse(base).split("[")[0] in ("Protocol", "typing.Protocol") for base in node.bases):
                    protocols[node.name] = (module, members)
                else:
                    classes.append((module, node.name, members))
    named = {
        name: {
            module
            for module in modules()
            for node in ast.walk(tree(module))
            if isinstance(node, ast.Name) and node.id == name
        }
        for name in protocols
    }
    found = []
    for name, (module, members) in protocols.items():
        those = [(where, one) for where, one, has in classes if members and members <= has]
        if len(those) == 1 and len(named[name]) == 1:
            (where, one), user = those[0], next(iter(named[name]))
            if where not in above(user):
                found.append(f"{module}.{name}: {where}.{one}, named in {user}")
    return found


def members_of(node: ast.ClassDef) -> set[str]:
    """Names of a class's methods, fields and attributes set on `self`."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(one.name)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self":
            found.add(one.attr)
    return found


def test_a_protocol_with_one_implementation_and_one_caller_is_a_class() -> None:
    none("Protocols that are one class", protocols_of_one())


def test_a_long_file_begins_with_how_it_works() -> None:
    found = []
    for module in modules():
        words = len((ast.get_docstring(tree(module)) or "").split())
        if lines(module) > LONG and words < FEW_WORDS and not is_wall(module):
            found.append(f"{module} {lines(module)} lines, {words} words")
    assert len(found) <= LEFT_SHORT, f"modules over {LONG} lines with heads of under {FEW_WORDS} words:\n" + "\n".join(
        found
    )


def test_check_shows_the_sum_of_source_lines() -> None:
    _, _, target = (ROOT / "Makefile").read_text().partition("\ncheck:")
    assert "tests.architecture.figures --sum" in target.partition("\n\n")[0]


def test_the_sum_counts_docstrings_methods_and_nested_functions(tmp_path: Path) -> None:
    folder = tmp_path / "grpo_cli"
    folder.mkdir()
    (folder / "a.py").write_text(
        textwrap.dedent(
            '''
            """Two
            lines."""

            def outer():
                def inner():
                    return 1
                return inner()

            class One:
                def method(self):
                    return outer() + outer()
            '''
        ).lstrip()
    )
    (folder / "b.py").write_text("from grpo_cli.a import outer\n\nouter()\n")
    found = sizes(tmp_path)
    assert (found.lines, found.files, found.functions) == (14, 2, 3)
    assert (found.used_once, found.imported_once) == (1, 1)
