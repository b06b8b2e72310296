"""The files that a function of a user's is made of: its own, the modules beside it that it imports, the files that it reads.

How this works: nothing is run. A file is parsed, its imports are looked for in the folders that its worker imports from, and
so on from there; what lies in none of them belongs to a package, which is known by its version. A text in the code that names
a file is one that the code reads, unless the same module writes files: a log or a cache changes with every run.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from grpo_cli.text import path_of

MOST = 500
"""Files that are followed."""
WRITERS = ("write_text", "write_bytes", "to_csv", "to_json", "to_parquet", "save", "savez", "commit", "FileHandler")
"""Calls by which a module writes files, beside `open` with a mode that writes."""


def files_of_code(spec: str, folders: Sequence[Path]) -> tuple[list[Path], str]:
    """Of `FILE.py:NAME`, `MODULE:NAME` or a module: its files, and `package version` where it is an installed one ("" else).

    Args:
        folders: where it is looked for, first first.
    """
    where = spec.rpartition(":")[0] or spec
    if where.endswith(".py"):
        start = [path for folder in folders if (path := folder / path_of(where)).is_file()][:1]
    else:
        start = _module_files(where, folders)
    if start:
        return _reached(start, folders), ""
    top = where.partition(".")[0]
    if version := _package(top):
        return [], version
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return [], ""
    if found is None or found.origin is None:
        return [], ""
    # on Python's path and of no package, such as a checkout
    root = Path(found.origin).parents[1 if found.submodule_search_locations else 0]
    return _reached(_module_files(where, [root]), [root]), ""


def _package(module: str) -> str:
    for name in (module, *packages_distributions().get(module, ())):
        try:
            return f"{name} {distribution(name).version}"
        except (PackageNotFoundError, ValueError):
            continue
    return ""


def _reached(start: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    waiting = list(start)
    while waiting and len(found) < MOST:
        path = waiting.pop()
        if path.resolve() in found:
            continue
        found[path.resolve()] = None
        if path.suffix != ".py":
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # importing it raises the error that a user sees
        waiting += [*_imported(tree, path, folders), *_read_by(tree, path, folders)]
    return sorted(found)


def _imported(tree: ast.AST, path: Path, folders: Sequence[Path]) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(alias.name, folders)
        elif isinstance(node, ast.ImportFrom):
            places = [path.parents[node.level - 1]] if 0 < node.level <= len(path.parents) else folders
            module = node.module or ""
            yield from _module_files(module, places)
            for alias in node.names:
                yield from _module_files(f"{module}.{alias.name}".lstrip("."), places)


def _module_files(module: str, folders: Sequence[Path]) -> list[Path]:
    """The file of `a.b` and those of the packages that it lies in; none where no folder holds it."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    for folder in folders:
        inner = folder.joinpath(*parts)
        own = [path for path in (inner.with_name(f"{parts[-1]}.py"), inner / "__init__.py") if path.is_file()]
        if own:
            above = (folder.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts)))
            return [*own, *(path for path in above if path.is_file())]
    return []


def _read_by(tree: ast.AST, path: Path, folders: Sequence[Path]) -> Iterator[Path]:
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if _is_writer(tree):
        return
    for text in texts:
        # a word without an ending is rarely a file, and often the name of something else
        if 2 < len(text) < 200 and "." in text and "\0" not in text and "\n" not in text:
            places = (folder / text for folder in (path.parent, *folders))
            try:
                yield from [place for place in places if place.is_file()][:1]
            except OSError:
                continue


def _is_writer(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in WRITERS:
            return True
        given = [*node.args[isinstance(node.func, ast.Name) :], *(k.value for k in node.keywords if k.arg == "mode")]
        modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if name == "open" and any(set(mode) & set("wax+") and len(mode) < 5 for mode in modes):
            return True
    return False
