"""The live frame as a pure function of state and size. It never exceeds its size: blocks give way in a fixed order.

Three forms: the wide one with curves and the verifier table (from 100 x 30), the narrow one (from 60 x 12), one line below.
"""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from grpo_cli.display.frame import narrow, panels, wide
from grpo_cli.display.frame.lines import Piece, line
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import as_ascii, duration, number, percent, score

MOST_LINES = 28
WIDE = (100, 29)
SMALLEST = (60, 12)


def frame(state: FrameState, width: int, height: int, *, ascii: bool = False) -> Group:
    """The frame for a terminal of this size, as something rich can print."""
    lines = frame_lines(state, width, height, ascii=ascii)
    for text in lines:
        text.end = "\n"
    return Group(*lines)


def frame_lines(state: FrameState, width: int, height: int, *, ascii: bool = False) -> list[Text]:
    """The lines of the frame, each narrower than the terminal and fewer than its rows."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        lines = [tiny(state, max(width - 1, 1))]
    else:
        is_wide = width >= WIDE[0] and height >= WIDE[1]
        blocks = (wide.blocks if is_wide else narrow.blocks)(state, min(width, 200) - 1)
        lines = _shrink(blocks, min(MOST_LINES, height - 1))
    return [_ascii(text) for text in lines] if ascii else lines


def _shrink(blocks: list[panels.PanelBlock], height: int) -> list[Text]:
    """All lines in order, after the least needed ones have given way."""
    spare = sum(len(block.lines) for block in blocks) - height
    lines = {i: list(block.lines) for i, block in enumerate(blocks)}
    for i in sorted(lines, key=lambda i: blocks[i].rank, reverse=True):
        if spare <= 0:
            break
        block = blocks[i]
        keep = max(block.least, len(block.lines) - spare)
        if keep <= block.title:
            keep = 0
        spare -= len(block.lines) - keep
        del lines[i][keep:]
    return [text for i in sorted(lines) for text in lines[i]][:height]


def tiny(state: FrameState, width: int) -> Text:
    """`142/500 28%  reward .612  w3 m9 r4  trunc 1.6%  eta 3h01m`."""
    last, info = state.last, state.info
    if not last:
        return line(width, Piece(0, panels.activity_text(state)))
    reward = score(last.get("reward/total/mean"))
    reward = reward.replace("0.", ".", 1) if reward.lstrip("-").startswith("0.") else reward
    kinds = " ".join(
        f"{k[0]}{number(last.get(f'group/{name}'))}"
        for k, name in (("w", "all_wrong"), ("m", "mixed"), ("r", "all_right"))
    )
    parts = [
        f"{last.get('step')}/{info.steps} {percent(panels.share_done(state))}",
        f"reward {reward}",
        kinds,
        f"trunc {percent(last.get('truncated'))}",
        f"eta {duration(last.get('eta_s'), '')}",
    ]
    return line(width, Piece(0, "  ".join(parts)))


def _ascii(text: Text) -> Text:
    plain = Text(as_ascii(text.plain), no_wrap=True, overflow="crop", end="")
    plain.spans = list(text.spans)
    plain.style = text.style
    return plain
