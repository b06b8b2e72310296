"""The header and footer of every frame: whether the run is alive, when it will end, the last note, the keys."""

from __future__ import annotations

from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from grpo_cli.display.frame.lines import PanelBlock, Piece, bar_pieces, fit_tail, line
from grpo_cli.display.frame.state import FrameState
from grpo_cli.display.plain import timing
from grpo_cli.text import duration, number, percent, visible

DOING = {
    "generate": "generating", "verify": "verifying", "update": "updating", "evaluate": "evaluating", "save": "saving",
}  # fmt: skip
NOTE_MARKS = {"info": ("·", ""), "good": ("✓", "cyan"), "warn": ("!", "yellow"), "error": ("✘", "red")}
SPINNER = "|/-\\"
CTRL_C = "ctrl-c: finish this step, save, stop"
KEYS = {
    "train": ("? keys", "n group", "p pause", "s save", "e evaluate", "j sample", "ctrl-c: finish, save, stop"),
    "watch": ("? keys", "n group", "j sample", "w wrong only", "q: leave, the run goes on"),
}
"""Sorted by importance. If they do not all fit, the last one stays and the ones before it are dropped from the
right."""


def beginning(state: FrameState, width: int, is_wide: bool) -> list[PanelBlock]:
    """Before the first step: the current activity, and the run's name when it is known."""
    if not state.info.run:
        return [PanelBlock((_activity(state, width, is_wide),), 0, 1), notes(state, width, 2)]
    return [header(state, width, is_wide), notes(state, width, 4), footer(state, width)]


def header(state: FrameState, width: int, is_wide: bool) -> PanelBlock:
    """Whether the run is alive, when it will end, and which phases take the time."""
    info = state.info
    name = info.recipe if is_wide else info.recipe.rsplit("/", 1)[-1]
    title = f"grpo {info.command}{'  ' if is_wide else ' '}{visible(name)}"
    run = visible(info.run)
    if is_wide:
        extras = (
            [f"run {run}"]
            + ([f"seed {info.seed}"] if info.seed is not None else [])
            + ([visible(info.device)] if info.device else [])
        )
        run = " · ".join(extras)
    run = fit_tail(run, max(width - cell_len(title) - 4, 12))
    top = line(width, Piece(1, title, "bold"), Piece(max(width - cell_len(run), 2), run))
    share = share_done(state)
    left = f" step {state.last.get('step', info.start_step)}/{info.steps or number(None)} "
    until = state.ended or f"eta {duration(state.last.get('eta_s'))}"
    right = f"  {number(None) if share is None else percent(share)} · {until}"
    room = max(width - len(left) - len(right) - 8, 8)
    bar = bar_pieces(len(left), share or 0.0, room)
    steps = line(width, Piece(0, left), *bar, Piece(len(left) + room, right))
    return PanelBlock((top, steps, _activity(state, width, is_wide)), 0, 3)


def share_done(state: FrameState) -> float | None:
    """Steps done over steps wanted."""
    return (state.last.get("step") or 0) / state.info.steps if state.info.steps else None


def activity_text(state: FrameState) -> str:
    """`generating 96/128`, or the noun and the seconds of work without a count."""
    doing = state.activity
    if doing is None:
        return state.ended or ("waiting" if state.recent else "starting")
    word = DOING.get(doing.name, doing.name)
    count = "" if doing.done is None else f" {doing.done}"
    count += f"/{doing.total}" if count and doing.total is not None else ""
    took = state.now - doing.since
    return f"{word}{count}" if doing.is_step and count else f"{word}{count}  {duration(took)}"


def _activity(state: FrameState, width: int, is_wide: bool) -> Text:
    doing, text = state.activity, activity_text(state)
    if doing is None or doing.is_step:
        spent = timing(state.last) if state.recent else ""
        if is_wide and doing is not None and doing.done is not None and doing.total:
            text = f"{text:<18} "
            at = 1 + len(text)
            done = bar_pieces(at, doing.done / doing.total, 21)
            return line(width, Piece(1, text), *done, Piece(at + 24, f"last step {spent}"))
        at = max(21, len(text) + 4)
        if not is_wide and at + len(spent) > width:  # the total alone: a sum without its last parts would mislead
            spent = spent.partition(" = ")[0]
        return line(width, Piece(1, text), Piece(at, f"last step {spent}" if is_wide else spent))
    if doing.done is not None and doing.total:
        return line(width, Piece(1, text), *bar_pieces(len(text) + 3, doing.done / doing.total, 30))
    return line(width, Piece(1, SPINNER[int(state.now * 4) % len(SPINNER)], "bold"), Piece(3, text))


def notes(state: FrameState, width: int, most: int) -> PanelBlock:
    """The last notes; the newest stays longest."""
    lines = []
    for note in reversed(state.notes[-most:]):
        mark, style = NOTE_MARKS[note.level]
        clock = f"{datetime.fromtimestamp(note.at).strftime('%H:%M')} " if most > 1 else ""
        place = f"step {note.step}  " if note.step is not None else ""
        text = visible(note.text.strip().replace("\n", " "))
        hint = f": {visible(note.hint)}" if note.hint else ""
        lines.append(line(width, Piece(1, mark, style), Piece(3, f"{clock}{place}{text}{hint}", style)))
    return PanelBlock(tuple(lines), 1, min(1, len(lines)))


def footer(state: FrameState, width: int) -> PanelBlock:
    """Keys, how to stop, and the log if there is room."""
    is_watch, keys = state.info.command == "watch", ""
    if state.keys and not state.ended:
        *some, last = KEYS["watch" if is_watch else "train"]
        while some and cell_len("   ".join([*some, last])) > width - 2:
            some.pop()
        keys = "   ".join([*some, last])
    elif not state.ended and not is_watch:
        keys = CTRL_C
    log = state.info.log
    room = width - cell_len(keys) - 12
    shown = fit_tail(visible(log), room) if log and room >= 8 else ""
    right = f"log {shown}" if shown else ""
    return PanelBlock((line(width, Piece(1, keys, "dim"), Piece(max(width - cell_len(right), 2), right, "dim")),), 1, 1)
