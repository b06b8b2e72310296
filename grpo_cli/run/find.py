"""Finds a run by a path, a name under `runs/`, or `last`."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.errors import DataError
from grpo_cli.run.folder import RunFolder
from grpo_verifiers.names import nearest

LAST = "last"


def find_run(named: str, root: str | Path = "runs") -> RunFolder:
    """The run at this path, else of this name under `root`; `last` is the one written to last.

    Raises:
        DataError: no such run; the nearest name is hinted at.
    """
    root = Path(root)
    if named == LAST and not Path(named).exists():
        runs = list_runs(root)
        if not runs:
            raise DataError(f"no run under `{root}`", hint="`grpo train RECIPE` makes one")
        return runs[-1]
    if "/" not in named and not (Path(named) / "run.json").is_file() and (root / named / "run.json").is_file():
        return RunFolder.open(root / named)
    try:
        return RunFolder.open(named)
    except DataError as err:
        if err.hint or "/" in named:
            raise
        names = [run.name for run in list_runs(root)]
        hint = f"the one written to last is `{names[-1]}`" if names else "`grpo train RECIPE` makes one"
        if near := nearest(named, names, 0.5):
            hint = f"did you mean `{near}`?"
        raise DataError(f"no run `{named}` here or under `{root}`", hint=hint) from None


def list_runs(root: Path) -> list[RunFolder]:
    """The runs under a folder, the one written to last at the end."""
    found = []
    for manifest in root.glob("*/run.json"):
        metrics = manifest.with_name("metrics.jsonl")
        newest = metrics if metrics.exists() else manifest
        found.append((newest.stat().st_mtime, manifest.parent.name, RunFolder(manifest.parent)))
    return [folder for _, _, folder in sorted(found, key=lambda entry: entry[:2])]
