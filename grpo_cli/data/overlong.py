"""Prompts that do not fit are left out whole and counted. Cutting one would ask another question than its gold answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError


@dataclass(frozen=True, slots=True)
class FittingRows:
    """The rows that fit, and the others with their token counts, longest first."""

    rows: list[Row]
    dropped: list[tuple[Row, int]]
    limit: int

    def summary(self) -> str:
        """One line for the log; empty when nothing was dropped."""
        if not self.dropped:
            return ""
        whole = len(self.rows) + len(self.dropped)
        row, tokens = self.dropped[0]
        return (
            f"dropped {len(self.dropped):,} of {whole:,} rows: prompts over {self.limit:,} tokens"
            f" (the longest has {tokens:,}, {row.place or row.id})"
        )


def drop_overlong(rows: Sequence[Row], count_tokens: Callable[[Row], int], limit: int | None) -> FittingRows:
    """Keep rows whose prompt, chat template included, has at most `limit` tokens; None keeps all without counting.

    Raises:
        DataError: no row fits.
    """
    if limit is None:
        return FittingRows(list(rows), [], 0)
    counted = [(row, count_tokens(row)) for row in rows]
    kept = [row for row, tokens in counted if tokens <= limit]
    dropped = sorted((pair for pair in counted if pair[1] > limit), key=lambda pair: -pair[1])
    if rows and not kept:
        raise none_fits(*min(counted, key=lambda pair: pair[1]), limit)
    return FittingRows(kept, dropped, limit)


def none_fits(shortest: Row, tokens: int, limit: int) -> DataError:
    """The error where every prompt is too long, with the shortest one and its tokens."""
    return DataError(
        f"every prompt is over {limit:,} tokens; the shortest has {tokens:,}",
        place=shortest.place,
        hint="raise `data.max_prompt_tokens`, lower `sample.max_tokens`, or take a model with a longer context",
    )
