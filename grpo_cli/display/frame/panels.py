"""What the narrow and the wide frame share. Every figure is a metric under its own name.

— is "not measured". Colour marks a change of state only: good green, caution yellow, bad red; curves are dim.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from grpo_cli.display.frame.lines import Piece, fit, fit_tail, head, line, rule, tail
from grpo_cli.display.frame.state import FrameState, Note
from grpo_cli.display.plain import shown_sources, timing
from grpo_cli.run.info import Metrics, RewardSource
from grpo_cli.text import (
    BLOCKS,
    bar,
    duration,
    half,
    number,
    percent,
    score,
    spark,
    two,
    visible,
)
from grpo_verifiers.verdict import Outcome

DOING = {
    "generate": "generating", "verify": "verifying", "update": "updating", "evaluate": "evaluating", "save": "saving",
}  # fmt: skip
MARKS = {
    Outcome.RIGHT: ("✔", "green"), Outcome.WRONG: ("✘", "red"), Outcome.NO_ANSWER: ("?", "yellow"),
    Outcome.OVER_LIMIT: ("%", "yellow"), Outcome.ERROR: ("!", "red"), None: (" ", ""),
}  # fmt: skip
NOTE_MARKS = {"info": ("·", ""), "good": ("✓", "green"), "warn": ("!", "yellow"), "error": ("✘", "red")}
SPINNER = "|/-\\"
LOTS_TRUNCATED = 0.1
MOST_BINS = 17


@dataclass(frozen=True, slots=True)
class PanelBlock:
    """Lines of one panel. High ranks give way first, down to `least` lines; a block of titles alone (`title`) goes."""

    lines: tuple[Text, ...]
    rank: int
    least: int = 0
    title: int = 0


def beginning(state: FrameState, width: int, is_wide: bool) -> list[PanelBlock]:
    """Before the first step: what is being done, and the run once it has a name."""
    if not state.info.run:
        return [PanelBlock((_activity(state, width, is_wide),), 0, 1), notes(state, width, 2)]
    return [header(state, width, is_wide), notes(state, width, 2), footer(state, width)]


def header(state: FrameState, width: int, is_wide: bool) -> PanelBlock:
    """Is it alive, when is it done, where does the time go."""
    info = state.info
    name = info.recipe if is_wide else info.recipe.rsplit("/", 1)[-1]
    title = f"grpo {info.command}{'  ' if is_wide else ' '}{visible(name)}"
    run = visible(info.run)
    if is_wide:
        extras = (
            [f"run {run}"]
            + ([f"seed {info.seed}"] if info.seed is not None else [])
            + ([visible(info.device)] if info.device else [])
        )
        run = " · ".join(extras)
    run = fit_tail(run, max(width - cell_len(title) - 4, 12))
    top = line(width, Piece(1, title, "bold"), Piece(max(width - cell_len(run), 2), run))
    return PanelBlock((top, _steps(state, width), _activity(state, width, is_wide)), 0, 3)


def share_done(state: FrameState) -> float | None:
    """Steps done over steps wanted."""
    return (state.last.get("step") or 0) / state.info.steps if state.info.steps else None


def _steps(state: FrameState, width: int) -> Text:
    step, total = state.last.get("step", state.info.start_step), state.info.steps
    share = share_done(state) or 0.0
    left = f"step {step}/{total or number(None)} "
    right = f"  {percent(share) if total else number(None)} · eta {duration(state.last.get('eta_s'))}"
    if state.ended:
        right = f"  {percent(share) if total else number(None)} · {state.ended}"
    room = max(width - 1 - len(left) - len(right) - 8, 8)
    full, empty = bar(share, room)
    at = 1 + len(left)
    return line(
        width,
        Piece(1, left),
        Piece(at, full, "cyan"),
        Piece(at + len(full), empty, "dim"),
        Piece(at + room, right),
    )


def activity_text(state: FrameState) -> str:
    """`generating 96/128`, or the noun and the seconds of work without a count."""
    doing = state.activity
    if doing is None:
        return state.ended or ("waiting" if state.history else "starting")
    word = DOING.get(doing.name, doing.name)
    count = (
        ""
        if doing.done is None
        else f" {doing.done}" + (f"/{doing.total}" if doing.total is not None else "")
    )
    took = state.now - doing.since
    return f"{word}{count}" if doing.is_step and count else f"{word}{count}  {duration(took)}"


def _activity(state: FrameState, width: int, is_wide: bool) -> Text:
    doing, text = state.activity, activity_text(state)
    if doing is None or doing.is_step:
        spent = timing(state.last) if state.history else ""
        if is_wide and doing is not None and doing.done is not None and doing.total:
            full, empty = bar(doing.done / doing.total, 21)
            text = f"{text:<18} "
            at = 1 + len(text)
            return line(
                width,
                Piece(1, text),
                Piece(at, full, "cyan"),
                Piece(at + len(full), empty, "dim"),
                Piece(at + 24, f"last step {spent}"),
            )
        return line(
            width, Piece(1, text), Piece(max(21, len(text) + 4), f"last step {spent}" if is_wide else spent)
        )
    if doing.done is not None and doing.total:
        full, empty = bar(doing.done / doing.total, 30)
        at = len(text) + 3
        return line(width, Piece(1, text), Piece(at, full, "cyan"), Piece(at + len(full), empty, "dim"))
    return line(width, Piece(1, SPINNER[int(state.now * 4) % len(SPINNER)], "cyan"), Piece(3, text))


def short_name(name: str) -> str:
    """A verifier's name under 12 characters."""
    shown = visible(name)
    return shown if len(shown) < 12 else shown[:10] + "…"


