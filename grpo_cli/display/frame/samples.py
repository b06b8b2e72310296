"""The sample browser: one group with all its samples and their advantages, and the whole text of the chosen one."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from grpo_cli.display.frame.lines import PanelBlock, Piece, fit, line, rule, tail
from grpo_cli.display.frame.sample import SampleLine
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
    title = f"sample ── {visible(group.row, 32)} · {group.right}/{group.judged} right"
    if group.expected:
        title += f" · expected {tail(group.expected, 20)}"
    step, groups = number(state.view.step if state.view else None), state.groups()
    left = f"group {state.group_index % len(groups) + 1} of {len(groups)}, step {step}"
    chosen = list(group.lines)
    if state.filter == "wrong":
        left += ", wrong only"
        chosen = [s for s in chosen if s.outcome is not Outcome.RIGHT]
    labels = [(2, fit(title, width - 6))]
    if cell_len(title) + len(left) + 10 < width:
        labels.append((width - len(left) - 4, left))
    question = fit(" ".join(visible(group.question, 4 * (width - 6)).split()), width - 6)
    lines = [rule(width, *labels), line(width, Piece(3, "Q"), Piece(5, question))]
    rows = max(room - len(lines), 2)
    lines += (_split if rows >= 4 and width >= 99 else _listed)(state, chosen, width, rows)
    return PanelBlock(tuple(lines), 6, 0, 2)


def _window(count: int, selected: int, rows: int) -> list[int]:
    """The indices of the samples to show in `rows` lines out of `count`: all, or a window around the selected one. At
    first the best and the worst are shown, because the model learns from their difference."""
    if count <= rows:
        return list(range(count))
    if selected == 0:
        return [*range(rows - rows // 2), *range(count - rows // 2, count)]
    first = min(max(selected - rows // 2, 0), count - rows)
    return list(range(first, first + rows))


def _amount(sample: SampleLine) -> str:
    value = sample.advantage if sample.advantage is not None else sample.reward
    return f"{value:+.2f}" if value is not None else number(None)


def _listed(state: FrameState, chosen: list[SampleLine], width: int, rows: int) -> list[Text]:
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


def _split(state: FrameState, chosen: list[SampleLine], width: int, rows: int) -> list[Text]:
    """The list with a bar for each advantage on the left, the text of the chosen sample on the right."""
    selected = min(state.sample_index, max(len(chosen) - 1, 0))
    shown = _window(len(chosen), selected, rows)
    most = max((abs(s.advantage) for s in chosen if s.advantage is not None), default=0.0)
    # untrusted text: wrap at words, and break a word that is longer than a line
    text, room = [""], width - LIST - 3
    for word in visible(chosen[selected].completion).split() if chosen else ():
        while cell_len(word) > room:
            cut = fit(word, room)[:-1] or word[:1]
            text.append(cut)
            word = word[len(cut) :]
        if cell_len(text[-1]) + 1 + cell_len(word) <= room and text[-1]:
            text[-1] += f" {word}"
        elif text[-1]:
            text.append(word)
        else:
            text[-1] = word
    text = [each for each in text if each]
    first = max(len(text) - rows - state.scroll, 0)
    lines, zero = list[Text](), 12 + ARM
    for row in range(min(rows, max(len(shown), len(text)))):
        pieces: list[Piece] = []
        if row < len(shown):
            sample, is_selected = chosen[shown[row]], shown[row] == selected
            mark, style = MARKS[sample.outcome]
            pieces = [
                Piece(1, ">" if is_selected else " ", "bold"),
                Piece(3, mark, style),
                Piece(5, f"{_amount(sample):<6}", "bold" if is_selected else ""),
            ]
            if sample.advantage is not None:
                cells = round(abs(sample.advantage) / most * ARM) if most > 0 else 0
                if sample.advantage < 0:
                    pieces.append(Piece(zero - cells, "━" * cells, style))
                pieces.append(Piece(zero, "│", "dim"))
                if sample.advantage > 0:
                    pieces.append(Piece(zero + 1, "━" * cells, style))
            pieces.append(Piece(zero + ARM + 2, f"{sample.tokens} tokens" if sample.tokens else "", "dim"))
        pieces.append(Piece(LIST, "│", "dim"))
        if first + row < len(text):
            pieces.append(Piece(LIST + 2, text[first + row]))
        lines.append(line(width, *pieces))
    return lines
