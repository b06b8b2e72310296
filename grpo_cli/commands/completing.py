"""What Tab offers after `grpo --install-completion`: recipes, runs, keys of a recipe, names that `explain` accepts.

Each is imported when it is asked for: the shell waits at every Tab, and starting the program must stay quick.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path

RUNS = "runs"


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes by name, YAML files, folders of a `recipe.yaml` and those that lead to them."""
    from grpo_cli.recipe.reading.source import shipped_recipes

    named = [name for name in shipped_recipes() if name.startswith(incomplete)]
    return [*named, *_paths(incomplete, lambda path: path.suffix in (".yaml", ".yml"))]


def runs(incomplete: str) -> list[str]:
    """`last`, then the runs under `runs/` by name, the newest first, and run folders by path."""
    from grpo_cli.run.find import list_runs

    named = ["last", *(run.name for run in reversed(list_runs(Path(RUNS))))]
    found = [name for name in named if name.startswith(incomplete)]
    return [*found, *_paths(incomplete, lambda path: (path / "run.json").is_file())]


def settings(incomplete: str) -> list[str]:
    """`KEY=` of every key, and its values where they are a few words."""
    from grpo_cli.jobs.explain.subjects import keys_by_path

    known = keys_by_path()
    paths = sorted(path for path in known if not path.startswith("verify.NAME"))
    key, equals, begun = incomplete.partition("=")
    if equals and key in paths:
        words = [word.strip() for word in known[key]["values"].split("|")]
        return [f"{key}={word}" for word in words if word.isidentifier() and word.startswith(begun)]
    return [f"{path}=" for path in paths if path.startswith(incomplete)]


def subjects(incomplete: str) -> list[str]:
    """All that `grpo explain` can be asked about."""
    from grpo_cli.jobs.explain.subjects import SUBJECTS

    return sorted({name for one in SUBJECTS for name in one.names() if name.startswith(incomplete)})


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> list[str]:
    found = sorted(map(Path, glob.glob(glob.escape(incomplete) + "*")))
    return [
        f"{path}/" if path.is_dir() and not wanted(path) else str(path)
        for path in found
        if path.is_dir() or wanted(path)
    ]
