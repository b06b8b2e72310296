"""Checkpoints without a model."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.resilience.checkpoint import STATE, _write_manifest


def empty_checkpoint(path: Path, step: int) -> Path:
    """A checkpoint that is whole and holds next to nothing."""
    path.mkdir(parents=True)
    (path / STATE).write_text("{}")
    _write_manifest(path, step)
    return path
