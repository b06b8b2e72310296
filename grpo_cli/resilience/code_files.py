"""The files that a user's function depends on: its own, the modules that it imports, the files that it reads.

How this works: nothing is run. A file is parsed, and its imports are searched, recursively, in the folders that its
worker imports from. Other imports belong to a package, which is identified by its version. A string in the code that
names an existing file counts as a file that the code reads, unless the same module writes files: a log or a cache
changes with every run.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from grpo_cli.text import path_of, real_path

MOST = 500
"""Files that are followed."""
WRITERS = ("write_text", "write_bytes", "to_csv", "to_json", "to_parquet", "save", "savez", "commit", "FileHandler")
"""Calls by which a module writes files, in addition to `open` with a mode that writes."""


def files_of_code(spec: str, folders: Sequence[Path]) -> tuple[list[Path], str]:
    """Of `FILE.py:NAME`, `MODULE:NAME` or a module: its files, and `package version` where it is an installed one ("" else).

    Args:
        folders: where it is looked for, in this order.
    """
    where = spec.rpartition(":")[0] or spec
    if where.endswith(".py"):
        start = [path for folder in folders if (path := folder / path_of(where)).is_file()][:1]
    else:
        start = _module_files(where, folders)
    if start:
        return _reached(start, folders), ""
    top = where.partition(".")[0]
    for name in (top, *packages_distributions().get(top, ())):
        with suppress(PackageNotFoundError, ValueError):
            return [], f"{name} {distribution(name).version}"
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return [], ""
    if found is None or found.origin is None:
        return [], ""
    # on Python's path and of no package, such as a checkout
    root = Path(found.origin).parents[1 if found.submodule_search_locations else 0]
    return _reached(_module_files(where, [root]), [root]), ""


def _reached(start: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """These files, those that they import, and those that they read, and so on."""
    found: dict[Path, None] = {}
    waiting = list(start)
    while waiting and len(found) < MOST:
        path = waiting.pop()
        if real_path(path) in found:
            continue
        found[real_path(path)] = None
        if path.suffix != ".py":
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # importing it raises the error that a user sees
        is_writer, read = False, list[Path]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    waiting += _module_files(alias.name, folders)
            elif isinstance(node, ast.ImportFrom):
                places = [path.parents[node.level - 1]] if 0 < node.level <= len(path.parents) else folders
                module = node.module or ""
                for name in (module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)):
                    waiting += _module_files(name, places)
            elif isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                modes = [
                    *node.args[isinstance(node.func, ast.Name) :],
                    *(k.value for k in node.keywords if k.arg == "mode"),
                ]
                texts = [one.value for one in modes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                opens = name == "open" and any(set(mode) & set("wax+") and len(mode) < 5 for mode in texts)
                is_writer = is_writer or opens or name in WRITERS
            elif isinstance(node, ast.Constant) and isinstance(text := node.value, str) and 2 < len(text) < 200:
                # a word without an ending is rarely a file, and often the name of something else
                with suppress(OSError):
                    near = (
                        folder / text
                        for folder in (path.parent, *folders)
                        if "." in text and "\0" not in text and "\n" not in text
                    )
                    read += [place for place in near if place.is_file()][:1]
        waiting += [] if is_writer else read
    return sorted(found)


def _module_files(module: str, folders: Sequence[Path]) -> list[Path]:
    """The file of `a.b` and those of the packages around it; none where no folder holds it."""
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
