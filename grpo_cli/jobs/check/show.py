"""The prompt of one row exactly as the model gets it, cut where its special tokens stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from grpo_cli.data.rows import Row
from grpo_cli.jobs.check.text import visible
from grpo_cli.jobs.check.tokens import PromptMaker
from grpo_cli.text import Json


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """One added token (`<|im_start|>`), or the tokens between two of them, with their text."""

    token_ids: list[int]
    text: str
    is_added: bool


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A row's prompt in pieces; `assistant_prefix` is what of the answer stands in it."""

    place: str
    text: str
    pieces: Sequence[PromptPiece]
    assistant_prefix: str

    def lines(self) -> list[str]:
        """What a person reads: an added token with its id, other text with its number of tokens; escapes as in Python."""
        count = sum(len(piece.token_ids) for piece in self.pieces)
        head = f"the prompt of {self.place}, {count:,} tokens:"
        shown = [
            f"  {f'[{piece.token_ids[0]}]' if piece.is_added else f'{len(piece.token_ids):,} x':>10}  {visible(piece.text)}"
            for piece in self.pieces
        ]
        tail = (
            [f"  the answer begins with {visible(self.assistant_prefix)!r}, which verifiers read"]
            if self.assistant_prefix
            else []
        )
        return [head, *shown, *tail, ""]

    def as_json(self) -> dict[str, Json]:
        """The same for `--json`."""
        pieces: list[Json] = [
            {"token_ids": p.token_ids, "text": p.text, "added": p.is_added} for p in self.pieces
        ]
        return {"place": self.place, "text": self.text, "begun": self.assistant_prefix, "pieces": pieces}


def show_prompt(maker: PromptMaker, row: Row) -> ShownPrompt:
    """The prompt of a row.

    Raises:
        SetupError, DataError: it cannot be rendered.
    """
    (ids,) = maker.ids([row])
    added = maker.encodes.added
    pieces: list[PromptPiece] = []
    for is_added, run in groupby(ids, key=added.__contains__):
        token_ids = list(run)
        if is_added:
            pieces += [PromptPiece([token], added[token], True) for token in token_ids]
        else:
            pieces.append(PromptPiece(token_ids, maker.encodes.decode(token_ids), False))
    return ShownPrompt(row.place, maker.prompts.text(row), pieces, maker.prompts.assistant_prefix(row))
