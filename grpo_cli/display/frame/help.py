"""The page that `?` shows: the keys, and what the words and colours of the frame mean."""

from __future__ import annotations

from rich.text import Text

from grpo_cli.display.frame.kinds import KINDS
from grpo_cli.display.frame.lines import Piece, line, rule
from grpo_cli.display.frame.state import FrameState

READING = (
    ("n N", "next and previous group"),
    ("j k", "next and previous sample of the group"),
    ("u d", "up and down in its text"),
    ("w", "groups with a wrong sample only, and all again"),
    ("g", "back to the first group"),
    ("?", "this page, and back"),
)
ACTING = (
    ("p", "pause after this step, and go on"),
    ("s", "save a checkpoint after this step"),
    ("e", "measure the held-out rows after this step"),
    ("ctrl-c", "finish this step, save, stop; a second one stops now"),
)
LEAVING = (("q", "leave; the run goes on"),)
MEANINGS = {
    "wrong": "groups without a right sample: nothing to learn from",
    "mixed": "groups with right and wrong samples: what is learned from",
    "right": "groups of right samples alone: nothing left to learn",
}
WORDS = (
    ("●", "a held-out score, at the step it was measured"),
    ("mean10", "mean over the last ten steps"),
    ("signal", "share of groups with an advantage that is not 0"),
    ("kl .. @n", "KL to the start, last measured at step n"),
)


def help_lines(state: FrameState, width: int) -> list[Text]:
    """Keys first; on a low screen the words are what is cut."""
    acting = LEAVING if state.info.command == "watch" else ACTING
    lines = [rule(width, (2, "keys"))]
    lines += [line(width, Piece(3, keys, "bold"), Piece(13, text)) for keys, text in (*READING, *acting)]
    lines.append(rule(width, (2, "what is what")))
    lines += [
        line(width, Piece(3, f"{kind.glyph * 2} {kind.word}", kind.style), Piece(13, MEANINGS[kind.word]))
        for kind in KINDS
    ]
    lines += [line(width, Piece(3, word, "bold"), Piece(13, text)) for word, text in WORDS]
    return lines
