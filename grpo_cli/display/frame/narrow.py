"""The narrow frame (from 60 x 12; drawn for 80 x 24): the panels in short, with the histogram and no verifier table."""

from __future__ import annotations

from grpo_cli.display.frame.lines import Piece, columns, line, rule
from grpo_cli.display.frame.panels import (
    LOTS_TRUNCATED,
    PanelBlock,
    beginning,
    credit,
    footer,
    header,
    histogram,
    kind_bars,
    memory_text,
    notes,
    pass_texts,
    reward_block,
    samples,
    split_rule,
    verifier_sum,
)
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import number, percent, spark, two, whole


def blocks(state: FrameState, width: int) -> list[PanelBlock]:
    """The narrow frame's panels from top to bottom."""
    if not state.history:
        return beginning(state, width, False)
    return [
        header(state, width, False),
        reward(state, width),
        groups(state, width),
        completions(state, width),
        samples(state, width, 2),
        PanelBlock((rule(width),), 7),
        notes(state, width, 1),
        footer(state, width),
    ]


def reward(state: FrameState, width: int) -> PanelBlock:
    """The narrow reward panel."""
    return reward_block(state, width, 20)


def groups(state: FrameState, width: int) -> PanelBlock:
    """The narrow groups panel."""
    last = state.last
    parts = [
        f"{word} {number(count)} {glyphs}".rstrip()
        for word, count, glyphs in kind_bars(state, min(16, width - 50))
    ]
    if last.get("group/no_verdict"):
        parts.append(f"no verdict {last['group/no_verdict']}")
    parts.append(f"signal {percent(last.get('group/signal'))}")
    second = [histogram(state), *pass_texts(state), f"group std {two(last.get('reward/std_in_group'))}"]
    title = f"{number(last.get('group/count'))} x {number(last.get('group/size'))}"
    return PanelBlock(
        (
            rule(width, (2, "groups"), (12, title)),
            line(width, Piece(3, columns(width - 3, parts))),
            line(width, Piece(3, columns(width - 3, second))),
        ),
        2,
        2,
    )


def completions(state: FrameState, width: int) -> PanelBlock:
    """The narrow panels of completions and policy side by side."""
    last = state.last
    at = min(35, width // 2)
    cap = f"  cap {state.info.max_tokens}" if state.info.max_tokens else ""
    memory = memory_text(state, "/")
    lengths = f"right {whole(last.get('length/right'))} wrong {whole(last.get('length/wrong'))}"
    if "turns/mean" in last:
        found = credit(last) or f"invalid {percent(last.get('env/invalid'))}"
        lengths = f"turns {number(last['turns/mean'])} {found}"
    speed = f"{number(last.get('tokens_per_s'))} tok/s"
    kept = f"kept {percent(last['reuse/tokens'])}" if "reuse/tokens" in last else ""
    truncated = last.get("truncated")
    caution = "yellow" if truncated is not None and truncated > LOTS_TRUNCATED else ""
    failed, over = verifier_sum(state, "error"), verifier_sum(state, "over_limit")
    curve = spark(state.curve("entropy"), max(min(10, width - at - 30), 0))
    rows = [
        (f"len {number(last.get('length/mean'))}  p95 {number(last.get('length/p95'))}{cap}", "",
         f"entropy {two(last.get('entropy'))} {curve}   kl {number(last.get('kl'))}", ""),
        (f"truncated {percent(truncated)}  no answer {percent(last.get('no_answer'))}", caution,
         f"clip {percent(last.get('clip/total'))}   grad {two(last.get('grad_norm'))}   lr {number(last.get('lr'))}", ""),
        (f"{speed}  {memory or kept or lengths}", "",
         f"verifier errors {number(failed)}  over limit {number(over)}", "red" if failed else ""),
    ]  # fmt: skip
    body = [
        line(width, Piece(3, left, left_style), Piece(at, "│", "dim"), Piece(at + 2, right, right_style))
        for left, left_style, right, right_style in rows
    ]
    return PanelBlock((split_rule(width, at, "completions", "policy"), *body), 4, 0, 1)
