"""A row of charts of the whole run, side by side: reward with the held-out points on it, groups, entropy, length, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from grpo_cli.display.frame import kinds
from grpo_cli.display.frame.curves import area, bounds, columns_of, points_of
from grpo_cli.display.frame.lines import Piece, fit, line
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import number, score

NARROWEST = 38
LABEL = 6
POINT = "●"


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric and its name; `groups` stacks the kinds of groups instead."""

    title: str
    key: str


CHARTS = (
    Chart("reward", "reward/total/mean"),
    Chart("groups", "groups"),
    Chart("entropy", "entropy"),
    Chart("length", "length/mean"),
    Chart("seconds a step", "time/step"),
)


def charts(state: FrameState, width: int, height: int) -> list[Text]:
    """`height` lines, title and axis among them; as many charts as have room, at equal widths."""
    shown = [c for c in CHARTS if c.key == "groups" or any(v is not None for v in state.curve(c.key))]
    shown = shown[: max(1, width // NARROWEST)]
    each = width // len(shown)
    drawn = [_drawn(state, chart, each - 1, height) for chart in shown]
    lines = []
    for row in range(height):
        pieces = [
            Piece(i * each + piece.column, piece.text, piece.style)
            for i, rows in enumerate(drawn)
            for piece in rows[row]
        ]
        lines.append(line(width, *pieces))
    return lines


def _drawn(state: FrameState, chart: Chart, width: int, height: int) -> list[list[Piece]]:
    room, rows = width - LABEL - 1, height - 2
    if chart.key == "groups":
        body = [_moved(row) for row in kinds.over_time(state, room, rows, state.info.steps)]
        title, low, high = "groups", "0%", "100%"
        drawn = len(columns_of(state.curve(kinds.KINDS[0].key), room, state.info.steps))
    else:
        body, low, high, drawn = _curve(state, chart.key, room, rows)
        title = chart.title
    for label, row in ((high, 0), (low, rows - 1)):
        body[row].insert(0, Piece(0, f"{label:>{LABEL - 1}}", "dim"))
    return [_title(state, title, chart.key, width), *body, _axis(state, drawn)]


def _title(state: FrameState, title: str, key: str, width: int) -> list[Piece]:
    text = f"─ {title} "
    pieces = [Piece(0, text, "dim")]
    at = len(text)
    legend: list[tuple[str, str]] = []
    if key == "groups":
        legend = [(f"{kind.glyph} {kind.word} ", kind.style) for kind in kinds.KINDS]
    elif key == "reward/total/mean":
        held_out = state.held_out
        legend = [(f"{POINT} held-out {score(held_out[1])} ", "bold")] if held_out else []
    for word, style in legend:
        if at + len(word) < width:
            pieces.append(Piece(at, word, style))
            at += len(word)
    return [*pieces, Piece(at, "─" * (width - at), "dim")]


def _curve(state: FrameState, key: str, room: int, rows: int) -> tuple[list[list[Piece]], str, str, int]:
    curve = state.curve(key)
    columns = columns_of(curve, room, state.info.steps)
    points: dict[int, float] = {}
    if key == "reward/total/mean" and state.held_out:
        first, last = state.steps_shown
        points = dict(points_of(state.evaluations, state.held_out[0], first, last, len(columns)))
    low, high = bounds(key, [*curve, *points.values()])
    body = [
        [Piece(LABEL, text, "cyan" if key.startswith("reward") else "")]
        for text in area(columns, rows, low, high)
    ]
    for column, value in sorted(points.items()):
        share = (value - low) / (high - low) if high > low else 0.0
        _put(body[rows - 1 - min(int(share * rows), rows - 1)], LABEL + column)
    return body, number(low), number(high), len(columns)


def _put(row: list[Piece], column: int) -> None:
    """A point over what is drawn there: the text around it keeps its style."""
    piece = row.pop()
    at = column - piece.column
    row += [
        Piece(piece.column, piece.text[:at], piece.style),
        Piece(column, POINT, "bold"),
        Piece(column + 1, piece.text[at + 1 :], piece.style),
    ]


def _moved(row: Sequence[Piece]) -> list[Piece]:
    return [Piece(piece.column + LABEL, piece.text, piece.style) for piece in row]


def _axis(state: FrameState, columns: int) -> list[Piece]:
    first, last = (str(step) for step in state.steps_shown)
    pieces = [Piece(LABEL, fit(first, columns), "dim")]
    if columns > len(first) + len(last):
        pieces.append(Piece(LABEL + columns - len(last), last, "dim"))
    return pieces