def source_labels(sources: list[RewardSource]) -> list[str]:
    """`math   x1.0`, names under 12 characters."""
    names = [short_name(s.name) for s in sources]
    longest = max(map(len, names), default=0)
    weights = [f"{s.weight:.1f}" if round(s.weight, 1) == s.weight else f"{s.weight:g}" for s in sources]
    return [f"{name:<{longest}} x{weight}" for name, weight in zip(names, weights, strict=True)]


def reward_lines(state: FrameState, width: int, now_at: int) -> list[Text]:
    """Rows of total, sources, think and held-out at columns that follow `now_at`."""
    mean_at, start_at, curve_at = now_at + 10, now_at + 19, now_at + 28
    first, last = state.first or {}, state.last
    sources = shown_sources(state.info, last, 4)
    rows = [("total", "reward/total/mean")]
    rows += [
        (label, f"reward/{s.name}/mean") for label, s in zip(source_labels(sources), sources, strict=True)
    ]
    left = len(state.info.sources) - len(sources)
    if left > 0:
        rows[-1] = (f"{rows[-1][0]} +{left} more", rows[-1][1])
    if last.get("think") or first.get("think") or any(state.curve("think")):
        rows.append(("think", "think"))
    lines = []
    for label, key in rows:
        form = percent if key == "think" else score
        curve = spark(state.curve(key), width - curve_at)
        cells = [form(last.get(key)), form(state.recent_mean(key)), form(first.get(key))]
        lines.append(
            line(
                width, Piece(3, label), Piece(now_at, cells[0], "bold"), Piece(mean_at, cells[1]), Piece(start_at, cells[2]),
                Piece(curve_at, curve, "dim"),
            )
        )  # fmt: skip
    if state.evaluations:
        lines.append(_held_out(state, width, now_at, start_at, curve_at))
    return lines


def _held_out(state: FrameState, width: int, now_at: int, start_at: int, curve_at: int) -> Text:
    first, last = state.evaluations[0], state.evaluations[-1]
    key = "eval/pass@1" if last.get("eval/pass@1") is not None else "eval/greedy"
    where = f"step {last.get('step')}"
    if last.get("eval/n") is not None:
        where += f", n {last['eval/n']}"
    known = [m[key] for m in state.evaluations if m.get(key) is not None]
    if len(known) > 1 and last.get(key) is not None and last[key] >= max(known):
        where += ", best so far"
    value = f"{score(last.get(key))} {half(last.get(f'{key}/half'))}"
    return line(
        width,
        Piece(3, "held-out " + key[5:]),
        Piece(now_at, value, "bold"),
        Piece(start_at, score(first.get(key))),
        Piece(curve_at, where),
    )


