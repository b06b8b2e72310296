"""Reads a run while it is written: only new lines, or everything again if a resume has moved lines aside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_cli.errors import DataError
from grpo_cli.lines import whole
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.lines import refuse_pipe
from grpo_cli.run.records import parse_line
from grpo_cli.run.typed import metrics_of


@dataclass(frozen=True, slots=True)
class LogNote:
    """A line of `train.log` that is shown again to the user."""

    at: str
    level: str
    text: str


@dataclass
class NewLines:
    """The new lines since the last call; `restarted`: everything is returned again."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    notes: list[LogNote] = field(default_factory=list)
    status: str = ""
    restarted: bool = False


class FileTail:
    """The whole new lines of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._inode = -1

    def read(self) -> tuple[list[str], bool]:
        """New lines, and whether the file was replaced or cut, so that these are all its lines."""
        try:
            refuse_pipe(self.path)
        except OSError as err:
            raise DataError(f"cannot be read: {err.strerror}", place=str(self.path)) from err
        try:
            with self.path.open("rb") as file:
                found = self.path.stat()
                restarted = self._inode not in (-1, found.st_ino) or found.st_size < self._at
                if restarted:
                    self._at = 0
                self._inode = found.st_ino
                file.seek(self._at)
                found_lines = list(whole(file))
        except FileNotFoundError:
            return [], False
        except OSError as err:
            raise DataError(f"cannot be read: {(err.strerror or 'error').lower()}", place=str(self.path)) from err
        self._at += sum(map(len, found_lines))
        return [line[:-1].decode("utf-8", "replace") for line in found_lines], restarted


_LINE = re.compile(r"(\S+Z) (INFO|WARN|ERROR) +(.*)")


class Follower:
    """One run folder that is read repeatedly."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._metrics = FileTail(folder.path / "metrics.jsonl")
        self._log = FileTail(folder.log_path)

    def look(self) -> NewLines:
        """What is new.

        Raises:
            DataError: a metrics line is broken, or the folder is gone.
        """
        news = NewLines(status=str(self.folder.manifest().get("status") or ""))
        lines, news.restarted = self._metrics.read()
        for line in lines:
            try:
                metrics = metrics_of(parse_line(line))
            except ValueError as err:
                raise DataError(f"broken line: {err}", place=str(self._metrics.path)) from err
            if is_shown_step(metrics):
                news.steps.append(metrics)
            if is_evaluation(metrics):
                news.evaluations.append(metrics)
        for line in self._log.read()[0]:
            match = _LINE.fullmatch(line)
            if match and (match[2] != "INFO" or match[3].startswith("saved")):
                news.notes.append(LogNote(match[1], match[2], match[3]))
        return news


def is_step(metrics: Mapping[str, Any]) -> bool:
    """Whether a line of `metrics.jsonl` is about a training step that drew samples: what rules and reports look at."""
    return "group/count" in metrics


def is_shown_step(metrics: Mapping[str, Any]) -> bool:
    """Whether it is about any training step, also one that learned from a file and drew nothing: what displays count."""
    return is_step(metrics) or "time/step" in metrics


def is_evaluation(metrics: Mapping[str, Any]) -> bool:
    """Whether a line of `metrics.jsonl` is about held-out rows."""
    return any(key.startswith("eval/") for key in metrics)
