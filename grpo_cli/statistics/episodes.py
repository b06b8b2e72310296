"""Statistics of episodes: number of turns, how they ended, and invalid actions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_cli.run.records import SampleRecord
from grpo_cli.text import number, visible

ENVIRONMENT = "environment"
"""The name that the verifier of an environment's outcome has where the recipe gives it no other."""

ENDPOINT = (
    "endpoint/requests",
    "endpoint/rows",
    "endpoint/fork/history",
    "endpoint/fork/tools",
    "endpoint/fork/template",
    "endpoint/root",
    "endpoint/sibling",
    "endpoint/retry",
    "endpoint/cancelled",
    "endpoint/untrained",
    "endpoint/overridden",
)
"""What an endpoint counts of an episode."""


def episode_stats(samples: Sequence[SampleRecord]) -> dict[str, float | int | None]:
    """Statistics of the samples that are episodes; empty without episodes.

    `turns/mean` and `turns/max` over episodes; `turns/cut` the share of them that the token budget ended; `env/invalid` the
    share of all turns that their environments called invalid; `env/no_verdict` the share of episodes without an outcome.
    `env/milestones` is how many milestones an episode reaches, each counted once; `env/milestones_again` the share of the
    turns that name a milestone whose episode had reached that one before, None where no turn names any. `endpoint/…` are what the
    endpoint counted, means over the episodes of a harness.
    """
    episodes = [sample for sample in samples if sample.turns]
    if not episodes:
        return {}
    turns = [len(sample.turns) for sample in episodes]
    named = [_milestones(sample) for sample in episodes]
    every, distinct = sum(map(len, named)), sum(len(set(names)) for names in named)
    invalid = sum(not turn.get("valid", True) for sample in episodes for turn in sample.turns)
    outcomes = ((sample, sample.verdicts.get(ENVIRONMENT)) for sample in episodes)
    unjudged = [sample.reward is None if own is None else own.score is None for sample, own in outcomes]
    asked = [sample.endpoint for sample in episodes if sample.endpoint]
    endpoint = {
        name: sum(one.get(name.rpartition("/")[2], 0) for one in asked) / len(asked)
        for name in (ENDPOINT if asked else ())
    }
    return endpoint | {
        "turns/mean": sum(turns) / len(turns),
        "turns/max": max(turns),
        "turns/cut": math.fsum(sample.truncated for sample in episodes) / len(episodes),
        "env/invalid": invalid / sum(turns),
        "env/no_verdict": math.fsum(unjudged) / len(episodes),
        "env/milestones": distinct / len(episodes),
        "env/milestones_again": (every - distinct) / every if every else None,
    }


def repeated_turns(sample: SampleRecord) -> int:
    """How many turns of an episode reach a milestone that it had reached before."""
    names = _milestones(sample)
    return len(names) - len(set(names))


def _milestones(sample: SampleRecord) -> list[str]:
    return [str(name) for turn in sample.turns if (name := turn.get("milestone")) is not None]


def turns_by_outcome(samples: Sequence[SampleRecord]) -> dict[str, float | int | None]:
    """`turns/right` and `turns/wrong`: mean turns of the episodes that are right, and of those that are not; None
    without any.

    Empty without episodes; one without a verdict counts in neither.
    """
    episodes = [sample for sample in samples if sample.turns]
    found: dict[str, float | int | None] = {}
    for key, is_right in (("turns/right", True), ("turns/wrong", False)) if episodes else ():
        turns = [len(e.turns) for e in episodes if e.is_judged and e.is_right is is_right]
        found[key] = math.fsum(turns) / len(turns) if turns else None
    return found


def in_one_line(sample: SampleRecord) -> str:
    """An episode for a screen: `e → k0x1y0 · n → k0x1y1`; any other sample is its text."""
    if not sample.turns:
        return sample.completion
    said = [(turn.get("text", ""), turn.get("observation", "")) for turn in sample.turns]
    return " · ".join(f"{text} → {seen}" if seen else text for text, seen in said)


def group_lines(records: Sequence[SampleRecord]) -> list[str]:
    """A group for a person to read: the prompt, then every completion, an episode turn by turn, under its verdicts."""
    first = records[0]
    right = sum(record.is_right for record in records)
    lines = [f"row {visible(first.row)}", *_indented(first.prompt)]
    if (answer := first.fields.get("answer")) is not None:
        lines.append(f"expected: {visible(str(answer))}")
    lines.append(f"{right} of {len(records)} right")
    for i, record in enumerate(records, 1):
        outcome = record.outcome.value if record.outcome else "no verdict"
        cut = ", cut" if record.truncated else ""
        lines += ["", f"— {i}: {outcome}, reward {number(record.reward)}, {record.tokens} tokens{cut}"]
        for at, turn in enumerate(record.turns, 1):
            facts = [f"reward {number(turn['reward'])}"] if turn.get("reward") else []
            facts += [f"milestone {visible(str(turn['milestone']))}"] if turn.get("milestone") else []
            facts += [] if turn.get("valid", True) else ["not valid"]
            # where a harness rewrote its history, a row of its own begins
            row = record.rows[turn["row"]] if 0 < turn.get("row", 0) < len(record.rows) else {}
            facts += [f"row {turn['row']}, {row.get('why')}"] if row else []
            lines += _indented(str(turn.get("text", "")), f"{at}. ")
            seen = str(turn.get("observation", ""))
            lines += [*_indented(seen, "→ ")] if seen else []
            lines += [f"  ({', '.join(facts)})"] if facts else []
        lines += [] if record.turns else _indented(record.completion)
        if counted := {name: n for name, n in record.endpoint.items() if n}:
            lines.append(f"  endpoint: {', '.join(f'{name} {n}' for name, n in counted.items())}")
        for name, verdict in record.verdicts.items():
            said = f" answer `{visible(str(verdict.answer))}`" if verdict.answer is not None else ""
            lines.append(f"  {name}: {verdict.outcome.value} ({visible(verdict.reason)}){said}")
    return lines


def _indented(text: str, mark: str = "") -> list[str]:
    parts = text.splitlines() or [""]
    return [f"  {mark if i == 0 else ' ' * len(mark)}{visible(line)}" for i, line in enumerate(parts)]
