"""What keeps the house in order: directions, circles and sizes. `[tool.importlinter]` in pyproject.toml says the rest."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from tests.architecture.figures import has_tensor, public_functions, says_shapes
from tests.architecture.source import PACKAGES, ROOT, circles, imports, modules, outside, tree

FLOORS = (
    "app api __main__",
    "commands",
    "jobs",
    "train measure",
    "curriculum sizing",
    "reward",
    "rollout resilience display",
    "policy algorithm distributed findings preference",
    "recipe statistics",
    "data run starters",
    "environments",
    "grpo_verifiers",
    "lines",
    "errors",
    "text",
)
"""Rooms from the roof down; no arrow goes up, nor to a neighbour on the same floor."""
FLOOR = {room: n for n, rooms in enumerate(FLOORS) for room in rooms.split()}
JOBS_FLOORS = (
    "sweep",
    "train probe pairs verify check audit runs doctor explain evaluate export init chat",
    "report",
    "open_job",
    "rows refusals",
)
JOBS_FLOOR = {room: n for n, rooms in enumerate(JOBS_FLOORS) for room in rooms.split()}

MANY_HOMES = {
    "Sample": "the recipe's section `sample`, and what a verifier of a user's own is handed: both names are promises"
}
"""Class names that stand twice, and why."""
MOST_ANY = 150


def room(module: str) -> str:
    """The folder or file below `grpo_cli`; all verifiers are one room."""
    first, *rest = module.split(".")
    return first if first == "grpo_verifiers" or not rest else rest[0]


def none(what: str, found: list[str]) -> None:
    """Fails with all that was found."""
    assert not found, f"{len(found)} {what}:\n" + "\n".join(found)


def test_no_circle_of_files_also_through_imports_inside_functions() -> None:
    arrows: dict[str, set[str]] = {module: set() for module in modules()}
    for one in imports():
        if not one.for_types:
            arrows[one.importer].add(one.imported)
    none("circles of files", [" <-> ".join(group) for group in circles(arrows)])


def test_no_circle_of_files_when_imports_for_types_count_too() -> None:
    arrows: dict[str, set[str]] = {module: set() for module in modules()}
    for one in imports():
        arrows[one.importer].add(one.imported)
    none("circles of files, with imports for types", [" <-> ".join(group) for group in circles(arrows)])


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_no_circle_of_rooms(depth: int) -> None:
    """Also of the rooms inside a room: folders to this depth, and files that are no folder."""

    def folder(module: str) -> str:
        inside = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
        return ".".join(inside.split(".")[:depth])

    arrows: dict[str, set[str]] = defaultdict(set)
    for one in imports():
        here, there = folder(one.importer), folder(one.imported)
        is_nested = there.startswith(f"{here}.") or here.startswith(f"{there}.")
        if here != there and not is_nested:
            arrows[here].add(there)
    none(f"circles of rooms {depth} deep", [" <-> ".join(group) for group in circles(arrows)])


def test_no_arrow_goes_up() -> None:
    rooms = {room(module) for module in modules()} - set(PACKAGES)
    assert rooms <= FLOOR.keys(), f"a floor for {sorted(rooms - FLOOR.keys())}"
    found = [
        f"{one.importer}:{one.line} imports {one.imported}"
        for one in imports()
        if (here := room(one.importer)) != (there := room(one.imported))
        and {here, there} <= FLOOR.keys()
        and FLOOR[there] <= FLOOR[here]
        and not (here == "__main__" and there == "app")
    ]
    none("arrows upward", found)


def test_jobs_do_not_import_each_other() -> None:
    """They know `open_job` only; what training and other jobs do alike stands in rooms below."""
    arrows = {
        (one.importer.split(".")[2], one.imported.split(".")[2])
        for one in imports()
        if one.importer.startswith("grpo_cli.jobs.") and one.imported.startswith("grpo_cli.jobs.")
    }
    wrong = [f"{a} -> {b}" for a, b in sorted(arrows) if a != b and JOBS_FLOOR[b] <= JOBS_FLOOR[a]]
    none("arrows between jobs", wrong)


def test_what_runs_inside_the_sandbox_needs_the_standard_library_only() -> None:
    """But for `numpy`, whose values are read where the judged program has loaded it already."""
    inside = [module for module in modules() if module.startswith("grpo_verifiers.sandbox.inside")]
    foreign = {(m, name) for m in inside for name in outside(m) - set(sys.stdlib_module_names)}
    assert foreign <= {("grpo_verifiers.sandbox.inside.wall.values", "numpy")}
    out = [one for one in imports() if one.importer in inside and one.imported not in inside]
    assert out == []


def test_every_room_is_named_on_the_page_of_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"\w+", page))
    rooms = {path.parent.name for path in modules().values() if path.name == "__init__.py"}
    none("rooms that docs/architecture.md does not name", sorted(rooms - named))


def test_few_parameters_are_any() -> None:
    found = []
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                a = node.args
                for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
                    if arg and arg.annotation and ast.unparse(arg.annotation) in ("Any", "typing.Any"):
                        found.append(f"{module}:{arg.lineno} {node.name}({arg.arg})")
    assert len(found) <= MOST_ANY, f"{len(found)} parameters annotated `Any`:\n" + "\n".join(found)


def test_public_functions_say_the_shapes_of_their_tensors() -> None:
    places = [place for place in public_functions(ROOT) if has_tensor(place.node)]
    assert len(places) > 90
    assert not [str(place) for place in places if not says_shapes(place.node)]


def test_a_public_class_name_has_one_home() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in tree(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    none(
        "class names with several homes",
        [f"{name}: {', '.join(m)}" for name, m in homes.items() if len(m) > 1 and name not in MANY_HOMES],
    )


@pytest.mark.parametrize("words", ["--help", "train --help", "schema", "check recipes/quickstart.yaml"])
def test_quick_commands_import_no_torch(words: str) -> None:
    code = (
        "import sys\n"
        "from grpo_cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'sympy', 'scipy'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
