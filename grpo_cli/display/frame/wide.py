"""The wide frame (from 100 x 29): the narrow panels with curves and the table of verifier outcomes.

How this works: `blocks` returns the panels from top to bottom. A high frame also has a row of charts of the whole run
(reward with the held-out points on it, groups, entropy, length, time) and the sample browser.
"""

from __future__ import annotations

from rich.text import Text

from grpo_cli.display.frame import kinds
from grpo_cli.display.frame.curves import area, bounds, columns_of, points_of, spark_of
from grpo_cli.display.frame.header import beginning, footer, header, notes
from grpo_cli.display.frame.lines import PanelBlock, Piece, columns, fit, line, rule, split_rule
from grpo_cli.display.frame.panels import (
    LOTS_TRUNCATED,
    credit,
    critic,
    endpoint,
    evaluated_text,
    kl_where,
    memory_text,
    pass_texts,
    reward_block,
    short_name,
    thinks_text,
    verifier_names,
)
from grpo_cli.display.frame.samples import samples
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import number, percent, reasons, score, two_decimals

OUTCOMES = (
    ("calls", 15),
    ("right", 24),
    ("wrong", 33),
    ("no answer", 42),
    ("error", 55),
    ("over limit", 64),
    ("p95", 78),
)
REASONS_AT = 87


SAMPLES = 4
"""Lines of the smallest sample panel: title, question, the best and the worst."""
CHARTS = (7, 16)
"""Lines of a row of charts, at least and at most."""


