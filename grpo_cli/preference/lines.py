"""Lines of a file of pairs, under the names that TRL's data sets have; what else a line says is for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_cli.preference.pairs import RowPairs

ANSWERS = ("chosen", "rejected", "completion")
"""The keys under which a line holds what a model has said."""


def pair_lines(row: RowPairs) -> Iterator[dict[str, Any]]:
    """One line a pair: `prompt`, `chosen`, `rejected`, and the row, lengths and steps they come from."""
    for pair in row.pairs:
        winner, loser = row.samples[pair.chosen.place], row.samples[pair.rejected.place]
        yield {
            "row": winner.row,
            "prompt": winner.prompt,
            "chosen": pair.chosen.text,
            "rejected": pair.rejected.text,
            "chosen_length": pair.chosen.length,
            "rejected_length": pair.rejected.length,
            "chosen_step": winner.step,
            "rejected_step": loser.step,
        }


def answer_lines(row: RowPairs) -> Iterator[dict[str, Any]]:
    """One line a whole, judged, distinct answer: `prompt`, `completion` and `label`, as KTO takes them."""
    for answer in row.answers:
        sample = row.samples[answer.place]
        yield {
            "row": sample.row,
            "prompt": sample.prompt,
            "completion": answer.text,
            "label": answer.is_right,
            "length": answer.length,
            "step": sample.step,
        }
