"""The small frame (below 60 x 12): the few lines that say whether it lives and learns, one number each."""

from __future__ import annotations

from rich.text import Text

from grpo_cli.display.frame import kinds
from grpo_cli.display.frame.curves import spark_of
from grpo_cli.display.frame.header import activity_text, notes, share_done
from grpo_cli.display.frame.lines import PanelBlock, Piece, line
from grpo_cli.display.frame.panels import TOTAL
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import bar, duration, number, percent, plus_minus, score, visible

NARROWEST = 24


def small(state: FrameState, width: int) -> list[PanelBlock]:
    """Step, reward, held-out, groups, what is cut off, the last note; the least needed line gives way first."""
    if not state.recent:
        return [PanelBlock((line(width, Piece(0, activity_text(state))),), 0, 1), notes(state, width, 1)]
    if width < NARROWEST:
        return [PanelBlock((_in_one(state, width),), 0, 1)]
    last = state.last
    at = 10
    lines = [
        (_step(state, width), 0),
        (line(width, Piece(0, activity_text(state), "dim")), 3),
        (_valued(width, "reward", score(last.get(TOTAL)), spark_of(TOTAL, state.curve(TOTAL), width - 17, state.info.steps), "cyan"), 1),
        (line(width, Piece(0, "groups"), *kinds.bar(state, at, min(width - at, 60))), 2),
        (line(width, *(Piece(p.column + at, p.text, p.style) for p in kinds.counts_text(state))), 5),
        (line(width, Piece(0, f"cut off {percent(last.get('truncated'))}   no answer {percent(last.get('no_answer'))}"
                              f"   length {number(last.get('length/mean'))}")), 6),
    ]  # fmt: skip
    if state.held_out is not None:
        key, value = state.held_out
        text = f"{score(value)} {plus_minus(state.evaluations[-1].get(f'{key}/half'))}".rstrip()
        where = f"at step {state.evaluations[-1].get('step')}"
        lines.insert(3, (_valued(width, "held-out", text, where, "dim"), 4))
    blocks = [PanelBlock((text,), rank, 0 if rank else 1) for text, rank in lines]
    foot = "? keys   ctrl-c: stop" if state.keys and state.info.command != "watch" else ""
    return [
        *blocks,
        notes(state, width, 1),
        PanelBlock((line(width, Piece(0, foot, "dim")),) if foot else (), 7),
    ]


def _step(state: FrameState, width: int) -> Text:
    left = f"{state.last.get('step')}/{state.info.steps or number(None)} "
    share = share_done(state) or 0.0
    right = f" {percent(share)} {state.ended or 'eta ' + duration(state.last.get('eta_s'), '')}"
    room = max(min(width - len(left) - len(right), 40), 0)
    full, empty = bar(share, room)
    at = len(left)
    return line(
        width,
        Piece(0, left, "bold"),
        Piece(at, full, "bold"),
        Piece(at + len(full), empty, "dim"),
        Piece(at + room, right),
    )


def _valued(width: int, name: str, value: str, rest: str, style: str) -> Text:
    return line(
        width, Piece(0, name), Piece(10, value, "bold"), Piece(max(16, 11 + len(value)), visible(rest), style)
    )


def _in_one(state: FrameState, width: int) -> Text:
    return line(
        width, Piece(0, f"{state.last.get('step')}/{state.info.steps} {score(state.last.get(TOTAL))}")
    )
