"""The prompt of one row exactly as the model gets it, cut where its special tokens stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from grpo_cli.data.rows import Row
from grpo_cli.jobs.check.findings import CheckFinding
from grpo_cli.jobs.check.tokens import PromptMaker
from grpo_cli.text import Json

# What a person reads of the checks of a recipe.

COLOURS = {"ok": "32", "note": "36", "unknown": "33", "warn": "33", "fail": "31"}


def text(finding: CheckFinding, colour: bool) -> list[str]:
    """What a person reads of one check; the level stands as a word, colour only repeats it."""
    word = f"{finding.level.value:<8}"
    if colour:
        word = f"\x1b[{COLOURS[finding.level.value]}m{word}\x1b[0m"
    lines = [f"{word}{finding.check:<12} {visible(finding.message)}"]
    lines += [f"{'':<21}{visible(line)}" for line in finding.lines]
    return lines + ([f"{'':<21}hint: {visible(finding.hint)}"] if finding.hint else [])


def example(row: Row | None) -> list[str]:
    """The first row as the model will get it."""
    if row is None:
        return []
    turns = [("prompt", row.prompt)] if row.messages is None else [(m["role"], m["content"]) for m in row.messages]
    if (gold := row.fields.get("answer")) is not None:
        turns.append(("answer", gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)))
    return [f"the first row, {row.place}:", *(f"  {name:<10} {short(value)}" for name, value in turns), ""]


def summary(recipe: str, findings: Sequence[CheckFinding], seconds: float) -> str:
    """The last lines: counts, and the next command."""
    count = {level: sum(f.level.value == level for f in findings) for level in COLOURS}
    said = [f"{count[level]} {level}" for level in ("fail", "warn", "unknown") if count[level]]
    head = f"{len(findings)} checks in {seconds:.1f} s" + (f": {', '.join(said)}" if said else ", nothing found")
    return head if count["fail"] or recipe == "-" else f"{head}\nnext: grpo train {recipe}"


def short(value: str, most: int = 400) -> str:
    """A value on one line, cut at the end, control characters made visible."""
    line = visible(value.replace("\n", "⏎"))
    return line if len(line) <= most else line[: most - 1] + "…"


def visible(value: str) -> str:
    """Text that cannot steer a terminal: control and direction characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


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
        pieces: list[Json] = [{"token_ids": p.token_ids, "text": p.text, "added": p.is_added} for p in self.pieces]
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
