"""The sample browser: one group with all its samples and their advantages, and the whole text of the chosen one."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from grpo_cli.display.frame.lines import PanelBlock, Piece, fit, head, line, rule, tail
from grpo_cli.display.frame.sample import GroupView, SampleLine
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import number, visible
from grpo_verifiers.verdict import Outcome

MARKS = {
    Outcome.RIGHT: ("✔", "cyan"), Outcome.WRONG: ("✘", "red"), Outcome.NO_ANSWER: ("?", "yellow"),
    Outcome.OVER_LIMIT: ("%", "yellow"), Outcome.ERROR: ("!", "red"), None: (" ", ""),
}  # fmt: skip
LIST = 36
"""Columns of the list where the text stands to its right."""
ARM = 5
"""Cells of an advantage to each side of its zero."""


def samples(state: FrameState, width: int, room: int) -> PanelBlock:
    """The chosen group in `room` lines or fewer: title, question, then its samples."""
    group = state.group()
    if group is None:
        if state.view is None or state.filter == "any":
            return PanelBlock((), 5)
        text = "every sample of this step is right; w shows all"
        return PanelBlock((rule(width, (2, "sample")), line(width, Piece(3, text))), 6, 0, 1)
    lines = [_title(state, group, width), line(width, Piece(3, "Q"), Piece(5, head(group.question, width - 6)))]
    rows = max(room - len(lines), 2)
    chosen = _chosen(state, group)
    is_split = rows >= 4 and width >= 99
    lines += (_split if is_split else _listed)(state, group, chosen, width, rows)
    return PanelBlock(tuple(lines), 6, 0, 2)


def _chosen(state: FrameState, group: GroupView) -> list[SampleLine]:
    if state.filter == "wrong":
        return [s for s in group.lines if s.outcome is not Outcome.RIGHT]
    return list(group.lines)


def _title(state: FrameState, group: GroupView, width: int) -> Text:
    about = f"{visible(group.row, 32)} · {group.right}/{group.judged} right"
    if group.expected:
        about += f" · expected {tail(group.expected, 20)}"
    step = number(state.view.step if state.view else None)
    groups = state.groups()
    left = f"group {state.group_index % len(groups) + 1} of {len(groups)}, step {step}"
    if state.filter == "wrong":
        left += ", wrong only"
    title = f"sample ── {about}"
    labels = [(2, fit(title, width - 6))]
    if cell_len(title) + len(left) + 10 < width:
        labels.append((width - len(left) - 4, left))
    return rule(width, *labels)


def _window(count: int, selected: int, rows: int) -> list[int]:
    """Which of `count` samples stand in `rows` lines: all, else a window around the selected one; at the beginning the best
    and the worst, since what separates them is what is learned."""
    if count <= rows:
        return list(range(count))
    if selected == 0:
        return [*range(rows - rows // 2), *range(count - rows // 2, count)]
    first = min(max(selected - rows // 2, 0), count - rows)
    return list(range(first, first + rows))


def _amount(sample: SampleLine) -> str:
    value = sample.advantage if sample.advantage is not None else sample.reward
    return f"{value:+.2f}" if value is not None else number(None)


def _listed(state: FrameState, group: GroupView, chosen: list[SampleLine], width: int, rows: int) -> list[Text]:
    """Each sample on a line: mark, advantage, and the end of its text, where the answer stands."""
    lines = []
    selected = min(state.sample_index, max(len(chosen) - 1, 0))
    for i in _window(len(chosen), selected, rows):
        mark, style = MARKS[chosen[i].outcome]
        pointer = ">" if i == selected and state.sample_index else " "
        lines.append(
            line(
                width, Piece(1, pointer, "bold"), Piece(3, mark, style), Piece(5, f"{_amount(chosen[i]):<6}"),
                Piece(12, tail(chosen[i].completion, width - 12)),
            )
        )  # fmt: skip
    return lines


def _split(state: FrameState, group: GroupView, chosen: list[SampleLine], width: int, rows: int) -> list[Text]:
    """The list with a bar for each advantage on the left, the text of the chosen sample on the right."""
    selected = min(state.sample_index, max(len(chosen) - 1, 0))
    shown = _window(len(chosen), selected, rows)
    most = max((abs(s.advantage) for s in chosen if s.advantage is not None), default=0.0)
    text = _wrapped(chosen[selected].completion, width - LIST - 3) if chosen else []
    last = max(len(text) - rows, 0)
    first = max(last - state.scroll, 0)
    lines = []
    for row in range(min(rows, max(len(shown), len(text)))):
        pieces: list[Piece] = []
        if row < len(shown):
            pieces = _entry(chosen[shown[row]], shown[row] == selected, most)
        pieces.append(Piece(LIST, "│", "dim"))
        if first + row < len(text):
            pieces.append(Piece(LIST + 2, text[first + row]))
        lines.append(line(width, *pieces))
    return lines


def _entry(sample: SampleLine, is_selected: bool, most: float) -> list[Piece]:
    mark, style = MARKS[sample.outcome]
    pieces = [
        Piece(1, ">" if is_selected else " ", "bold"),
        Piece(3, mark, style),
        Piece(5, f"{_amount(sample):<6}", "bold" if is_selected else ""),
    ]
    at = 12 + ARM
    if sample.advantage is not None:
        cells = round(abs(sample.advantage) / most * ARM) if most > 0 else 0
        if sample.advantage < 0:
            pieces.append(Piece(at - cells, "━" * cells, style))
        pieces.append(Piece(at, "│", "dim"))
        if sample.advantage > 0:
            pieces.append(Piece(at + 1, "━" * cells, style))
    pieces.append(Piece(at + ARM + 2, f"{sample.tokens} tokens" if sample.tokens else "", "dim"))
    return pieces


def _wrapped(text: str, width: int) -> list[str]:
    """Hostile text in lines of at most `width` cells, broken at spaces where there are some."""
    lines = [""]
    for word in visible(text).split():
        while cell_len(word) > width:
            cut = fit(word, width)[:-1] or word[:1]
            lines.append(cut)
            word = word[len(cut) :]
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width and lines[-1]:
            lines[-1] += f" {word}"
        elif lines[-1]:
            lines.append(word)
        else:
            lines[-1] = word
    return [shown for shown in lines if shown]
