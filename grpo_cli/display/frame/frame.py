"""The live frame as a pure function of state and size. It never exceeds its size: blocks give way in a fixed order.

Three forms: the wide one with curves and the verifier table (from 100 x 29), the narrow one (from 60 x 12), the small one below.
"""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from grpo_cli.display.frame import narrow, wide
from grpo_cli.display.frame.header import header
from grpo_cli.display.frame.help import help_lines
from grpo_cli.display.frame.lines import PanelBlock
from grpo_cli.display.frame.small import small
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import as_ascii

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
    room, rows = max(width - 1, 1), max(height - 1, 1)
    is_small = width < SMALLEST[0] or height < SMALLEST[1]
    is_wide = width >= WIDE[0] and height >= WIDE[1]
    if state.help:
        lines = ([] if is_small else list(header(state, room, is_wide).lines)) + help_lines(state, room)
    elif is_small:
        lines = _shrink(small(state, room), rows)
    else:
        lines = _shrink((wide.blocks if is_wide else narrow.blocks)(state, room, rows), rows)
    return [_ascii(text) if ascii else text for text in lines[:rows]]


def _shrink(blocks: list[PanelBlock], height: int) -> list[Text]:
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


def _ascii(text: Text) -> Text:
    plain = Text(as_ascii(text.plain), no_wrap=True, overflow="crop", end="")
    plain.spans = list(text.spans)
    plain.style = text.style
    return plain