def reward_block(state: FrameState, width: int, now_at: int) -> PanelBlock:
    """The reward panel; its last rows give way, the total never."""
    shown = min(len(state.history), max(width - now_at - 28, 1))
    top = rule(
        width,
        (2, "reward"),
        (now_at + 1, "now"),
        (now_at + 9, "mean10"),
        (now_at + 19, "start"),
        (now_at + 28, f"last {shown} steps" if shown > 1 else "last step"),
    )
    return PanelBlock((top, *reward_lines(state, width, now_at)), 3, 2)


def histogram(state: FrameState, which: str = "last") -> str:
    """`0/8 ▆▂▂▂▄▂▄▂█ 8/8`: groups by how many of their samples are right; many bins are joined."""
    metrics = state.last if which == "last" else state.first or {}
    counts: list[int] = []
    while (count := metrics.get(f"group/hist/{len(counts)}")) is not None:
        counts.append(count)
    if not counts:
        return number(None)
    size = len(counts) - 1
    if len(counts) > MOST_BINS:
        inner, joined = counts[1:-1], -(-(len(counts) - 2) // (MOST_BINS - 2))
        counts = [counts[0], *(sum(inner[i : i + joined]) for i in range(0, len(inner), joined)), counts[-1]]
    top = max(max(counts), 1)
    bars = "".join(BLOCKS[0] if c == 0 else BLOCKS[max(1, round(7 * c / top))] for c in counts)
    return f"0/{size} {bars} {size}/{size}"


def kind_bars(state: FrameState, room: int, most: int = 200) -> list[tuple[str, int | None, str]]:
    """Word, count and bar of wrong, mixed and right; all bars together take at most `room` cells, one at most `most`."""
    last = state.last
    kinds = (("wrong", "all_wrong", "▓"), ("mixed", "mixed", "▒"), ("right", "all_right", "░"))
    counts = [last.get(f"group/{kind}") for _, kind, _ in kinds]
    known = [count or 0 for count in counts]
    scale = min(2.0, room / max(last.get("group/count") or 0, 1), most / max(*known, 1))
    bars = [
        glyph * max(int(count * scale), 1 if count else 0)
        for count, (_, _, glyph) in zip(known, kinds, strict=True)
    ]
    return [(word, count, bar) for (word, _, _), count, bar in zip(kinds, counts, bars, strict=True)]


def pass_texts(state: FrameState) -> list[str]:
    """pass@1 and the largest pass@k of the last step."""
    ks = sorted(int(key[5:]) for key in state.last if key.startswith("pass@") and key[5:].isdigit())
    shown = dict.fromkeys(ks[:1] + ks[-1:])
    return [f"pass@{k} {two(state.last.get(f'pass@{k}'))}" for k in shown]


def split_rule(width: int, at: int, left: str, right: str) -> Text:
    """A rule over two panels side by side, with a tee where they meet."""
    text = rule(width, (2, left)).plain
    return Text(
        f"{text[:at]}┬─ {right} " + "─" * (width - at - len(right) - 4),
        style="dim",
        no_wrap=True,
        overflow="crop",
        end="",
    )


def memory_text(state: FrameState, gap: str) -> str:
    """`71.3 of 80 GiB peak`, empty where it is not measured."""
    peak, total = state.last.get("memory/peak_gib"), state.last.get("memory/total_gib")
    if peak is None:
        return ""
    return f"{number(peak)}{gap}{number(round(total))} GiB" if total is not None else f"{number(peak)} GiB"


def verifier_names(state: FrameState) -> list[str]:
    """Verifiers with calls in the last step, in the recipe's order."""
    return [key[7:-6] for key in state.last if key.startswith("verify/") and key.endswith("/calls")]


def verifier_sum(state: FrameState, outcome: str) -> int | None:
    """A count over all verifiers of the last step."""
    names = verifier_names(state)
    return sum(state.last.get(f"verify/{name}/{outcome}") or 0 for name in names) if names else None


def samples(state: FrameState, width: int, pair: int, title: str = "sample") -> PanelBlock:
    """One group's question with its best and its worst completion, the end of each, since the answer stands there."""
    group = state.group()
    if group is None:
        return PanelBlock((), 5)
    keys = (
        "[n] next  [g] first  [w] all" if state.filter == "wrong" else "[n] next  [g] first  [w] wrong only"
    )
    about = f"prompt {visible(group.row, 24)} · {group.right}/{group.judged} right"
    labels = [(2, title), (5 + len(title), fit(about, width - 20 - len(title)))]
    if state.keys and width > 8 + len(title) + cell_len(about) + len(keys) + 4:
        labels.append((8 + len(title) + cell_len(about), keys))
    lines = [rule(width, *labels), line(width, Piece(3, "Q"), Piece(5, head(group.question, width - 6)))]
    chosen = [group.lines[0], group.lines[-1]] if len(group.lines) > 1 else list(group.lines)
    if state.filter == "wrong":
        chosen = [s for s in group.lines if s.outcome is not Outcome.RIGHT][-2:]
    for i, sample in enumerate(chosen[:pair]):
        mark, style = MARKS[sample.outcome]
        value = sample.advantage if sample.advantage is not None else sample.reward
        amount = f"{value:+.2f}" if value is not None else number(None)
        last = i == len(chosen) - 1 and bool(group.expected)
        expected = f"  expected {tail(group.expected, 20)}" if last else ""
        room = width - 5 - 7 - cell_len(expected)
        lines.append(
            line(
                width,
                Piece(3, mark, style),
                Piece(5, f"{amount:<6}"),
                Piece(12, tail(sample.completion, room) + expected),
            )
        )
    return PanelBlock(tuple(lines), 6, 0, 2)


def notes(state: FrameState, width: int, most: int) -> PanelBlock:
    """The last notes; the newest stays longest."""
    shown = state.notes[-most:]
    return PanelBlock(tuple(_note(note, width, most > 1) for note in reversed(shown)), 1, min(1, len(shown)))


def _note(note: Note, width: int, is_wide: bool) -> Text:
    from datetime import datetime

    mark, style = NOTE_MARKS[note.level]
    clock = f"{datetime.fromtimestamp(note.at).strftime('%H:%M')} " if is_wide else ""
    place = f"step {note.step}  " if note.step is not None else ""
    said = visible(note.text.strip().replace("\n", " "))
    hint = f": {visible(note.hint)}" if note.hint else ""
    return line(width, Piece(1, mark, style), Piece(3, f"{clock}{place}{said}{hint}", style))


def footer(state: FrameState, width: int) -> PanelBlock:
    """How to stop, and where the log is."""
    stop = "ctrl-c: finish this step, save, stop"
    if state.info.command == "watch":
        stop = "q: leave, the run goes on" if state.keys else ""
    log = state.info.log
    shown = fit_tail(visible(log), max(width - len(stop) - 12, 8)) if log else ""
    right = f"log {shown}" if shown else ""
    if state.ended:
        stop = ""
    return PanelBlock(
        (line(width, Piece(1, stop, "dim"), Piece(max(width - cell_len(right), 2), right, "dim")),), 1, 1
    )


def credit(last: Metrics) -> str:
    """What credit for turns has to go by: the share of turns that can be compared, or the episodes that reach milestones."""
    if "credit/anchor_share" in last:
        return f"anchors {percent(last['credit/anchor_share'])}"
    found = [last.get(f"credit/milestone_{k}/reached") for k in (1, 2, 3)]
    reached = [percent(share) for share in found if share is not None]
    return f"milestones {' '.join(reached)}" if reached else ""
