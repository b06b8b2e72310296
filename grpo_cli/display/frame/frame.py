"""The live frame as a pure function of state and size. It never exceeds its size: blocks are dropped in a fixed order.

How this works: `frame_lines` chooses one of three forms, the wide one with curves and the verifier table (`wide.py`,
from 100 x 29), the narrow one (from 60 x 12), the small one below, or the page that `?` shows. Each form returns blocks
with ranks, and the least important lines are dropped until the rest fits.
"""

from __future__ import annotations

from rich.text import Text

from grpo_cli.display.frame import kinds, wide
from grpo_cli.display.frame.curves import spark_of
from grpo_cli.display.frame.header import activity_text, beginning, footer, header, notes, share_done
from grpo_cli.display.frame.kinds import KINDS
from grpo_cli.display.frame.lines import PanelBlock, Piece, bar_pieces, columns, fit, line, rule, split_rule
from grpo_cli.display.frame.panels import (
    LOTS_TRUNCATED,
    TOTAL,
    credit,
    critic,
    endpoint,
    kl_where,
    memory_text,
    pass_texts,
    reward_block,
    thinks_text,
    verifier_names,
)
from grpo_cli.display.frame.samples import samples
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import as_ascii, duration, number, percent, plus_minus, score, two_decimals, visible, whole

WIDE = (100, 29)
SMALLEST = (60, 12)


def frame_lines(state: FrameState, width: int, height: int, *, ascii: bool = False) -> list[Text]:
    """The lines of the frame, each narrower than the terminal and fewer than its rows."""
    room, rows = max(width - 1, 1), max(height - 1, 1)
    is_small = width < SMALLEST[0] or height < SMALLEST[1]
    is_wide = width >= WIDE[0] and height >= WIDE[1]
    if state.help:
        acting = LEAVING if state.info.command == "watch" else ACTING
        shown = [rule(room, (2, "keys"))]
        shown += [line(room, Piece(3, keys, "bold"), Piece(13, text)) for keys, text in (*READING, *acting)]
        shown.append(rule(room, (2, "what is what")))
        shown += [
            line(room, Piece(3, f"{kind.glyph * 2} {kind.word}", kind.style), Piece(13, MEANINGS[kind.word]))
            for kind in KINDS
        ]
        shown += [line(room, Piece(3, word, "bold"), Piece(13, text)) for word, text in WORDS]
        lines = ([] if is_small else list(header(state, room, is_wide).lines)) + shown
    elif is_small:
        lines = _shrink(small(state, room), rows)
    else:
        lines = _shrink((wide.blocks if is_wide else narrow_blocks)(state, room, rows), rows)
    if ascii:
        for text in lines:
            text.plain = as_ascii(text.plain)
    return lines[:rows]


def _shrink(blocks: list[PanelBlock], height: int) -> list[Text]:
    """All lines in order, without the least needed ones that do not fit."""
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


# The narrow frame, drawn for 80 x 24: the panels in short, with the histogram and no verifier table.


def narrow_blocks(state: FrameState, width: int, height: int) -> list[PanelBlock]:
    """The narrow frame's panels from top to bottom; what is left of `height` goes to the samples."""
    if not state.recent:
        return beginning(state, width, False)
    last = state.last
    counts = [Piece(p.column + 3, p.text, p.style) for p in kinds.counts_text(state)]
    at = counts[-1].column + len(counts[-1].text) + 2
    signal = f"signal {percent(last.get('group/signal'))}"
    if last.get("group/no_verdict"):
        signal = f"no verdict {last['group/no_verdict']}  {signal}"
    room = min(width - at - len(signal) - 3, 60)
    second = [kinds.histogram(state), *pass_texts(state), f"group std {two_decimals(last.get('reward/std_in_group'))}"]
    title = f"{number(last.get('group/count'))} x {number(last.get('group/size'))}"
    above = [
        header(state, width, False),
        reward_block(state, width, 20),
        PanelBlock(
            (
                rule(width, (2, "groups"), (12, title)),
                line(width, *counts, *kinds.bar(state, at, room), Piece(at + max(room, 0) + 2, signal)),
                line(width, Piece(3, columns(width - 3, second))),
            ),
            2,
            2,
        ),
        narrow_completions(state, width),
    ]
    below = [PanelBlock((rule(width),), 7), notes(state, width, 1), footer(state, width)]
    taken = sum(len(block.lines) for block in (*above, *below))
    return [*above, samples(state, width, max(height - taken, 4)), *below]


