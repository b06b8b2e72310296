"""What completions of rows are judged against, made when a row is first asked about: rendering all rows takes its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.reward.judge import Task


def no_assistant_prefix(row: Row) -> str:
    """Of an episode: what is judged is the transcript of its turns, in which each turn stands whole."""
    return ""


class RowTasks:
    """The tasks of rows by index; `assistant_prefix` gives what of the assistant's turn the prompt of a row holds already."""

    def __init__(
        self, rows: Sequence[Row], golds: Mapping[str, Sequence[Any]], assistant_prefix: Callable[[Row], str]
    ) -> None:
        self.rows, self.golds, self.assistant_prefix = rows, golds, assistant_prefix
        self._made: dict[int, Task] = {}

    def __getitem__(self, i: int) -> Task:
        if i not in self._made:
            row = self.rows[i]
            # compiled once a row, whatever the number of its samples
            own = {name: of[i] for name, of in self.golds.items()}
            self._made[i] = Task(own, row.prompt, self.assistant_prefix(row))
        return self._made[i]

    def __len__(self) -> int:
        return len(self.rows)
