"""Deleting runs: never one that may still be written to, and never a folder that is no run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from grpo_cli.errors import SetupError, UsageError
from grpo_cli.jobs.runs.summary import RunSummary, summarise
from grpo_cli.run.folder import RunFolder


def removable(folders: Sequence[RunFolder], even_running: bool = False) -> list[RunSummary]:
    """What would go.

    Raises:
        UsageError: one of them still runs.
    """
    found = [summarise(folder) for folder in folders]
    for one in found:
        if not one.is_over and not even_running:
            raise UsageError(
                f"`{one.name}` is running",
                hint="end it first, or say --force if nothing writes to it any more",
            )
    return found


def remove(found: Sequence[RunSummary]) -> int:
    """Delete them with their checkpoints, samples and logs; returns the bytes that were taken.

    Raises:
        SetupError: a folder could not be deleted; those before it are gone.
    """
    freed = 0
    for one in found:
        try:
            shutil.rmtree(one.path)
        except OSError as err:
            raise SetupError(f"`{one.path}` could not be deleted: {err.strerror or err}") from err
        freed += one.bytes
    return freed
