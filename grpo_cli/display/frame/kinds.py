"""Groups by the outcomes of their samples: wrong, mixed, right. Glyph, colour and order distinguish them; the order
never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from grpo_cli.display.frame.curves import columns_of
from grpo_cli.display.frame.lines import Piece
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import BLOCKS, number

MOST_HISTOGRAM = 17


@dataclass(frozen=True, slots=True)
class Kind:
    """Red, yellow and cyan differ for all three kinds of colour blindness, and follow the terminal's own palette."""

    word: str
    key: str
    glyph: str
    style: str


KINDS = (
    Kind("wrong", "group/all_wrong", "░", "red"),
    Kind("mixed", "group/mixed", "▒", "yellow"),
    Kind("right", "group/all_right", "█", "cyan"),
)


def shares(counts: Sequence[float], width: int, least: int = 0) -> list[int]:
    """Cells of a bar of `width` for each count, by largest remainder; with `least` 1 every count above 0 gets a cell
    where there is room."""
    total = sum(counts)
    if total <= 0 or width <= 0:
        return [0 for _ in counts]
    exact = [count / total * width for count in counts]
    cells = [int(share) for share in exact]
    by_rest = sorted(range(len(counts)), key=lambda i: cells[i] - exact[i])
    for i in by_rest[: width - sum(cells)]:
        cells[i] += 1
    for i, count in enumerate(counts):
        largest = max(range(len(cells)), key=cells.__getitem__)
        if least and count > 0 and cells[i] == 0 and cells[largest] > 1:
            cells[i], cells[largest] = 1, cells[largest] - 1
    return cells


def counts_text(state: FrameState) -> list[Piece]:
    """`wrong 3  mixed 9  right 4`, each word in its colour, from column 0."""
    pieces, at = [], 0
    for kind in KINDS:
        text = f"{kind.word} {number(state.last.get(kind.key))}"
        pieces.append(Piece(at, text, kind.style))
        at += len(text) + 2
    return pieces


def bar(state: FrameState, column: int, width: int) -> list[Piece]:
    """One stacked bar over all groups of the last step; nothing before the first."""
    cells = shares([state.last.get(kind.key) or 0 for kind in KINDS], width, least=1)
    pieces = []
    for kind, room in zip(KINDS, cells, strict=True):
        if room:
            pieces.append(Piece(column, kind.glyph * room, kind.style))
        column += room
    return pieces


def over_time(state: FrameState, width: int, height: int, steps: int) -> list[list[Piece]]:
    """Stacked columns of the whole run, the top row first; right stands at the foot, so it rises as the model learns."""
    curves = [columns_of(state.curves.of(kind.key), width, steps) for kind in KINDS]
    stacks = [shares([v or 0.0 for v in column], height) for column in zip(*curves, strict=True)]
    rows = []
    for row in range(height):
        pieces: list[Piece] = []
        for at, cells in enumerate(stacks):
            tops = zip(KINDS, accumulate(cells), strict=True)
            glyph, style = next(((kind.glyph, kind.style) for kind, top in tops if row < top), (" ", ""))
            if pieces and pieces[-1].style == style:
                pieces[-1] = Piece(pieces[-1].column, pieces[-1].text + glyph, style)
            else:
                pieces.append(Piece(at, glyph, style))
        rows.append(pieces)
    return rows


def histogram(state: FrameState, which: str = "last") -> str:
    """`0/8 ▆▂▂▂▄▂▄▂█ 8/8`: groups by how many of their samples are right; many bins are joined."""
    metrics = state.last if which == "last" else state.first or {}
    counts: list[int] = []
    while (count := metrics.get(f"group/hist/{len(counts)}")) is not None:
        counts.append(count)
    if not counts:
        return number(None)
    size = len(counts) - 1
    if len(counts) > MOST_HISTOGRAM:
        inner, joined = counts[1:-1], -(-(len(counts) - 2) // (MOST_HISTOGRAM - 2))
        counts = [counts[0], *(sum(inner[i : i + joined]) for i in range(0, len(inner), joined)), counts[-1]]
    top = max(max(counts), 1)
    bars = "".join(BLOCKS[0] if c == 0 else BLOCKS[max(1, round(7 * c / top))] for c in counts)
    return f"0/{size} {bars} {size}/{size}"