def blocks(state: FrameState, width: int, height: int) -> list[PanelBlock]:
    """The wide frame's panels from top to bottom. Rows that these leave go to charts first, then to the samples."""
    if not state.recent:
        return beginning(state, width, True)
    top = [header(state, width, True), reward_block(state, width, 33)]
    middle = [groups(state, width), completions(state, width), verifiers(state, width)]
    below = [PanelBlock((rule(width),), 7), notes(state, width, 2 if height < 45 else 4), footer(state, width)]
    spare = height - SAMPLES - sum(len(block.lines) for block in (*top, *middle, *below))
    drawn: list[PanelBlock] = []
    if spare >= CHARTS[0]:
        # as many charts as have room, at equal widths, side by side
        high = min(max(CHARTS[0], spare // 2), CHARTS[1])
        spare -= high
        shown = [key for key in CHARTED if key == GROUPS or any(v is not None for v in state.curves.of(key))]
        shown = shown[: max(1, width // NARROWEST_CHART)]
        each = width // len(shown)
        charts = [_chart(state, key, each - 1, high) for key in shown]
        lines = [
            line(
                width,
                *(Piece(i * each + p.column, p.text, p.style) for i, chart in enumerate(charts) for p in chart[row]),
            )
            for row in range(high)
        ]
        drawn = [PanelBlock(tuple(lines), 8)]
    return [*top, *drawn, *middle, samples(state, width, SAMPLES + max(spare, 0)), *below]


def groups(state: FrameState, width: int) -> PanelBlock:
    """The stacked bar of the three kinds, the histogram now and at the start, and the share with signal over time."""
    last = state.last
    counts = [Piece(p.column + 3, p.text, p.style) for p in kinds.counts_text(state)]
    at = counts[-1].column + len(counts[-1].text) + 3
    title = f"{number(last.get('group/count'))} prompts x {number(last.get('group/size'))} samples"
    if last.get("group/no_verdict"):
        title += f" ── {last['group/no_verdict']} without a verdict"
    curve = spark_of("group/signal", state.curves.of("group/signal"), 14)
    third = [
        f"signal {percent(last.get('group/signal'))}  {curve}",
        f"group std {two_decimals(last.get('reward/std_in_group'))}",
        *pass_texts(state),
        f"unique answers {percent(last.get('unique_answers'))}"
        if last.get("unique_answers") is not None
        else f"different texts {two_decimals(last.get('group/distinct'))}",
    ]
    second = [
        f"right per group   {kinds.histogram(state)}",
        f"at start   {kinds.histogram(state, 'first')}",
        evaluated_text(state),
    ]
    return PanelBlock(
        (
            rule(width, (2, "groups"), (12, title)),
            line(width, *counts, *kinds.bar(state, at, min(width - at - 2, 100))),
            line(width, Piece(3, columns(width - 3, [text for text in second if text]))),
            line(width, Piece(3, columns(width - 3, third))),
        ),
        2,
        2,
    )


def completions(state: FrameState, width: int) -> PanelBlock:
    """Lengths on the left, the policy with its curves on the right."""
    last, first = state.last, state.first or {}
    at = 47
    room = max(min(width - at - 40, 40), 8)
    cap = f"  cap {state.info.max_tokens}" if state.info.max_tokens else ""
    truncated = last.get("truncated")
    caution = "yellow" if truncated is not None and truncated > LOTS_TRUNCATED else ""
    memory = memory_text(state, " of ")
    mfu = f"mfu {percent(last['mfu'])}   " if "mfu" in last else ""
    # samples that are episodes have turns; of the others some may think
    more = thinks_text(last)
    if "turns/mean" in last:
        more = f"turns {number(last['turns/mean'])} {credit(last) or 'invalid ' + percent(last.get('env/invalid'))}"
    left = [
        (f"length  mean {number(last.get('length/mean'))}  p95 {number(last.get('length/p95'))}{cap}", ""),
        (f"right {number(last.get('length/right'))} · wrong {number(last.get('length/wrong'))}   {more}".rstrip(), ""),
        (f"truncated {percent(truncated):>5}   no answer {percent(last.get('no_answer')):>5}", caution),
        (f"{number(last.get('tokens_per_s'))} tok/s   {mfu}{memory + ' peak' if memory else ''}".rstrip(), ""),
    ]
    left += [(text, "") for text in (*critic(last), *endpoint(last))]
    right = [
        ("entropy", two_decimals(last.get("entropy")), "entropy", f"start {two_decimals(first.get('entropy'))}"),
        ("kl", number(state.known.get("kl")), "kl", kl_where(state)),
        ("clip frac", percent(last.get("clip/total")), "clip/total", f"lr {number(last.get('lr'))}"),
        ("grad norm", two_decimals(last.get("grad_norm")), "grad_norm", f"loss {number(last.get('loss'))}"),
    ]
    if "distil/rows" in last:
        ends = f"first {two_decimals(last.get('distil/kl/first'))} last {two_decimals(last.get('distil/kl/last'))}"
        right.append(("teacher", two_decimals(last.get("distil/kl")), "distil/kl", ends))
    elif len(left) > len(right):
        loss = f"v-loss {number(last.get('critic/loss'))}"
        explained = "critic/explained_variance"
        right.append(("explained", two_decimals(last.get(explained)), explained, loss))
    rows: list[Text] = []
    for (text, style), (name, value, key, extra) in zip(left, right, strict=True):
        curve = spark_of(key, state.curves.of(key), room)
        rows.append(
            line(
                width, Piece(3, text, style), Piece(at, "│", "dim"), Piece(at + 3, f"{name:<9}"), Piece(at + 14, value),
                Piece(at + 22, curve, "dim"), Piece(at + 25 + room, extra),
            )
        )  # fmt: skip
    return PanelBlock((split_rule(width, at, "completions", "policy"), *rows), 4, 0, 1)


def verifiers(state: FrameState, width: int) -> PanelBlock:
    """Five outcomes and the 95th percentile of the latency of each verifier; of more than four the rest is a count."""
    names = verifier_names(state)
    rows = []
    for name in names[:4]:
        pieces = [Piece(3, short_name(name))]
        for label, column in OUTCOMES[:-1]:
            value = state.last.get(f"verify/{name}/{label.replace(' ', '_')}")
            style = "red" if label == "error" and value else "yellow" if label == "over limit" and value else ""
            pieces.append(Piece(column, f"{number(value):>{len(label)}}", style))
        slow = state.last.get(f"verify/{name}/p95_s")
        if slow is None:
            latency = number(None)
        elif slow < 0.00005:
            latency = "<0.1 ms"
        else:
            shown = f"{1000 * slow:.0f}" if slow >= 0.0095 else f"{1000 * slow:.1f}"
            latency = f"{shown} ms" if slow < 1 else f"{number(slow)} s"
        pieces.append(Piece(OUTCOMES[-1][1], latency))
        pieces.append(Piece(REASONS_AT, fit(reasons(state.last, name, 2), width - REASONS_AT), "dim"))
        rows.append(line(width, *pieces))
    if len(names) > 4:
        rows[-1] = line(width, Piece(3, f"+{len(names) - 3} more"))
    return PanelBlock((rule(width, (2, "verifiers"), *((c, label) for label, c in OUTCOMES)), *rows), 5, 0, 1)


# The charts.

NARROWEST_CHART = 38
LABEL = 6
POINT = "●"


REWARD, GROUPS = "reward/total/mean", "groups"
CHARTED = {
    REWARD: "reward", GROUPS: "groups", "entropy": "entropy", "length/mean": "length", "time/step": "seconds a step",
}  # fmt: skip
"""Metrics with the titles of their charts; the chart of groups stacks their kinds."""


def _chart(state: FrameState, key: str, width: int, height: int) -> list[list[Piece]]:
    """A line with title and legend, `height - 2` lines of the curve with its bounds, a line with the first and the last
    step."""
    room, rows = width - LABEL - 1, height - 2
    steps = state.steps_shown
    legend: list[tuple[str, str]] = []
    if key == GROUPS:
        legend = [(f"{kind.glyph} {kind.word} ", kind.style) for kind in kinds.KINDS]
        body = [
            [Piece(piece.column + LABEL, piece.text, piece.style) for piece in row]
            for row in kinds.over_time(state, room, rows, state.info.steps)
        ]
        foot, top = "0%", "100%"
        drawn = len(columns_of(state.curves.of(kinds.KINDS[0].key), room, state.info.steps))
    else:
        curve = state.curves.of(key)
        columns = columns_of(curve, room, state.info.steps)
        drawn = len(columns)
        points: dict[int, float] = {}
        if key == REWARD and state.held_out:
            held_out, value = state.held_out
            legend = [(f"{POINT} held-out {score(value)} ", "bold")]
            points = dict(points_of(state.evaluations, held_out, *steps, drawn))
        low, high = bounds(key, [*curve, *points.values()])
        foot, top = number(low), number(high)
        style = "cyan" if key.startswith("reward") else ""
        body = [[Piece(LABEL, text, style)] for text in area(columns, rows, low, high)]
        for column, value in sorted(points.items()):
            # the point replaces one cell of the row; the text to both sides of it keeps its style
            share = (value - low) / (high - low) if high > low else 0.0
            row = body[rows - 1 - min(int(share * rows), rows - 1)]
            piece = row.pop()
            at = LABEL + column - piece.column
            row += [
                Piece(piece.column, piece.text[:at], piece.style),
                Piece(LABEL + column, POINT, "bold"),
                Piece(LABEL + column + 1, piece.text[at + 1 :], piece.style),
            ]
    for label, at in ((top, 0), (foot, rows - 1)):
        body[at].insert(0, Piece(0, f"{label:>{LABEL - 1}}", "dim"))
    title = [Piece(0, f"─ {CHARTED[key]} ", "dim")]
    at = len(title[0].text)
    for word, style in legend:
        if at + len(word) < width:
            title.append(Piece(at, word, style))
            at += len(word)
    title.append(Piece(at, "─" * (width - at), "dim"))
    first, last = (str(step) for step in steps)
    axis = [Piece(LABEL, fit(first, drawn), "dim")]
    if drawn > len(first) + len(last):
        axis.append(Piece(LABEL + drawn - len(last), last, "dim"))
    return [title, *body, axis]
