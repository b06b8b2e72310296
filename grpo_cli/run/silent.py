"""The run folder as every rank but the first sees it: it may be read, and what is written goes nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.records import SampleRecord


class SilentRun(RunFolder):
    """Same paths, no writes."""

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Rank 0 writes them."""

    def write_samples(self, step: int, records: Sequence[SampleRecord], split: Split = "train") -> Path:
        """Rank 0 writes them."""
        return self.sample_path(step, split)

    def write_probe(self, found: Mapping[str, Any], records: Sequence[SampleRecord]) -> None:
        """Rank 0 writes it."""

    def log(self, level: str, text: str) -> None:
        """Rank 0 logs."""

    def update_manifest(self, **values: object) -> None:
        """Rank 0 does."""
