"""How an episode begins: what its world says stands behind the row's last message of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault
from grpo_cli.errors import DataError


def same_observation(row: Row, said: Sequence[str | Fault]) -> str:
    """What the worlds of one row said at the start, which is one and the same.

    Raises:
        DataError: one could not begin, or they differ: the samples of a prompt would not be comparable.
    """
    for found in said:
        if isinstance(found, Fault):
            raise DataError(found.text, place=row.place, hint="mend the row, or the environment's `reset`")
    if len(set(said)) > 1:
        raise DataError(
            f"`reset` says different things for the same row and seed: {said[0]!r:.80}, {next(s for s in said if s != said[0])!r:.80}",
            place=row.place,
            hint="draw all chance in `reset` from its `seed`",
        )
    return str(said[0]) if said else ""


def with_observation(row: Row, said: str) -> Row:
    """The row with what its world said at the start behind its last message of the user."""
    if not said or row.messages is None:
        return row
    messages: list[Any] = [dict(message) for message in row.messages]
    # behind the user's last words, where the task stands; a row without any has only its last message
    at = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=len(messages) - 1)
    messages[at]["content"] = f"{messages[at]['content']}{said}"
    return replace(row, messages=messages, prompt=f"{row.prompt}{said}")
