"""The end card: the change of the model by the run, from its metrics alone. Before and after are always shown with n
and half-width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_cli.display.frame.curves import spark_of
from grpo_cli.run.info import BETWEEN, Card, Metrics, of_all_rows
from grpo_cli.statistics.step import mean
from grpo_cli.text import duration, number, percent, plus_minus, score, two_decimals, visible

PHASES = ("generate", "environment", "update", "verify", "evaluate", "save", "other")


def card_lines(card: Card, width: int) -> list[str]:
    """The card as lines, not wider than `width`."""
    history, evaluations = card.history, card.evaluations
    steps = max((int(m.get("step") or 0) for m in card.history), default=0)
    samples = sum(m.get("samples") or 0 for m in card.history)
    tokens = sum(m.get("tokens") or 0 for m in card.history)
    parts = [f"{steps} steps in {duration(card.wall_s)}"]
    if samples or not steps:
        parts += [f"{samples:,} samples", f"{number(tokens)} tokens"]
    if card.device:
        parts.append(card.device)
    lines = [f" {card.status.replace('_', ' ')}  " + " · ".join(parts)]
    if card.reason:
        lines.append(f"   {visible(card.reason)}")
    if evaluations:
        lines += _held_out(evaluations)
    if drawn := [m for m in history if "reward/total/mean" in m]:
        rewards = [m["reward/total/mean"] for m in drawn]
        curve = spark_of("reward/total/mean", rewards, 20)
        lines.append(f"   {'reward':<17} {score(rewards[0])} → {score(rewards[-1])}  {curve}")
        window, start = min(50, max(1, len(drawn) // 2)), min(50, max(1, len(drawn) // 10))
        kinds = f"{_kinds(drawn[-window:], '  ', True)}   start {_kinds(drawn[:start], ' / ', False)}"
        lines.append(f"   {f'groups (last {window})':<17} {kinds}")
        thinks = [m.get("think") for m in drawn]
        if any(thinks):
            lines.append(f"   {'think':<17} {percent(thinks[0])} → {percent(thinks[-1])} of samples")
        calls, errors, over = (
            sum(v or 0 for m in drawn for key, v in m.items() if key.startswith("verify/") and key.endswith(end))
            for end in ("/calls", "/error", "/over_limit")
        )
        lines.append(f"   {'verifiers':<17} {errors:,} errors  {over:,} over limit in {calls:,} calls")
    elif history:  # learned from a file: no samples were drawn, so there is no reward
        losses = [m.get("loss") for m in history]
        lines.append(f"   {'loss':<17} {number(losses[0])} → {number(losses[-1])}")
    spent = dict(card.seconds) or {p: sum(m.get(f"time/{p}") or 0.0 for m in history) for p in PHASES}
    total = sum(spent.values())
    if total > 0:
        lines.append(f"   {'time':<17}")
    for phase, value in spent.items():
        if value < 0.005 * total or total <= 0:
            continue
        part = f"{phase} {percent(value / total)}"
        if len(lines[-1]) + 2 + len(part) > width:
            lines.append(" " * 20)
        lines[-1] += (" " if len(lines[-1]) == 20 else "  ") + part
    lines = [line if len(line) <= width else line[: width - 1] + "…" for line in lines]
    last = (
        ("evidence", card.evidence), ("best", card.best), ("report", card.report), ("next", card.next), ("or", card.other),
    )  # fmt: skip
    # users copy paths and commands: the terminal wraps a long one, it is never cut
    return lines + [f" {word:<{8 if card.evidence else 7}} {visible(value)}" for word, value in last if value]


def _held_out(evaluations: Sequence[Metrics]) -> list[str]:
    """Before and after; `best` where a best was marked."""
    first, last = evaluations[0], evaluations[-1]
    lines = []
    for key, name in (("eval/pass@1", "held-out pass@1"), ("eval/greedy", "held-out greedy")):
        values = [m.get(key) for m in evaluations]
        if last.get(key) is None:
            continue
        text = f"{score(first.get(key))} {plus_minus(first.get(f'{key}/half'))}"
        if len(evaluations) > 1:
            text += f" → {score(last.get(key))} {plus_minus(last.get(f'{key}/half'))}  {spark_of(key, values, 20)}"
        before, after = (m.get(f"{key}/n", m.get("eval/n")) for m in (first, last))
        if after is not None:  # a run may end on an evaluation of fewer rows
            is_like = before == after or before is None or not last.get(BETWEEN)
            text += f"  n {after}" if is_like else f"  n {before} → {after}"
        known = [m for m in of_all_rows(evaluations) if m.get(key) is not None]
        best = max(known, key=lambda m: float(m[key]), default=last)
        if len(known) > 1 and best is not known[-1]:
            text += f"  best {score(best[key])} at step {best.get('step')}"
        lines.append(f"   {name:<17} {text}")
    numbers = (key.removeprefix("eval/pass@") for key in last if key.startswith("eval/pass@"))
    ks = sorted(int(k) for k in numbers if k.isdigit() and k != "1")
    if ks:
        parts = [f"pass@{k} {_from_to(evaluations, f'eval/pass@{k}', two_decimals)}" for k in ks]
        lines.append(f"   {'held-out':<17} {'  '.join(parts)}")
    samples, failed = (sum(m.get(key) or 0 for m in evaluations) for key in ("eval/samples", "eval/without_verdict"))
    if failed:
        lines.append(f"   {'held-out errors':<17} {failed:,} of {samples:,} samples have no verdict of some verifier")
    if last.get("eval/think") is not None:
        lines.append(f"   {'thinks':<17} {_from_to(evaluations, 'eval/think', percent)} of held-out samples")
    return lines


def _from_to(evaluations: Sequence[Metrics], key: str, form: Callable[[float | None], str]) -> str:
    """Before and after, or the one number there is."""
    after = form(evaluations[-1].get(key))
    return after if len(evaluations) == 1 else f"{form(evaluations[0].get(key))} → {after}"


def _kinds(history: Sequence[Metrics], gap: str, named: bool) -> str:
    """Shares of the groups, each step weighing the same."""
    shares = []
    for kind, word in (("all_wrong", "wrong"), ("mixed", "mixed"), ("all_right", "right")):
        share = mean([m[f"group/{kind}"] / m["group/count"] for m in history if m.get("group/count")])
        text = percent(share)
        shares.append(f"{word} {text}" if named else text)
    return gap.join(shares)
