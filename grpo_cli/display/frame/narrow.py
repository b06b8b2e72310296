"""The narrow frame (from 60 x 12; drawn for 80 x 24): the panels in short, with the histogram and no verifier table."""

from __future__ import annotations

from grpo_cli.display.frame import kinds
from grpo_cli.display.frame.curves import spark_of
from grpo_cli.display.frame.header import beginning, footer, header, notes
from grpo_cli.display.frame.lines import PanelBlock, Piece, columns, fit, line, rule, split_rule
from grpo_cli.display.frame.panels import (
    LOTS_TRUNCATED,
    credit,
    critic,
    kl_text,
    memory_text,
    pass_texts,
    reward_block,
    thinks_text,
    verifier_sum,
)
from grpo_cli.display.frame.samples import samples
from grpo_cli.display.frame.state import FrameState
from grpo_cli.text import number, percent, two_decimals, whole


def blocks(state: FrameState, width: int, height: int) -> list[PanelBlock]:
    """The narrow frame's panels from top to bottom; what is left of `height` goes to the samples."""
    if not state.recent:
        return beginning(state, width, False)
    above = [
        header(state, width, False),
        reward_block(state, width, 20),
        groups(state, width),
        completions(state, width),
    ]
    below = [PanelBlock((rule(width),), 7), notes(state, width, 1), footer(state, width)]
    taken = sum(len(block.lines) for block in (*above, *below))
    return [*above, samples(state, width, max(height - taken, 4)), *below]


def groups(state: FrameState, width: int) -> PanelBlock:
    """Counts and the stacked bar, then the histogram and what of the groups can be learned from."""
    last = state.last
    counts = [Piece(p.column + 3, p.text, p.style) for p in kinds.counts_text(state)]
    at = counts[-1].column + len(counts[-1].text) + 2
    signal = f"signal {percent(last.get('group/signal'))}"
    if last.get("group/no_verdict"):
        signal = f"no verdict {last['group/no_verdict']}  {signal}"
    room = min(width - at - len(signal) - 3, 60)
    second = [
        kinds.histogram(state),
        *pass_texts(state),
        f"group std {two_decimals(last.get('reward/std_in_group'))}",
    ]
    title = f"{number(last.get('group/count'))} x {number(last.get('group/size'))}"
    return PanelBlock(
        (
            rule(width, (2, "groups"), (12, title)),
            line(width, *counts, *kinds.bar(state, at, room), Piece(at + max(room, 0) + 2, signal)),
            line(width, Piece(3, columns(width - 3, second))),
        ),
        2,
        2,
    )


def completions(state: FrameState, width: int) -> PanelBlock:
    """The narrow panels of completions and policy side by side."""
    last = state.last
    at = min(35, width // 2)
    cap = [f"cap {state.info.max_tokens}"] if state.info.max_tokens else []
    memory = memory_text(state, "/")
    lengths = f"right {whole(last.get('length/right'))} wrong {whole(last.get('length/wrong'))}"
    if "turns/mean" in last:
        found = credit(last) or f"invalid {percent(last.get('env/invalid'))}"
        lengths = f"turns {number(last['turns/mean'])} {found}"
    lengths = thinks_text(last) or lengths
    speed = f"{number(last.get('tokens_per_s'))} tok/s"
    truncated = last.get("truncated")
    caution = "yellow" if truncated is not None and truncated > LOTS_TRUNCATED else ""
    failed, over = verifier_sum(state, "error"), verifier_sum(state, "over_limit")
    curve = spark_of("entropy", state.curve("entropy"), max(min(10, width - at - 30), 0))
    entropy = f"entropy {two_decimals(last.get('entropy'))}"
    rows = [
        ([f"len {number(last.get('length/mean'))}", f"p95 {number(last.get('length/p95'))}", *cap], "",
         [f"{entropy} {curve}" if curve else entropy, f"kl {kl_text(state)}"], ""),
        ([f"truncated {percent(truncated)}", f"no answer {percent(last.get('no_answer'))}"], caution,
         [f"clip {percent(last.get('clip/total'))}", f"grad {two_decimals(last.get('grad_norm'))}", f"lr {number(last.get('lr'))}"], ""),
        ([speed, memory or lengths], "",
         [f"verifier errors {number(failed)}", f"over limit {number(over)}"], "red" if failed else ""),
    ]  # fmt: skip
    for text in critic(last):
        explained = f"explained {two_decimals(last.get('critic/explained_variance'))}"
        rows.append(([text], "", [explained, f"value loss {number(last.get('critic/loss'))}"], ""))
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