def narrow_completions(state: FrameState, width: int) -> PanelBlock:
    """The narrow panels of completions and policy side by side."""
    last = state.last
    at = min(35, width // 2)
    cap = [f"cap {state.info.max_tokens}"] if state.info.max_tokens else []
    memory = memory_text(state, "/")
    lengths = f"right {whole(last.get('length/right'))} wrong {whole(last.get('length/wrong'))}"
    if "turns/mean" in last:
        found = [credit(last), *endpoint(last), f"invalid {percent(last.get('env/invalid'))}"]
        lengths = f"turns {number(last['turns/mean'])} {next(filter(None, found))}"
    lengths = thinks_text(last) or lengths
    speed = f"{number(last.get('tokens_per_s'))} tok/s"
    truncated = last.get("truncated")
    caution = "yellow" if truncated is not None and truncated > LOTS_TRUNCATED else ""
    names = verifier_names(state)
    failed, over = (
        sum(last.get(f"verify/{name}/{outcome}") or 0 for name in names) if names else None
        for outcome in ("error", "over_limit")
    )
    curve = spark_of("entropy", state.curves.of("entropy"), max(min(10, width - at - 30), 0))
    entropy = f"entropy {two_decimals(last.get('entropy'))}"
    kl = f"kl {number(state.known.get('kl'))} {kl_where(state)}".rstrip()
    rows = [
        ([f"len {number(last.get('length/mean'))}", f"p95 {number(last.get('length/p95'))}", *cap], "",
         [f"{entropy} {curve}" if curve else entropy, kl], ""),
        ([f"truncated {percent(truncated)}", f"no answer {percent(last.get('no_answer'))}"], caution,
         [f"clip {percent(last.get('clip/total'))}", f"grad {two_decimals(last.get('grad_norm'))}", f"lr {number(last.get('lr'))}"], ""),
        ([speed, memory or lengths], "",
         [f"verifier errors {number(failed)}", f"over limit {number(over)}"], "red" if failed else ""),
    ]  # fmt: skip
    for text in critic(last):
        explained = [
            f"explained {two_decimals(last.get('critic/explained_variance'))}",
            f"value loss {number(last.get('critic/loss'))}",
        ]
        rows.append(
            ([text], "", explained if "critic/loss" in last else [f"leaks {percent(last.get('distil/leak'))}"], "")
        )
    body = [
        line(
            width,
            Piece(3, columns(at - 4, left, "  ") or fit(left[0], at - 4), left_style),
            Piece(at, "│", "dim"),
            Piece(at + 2, columns(width - at - 2, right) or fit(right[0], width - at - 2), right_style),
        )
        for left, left_style, right, right_style in rows
    ]
    return PanelBlock((split_rule(width, at, "completions", "policy"), *body), 4, 0, 1)


# The small frame: the few lines that show whether the run is alive and learning, one number each.

NARROWEST_FRAME = 24


def small(state: FrameState, width: int) -> list[PanelBlock]:
    """Step, reward, held-out, groups, what is cut off, the last note; the least needed line is dropped first."""
    if not state.recent:
        return [PanelBlock((line(width, Piece(0, activity_text(state))),), 0, 1), notes(state, width, 1)]
    if width < NARROWEST_FRAME:
        text = f"{state.last.get('step')}/{state.info.steps} {score(state.last.get(TOTAL))}"
        return [PanelBlock((line(width, Piece(0, text)),), 0, 1)]
    last = state.last
    at = 10
    step = f"{last.get('step')}/{state.info.steps or number(None)} "
    share = share_done(state) or 0.0
    right = f" {percent(share)} {state.ended or 'eta ' + duration(last.get('eta_s'), '')}"
    room = max(min(width - len(step) - len(right), 40), 0)
    bar = bar_pieces(len(step), share, room)
    lines = [
        (line(width, Piece(0, step, "bold"), *bar, Piece(len(step) + room, right)), 0),
        (line(width, Piece(0, activity_text(state), "dim")), 3),
        (_valued(width, "reward", score(last.get(TOTAL)), spark_of(TOTAL, state.curves.of(TOTAL), width - 17, state.info.steps), "cyan"), 1),
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
    return [*blocks, notes(state, width, 1), PanelBlock((line(width, Piece(0, foot, "dim")),) if foot else (), 7)]


def _valued(width: int, name: str, value: str, rest: str, style: str) -> Text:
    return line(width, Piece(0, name), Piece(10, value, "bold"), Piece(max(16, 11 + len(value)), visible(rest), style))


# The page of `?`.

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
