"""Lines of exact cells: pieces put at columns, cut where the next one or the edge begins. Wide characters count two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from grpo_cli.text import bar, visible


class Piece(NamedTuple):
    """Text at a column; style is a rich style."""

    column: int
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class PanelBlock:
    """Lines of one panel. Lines of high ranks are dropped first, down to `least`; a block that is left with its `title`
    lines is dropped."""

    lines: tuple[Text, ...]
    rank: int
    least: int = 0
    title: int = 0


def line(width: int, *pieces: Piece) -> Text:
    """Pieces in order of their columns; what does not fit before the next piece is cut."""
    text = Text(no_wrap=True, overflow="crop", end="")
    at = 0
    for i, piece in enumerate(pieces):
        if piece.column >= width:
            break
        edge = min(width, pieces[i + 1].column if i + 1 < len(pieces) else width)
        if piece.column > at:
            text.append(" " * (piece.column - at))
            at = piece.column
        shown = fit(piece.text, edge - at)
        text.append(shown, style=piece.style or None)
        at += cell_len(shown)
    return text


def bar_pieces(column: int, share: float, cells: int) -> tuple[Piece, Piece]:
    """A bar of `cells` from a column, `share` of it full."""
    full, empty = bar(share, cells)
    return Piece(column, full, "bold"), Piece(column + len(full), empty, "dim")


def rule(width: int, *labels: tuple[int, str]) -> Text:
    """A rule with labels at columns: `─ reward ───── now ──`."""
    text = ""
    for column, label in labels:
        if column + cell_len(label) + 1 > width:
            break
        text += "─" * (column - 1 - cell_len(text)) + f" {label} "
    return Text(text + "─" * (width - cell_len(text)), style="dim", no_wrap=True, overflow="crop", end="")


def fit(text: str, cells: int) -> str:
    """At most this many cells, the end cut with …"""
    if cells <= 0:
        return ""
    if (len(text) if text.isascii() else cell_len(text)) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def fit_tail(text: str, cells: int) -> str:
    """At most this many cells, the beginning cut with …"""
    if cells <= 0:
        return ""
    if (len(text) if text.isascii() else cell_len(text)) <= cells:
        return text
    kept = text[-cells:]
    while cell_len(kept) > cells - 1:
        kept = kept[1:]
    return "…" + kept


def tail(text: str, cells: int) -> str:
    """The end of hostile text, on one line."""
    cut = len(text) > 4 * cells
    shown = " ".join(visible(text[-4 * cells :]).split())
    return fit_tail(("…" + shown) if cut else shown, cells)


def columns(width: int, parts: Sequence[str], gap: str = "   ") -> str:
    """Parts side by side, as many as fit."""
    text = ""
    for part in parts:
        grown = text + gap + part if text else part
        if cell_len(grown) > width:
            break
        text = grown
    return text


def split_rule(width: int, at: int, left: str, right: str) -> Text:
    """A rule over two panels side by side, with a tee where they meet."""
    text = f"{rule(width, (2, left)).plain[:at]}┬─ {right} " + "─" * (width - at - len(right) - 4)
    return Text(text, style="dim", no_wrap=True, overflow="crop", end="")
