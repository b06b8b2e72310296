"""Numbers that several frames show. Every figure is a metric under its own name.

How this works: each function gets the state of the frame and a width, and returns lines or one short text; `frame.py`
and `wide.py` choose which to show and where. — is "not measured". Colour has a meaning of its own (right, mixed, wrong;
caution, bad); curves have none but the reward's.
"""

from __future__ import annotations

from grpo_cli.display.frame.curves import points_of, spark_of
from grpo_cli.display.frame.lines import PanelBlock, Piece, line, rule
from grpo_cli.display.frame.state import FrameState
from grpo_cli.display.plain import seconds, shown_sources
from grpo_cli.run.info import BETWEEN, Metrics, of_all_rows
from grpo_cli.text import BLOCKS, number, percent, plus_minus, score, two_decimals, visible

LOTS_TRUNCATED = 0.1
TOTAL = "reward/total/mean"


def short_name(name: str) -> str:
    """A verifier's name under 12 characters."""
    shown = visible(name)
    return shown if len(shown) < 12 else shown[:10] + "…"


def reward_block(state: FrameState, width: int, now_at: int) -> PanelBlock:
    """The reward panel: the total, its sources, the held-out score. Its last rows may be dropped, the total never."""
    # a source that is all of the reward is not shown twice
    sources = shown_sources(state.info, state.last, 4)
    rows = [("total", TOTAL)]
    if len(state.info.sources) == 1 and state.info.sources[0].weight == 1.0:
        rows = [(short_name(sources[0].name), TOTAL)]
    else:
        longest = max((len(short_name(s.name)) for s in sources), default=0)
        for s in sources:
            weight = f"{s.weight:.1f}" if round(s.weight, 1) == s.weight else f"{s.weight:g}"
            rows.append((f"{short_name(s.name):<{longest}} x{weight}", f"reward/{s.name}/mean"))
        left = len(state.info.sources) - len(sources)
        if left > 0:
            rows[-1] = (f"{rows[-1][0]} +{left} more", rows[-1][1])
    first, last = state.steps_shown
    top = rule(
        width,
        (2, "reward"),
        (now_at + 1, "now"),
        (now_at + 9, "mean10"),
        (now_at + 19, "start"),
        (now_at + 28, f"steps {first} to {last}, on 0 to 1" if width - now_at > 60 else f"steps {first} to {last}"),
    )
    mean_at, start_at, curve_at = now_at + 10, now_at + 19, now_at + 28
    begin, now = state.first or {}, state.last
    lines = []
    for label, key in rows:
        curve = spark_of(key, state.curves.of(key), width - curve_at, state.info.steps)
        recent = [v for m in state.recent if (v := m.get(key)) is not None]
        mean = score(sum(recent) / len(recent) if recent else None)
        lines.append(
            line(
                width, Piece(3, label), Piece(now_at, score(now.get(key)), "bold"), Piece(mean_at, mean),
                Piece(start_at, score(begin.get(key))), Piece(curve_at, curve, "cyan" if key == TOTAL else "dim"),
            )
        )  # fmt: skip
    if state.evaluations:
        # each evaluation is a bar at its step, on 0 to 1 like the reward
        newest = state.evaluations[-1]
        key = "eval/pass@1" if newest.get("eval/pass@1") is not None else "eval/greedy"
        columns = len(spark_of(TOTAL, state.curves.of(TOTAL), width - curve_at, state.info.steps))
        points = points_of(state.evaluations, key, *state.steps_shown, columns)
        curve = "".join(BLOCKS[min(int(points[at] * 8), 7)] if at in points else " " for at in range(columns))
        value = f"{score(newest.get(key))} {plus_minus(newest.get(f'{key}/half'))}"
        start = score(state.evaluations[0].get(key))
        pieces = Piece(3, "held-out " + key[5:]), Piece(now_at, value, "bold"), Piece(start_at, start)
        lines.append(line(width, *pieces, Piece(curve_at, curve)))
    return PanelBlock((top, *lines), 3, 2)


def evaluated_text(state: FrameState) -> str:
    """`held-out: step 125, n 256, best so far`."""
    if not state.evaluations or state.held_out is None:
        return ""
    last, key = state.evaluations[-1], state.held_out[0]
    where = f"held-out: step {last.get('step')}"
    if last.get("eval/n") is not None:
        where += f", n {last['eval/n']}"
    known = [m[key] for m in of_all_rows(state.evaluations) if m.get(key) is not None]
    is_whole = last.get(key) is not None and not last.get(BETWEEN)
    if is_whole and len(known) > 1 and last[key] >= max(known):
        where += ", best so far"
    if failed := last.get("eval/without_verdict"):
        where += f", {failed} without a verdict"
    return where


def kl_where(state: FrameState) -> str:
    """`@140`: the step of the last KL, where that is not the last step."""
    at = state.known_at.get("kl")
    return f"@{at}" if at is not None and at != state.last.get("step") else ""


def thinks_text(last: Metrics) -> str:
    """The share of samples that think, where some do."""
    return f"think {percent(last['think'])}" if last.get("think") else ""


def pass_texts(state: FrameState) -> list[str]:
    """pass@1 and the largest pass@k of the last step."""
    ks = sorted(int(key[5:]) for key in state.last if key.startswith("pass@") and key[5:].isdigit())
    shown = dict.fromkeys(ks[:1] + ks[-1:])
    return [f"pass@{k} {two_decimals(state.last.get(f'pass@{k}'))}" for k in shown]


def memory_text(state: FrameState, gap: str) -> str:
    """`71.3 of 80 GiB peak`, empty where it is not measured."""
    peak, total = state.last.get("memory/peak_gib"), state.last.get("memory/total_gib")
    if peak is None:
        return ""
    return f"{number(peak)}{gap}{number(round(total))} GiB" if total is not None else f"{number(peak)} GiB"


def verifier_names(state: FrameState) -> list[str]:
    """Verifiers with calls in the last step, in the recipe's order."""
    return [key[7:-6] for key in state.last if key.startswith("verify/") and key.endswith("/calls")]


def credit(last: Metrics) -> str:
    """The data behind turn credit: the share of turns that can be compared, or of episodes that reach milestones."""
    if "credit/anchor_share" in last:
        return f"anchors {percent(last['credit/anchor_share'])}"
    found = [last.get(f"credit/milestone_{k}/reached") for k in (1, 2, 3)]
    reached = [percent(share) for share in found if share is not None]
    return f"milestones {' '.join(reached)}" if reached else ""


def endpoint(last: Metrics) -> list[str]:
    """Of episodes that ask the endpoint their rows, forks a request and share without a verdict; nothing of others."""
    if "endpoint/rows" not in last:
        return []
    forks = sum(last.get(f"endpoint/fork/{why}") or 0 for why in ("history", "tools", "template"))
    share = percent(forks / max(last.get("endpoint/requests") or 0, 1))
    return [f"rows {number(last['endpoint/rows'])}  forks {share}  lost {percent(last.get('env/no_verdict'))}"]


def critic(last: Metrics) -> list[str]:
    """Time and memory of a critic, and whether it warms up; of a teacher how many samples it taught, and how far it is; nothing where
    there is neither."""
    if "distil/rows" in last:
        return [f"teacher {percent(last['distil/rows'])} of samples, {two_decimals(last.get('distil/kl'))} nats"]
    if "critic/loss" not in last:
        return []
    doing = "warms up" if last.get("critic/warmup") else "critic"
    return [f"{doing} {seconds(last.get('time/critic') or 0.0)}s a step, {number(last.get('critic/mib'))} MiB"]
