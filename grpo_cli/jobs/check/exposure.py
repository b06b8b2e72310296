"""Rows that a run could learn by heart, and questions with two golds: the cheap part of `grpo audit data`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import (
    MOST_COPIES,
    MOST_EXPOSURE,
    RowSignals,
    count_copies,
    find_contradictions,
    gold_of_row,
)
from grpo_cli.jobs.check.findings import CheckFinding, Level
from grpo_cli.text import visible

SHOWN = 3
HINT = "`grpo audit data` looks at each row, with the model too"


def check_exposure(rows: Sequence[Row], draws: int) -> CheckFinding:
    """Whether some question gets a large share of the rows that a run draws; a sample of the rows stands for all."""
    copies = count_copies(rows)
    exposed = RowSignals(copies, [], []).exposed(draws)
    most = max(copies)
    repeated = sum(n > MOST_COPIES for n in copies)
    data = {"draws": draws, "most_copies": most, "repeated": repeated, "exposed": len(exposed)}
    said = f"; {repeated:,} rows ask a question that comes more than {MOST_COPIES} times" if repeated else ""
    if not exposed:
        share = f"no question gets {MOST_EXPOSURE:.0%} of {draws:,} draws"
        return CheckFinding("exposure", Level.NOTE if repeated else Level.OK, share + said, data=data)
    first = max(exposed, key=lambda row: copies[row])
    text = f"one question gets {copies[first] / len(rows):.0%} of {draws:,} draws{said}"
    return CheckFinding(
        "exposure",
        Level.WARN,
        text,
        (f"{rows[first].place}: {visible(rows[first].prompt[:80])}",),
        data,
        hint=f"a run can learn such a row by heart, whatever it says: more rows, or fewer steps; {HINT}",
    )


def check_contradictions(rows: Sequence[Row], seen: str) -> Iterator[CheckFinding]:
    """Questions that stand twice with two golds."""
    found = find_contradictions(rows)
    data = {"rows": len(rows), "contradictions": len(found)}
    if not found:
        yield CheckFinding("two golds", Level.OK, f"no question of {seen} has two golds", data=data)
        return
    lines = tuple(
        " and ".join(
            f"{rows[i].place} says {visible(gold_of_row(rows[i].fields) or '')[:40]}" for i in same[:3]
        )
        for same in found[:SHOWN]
    )
    text = f"{len(found):,} questions of {seen} have two golds or more"
    yield CheckFinding("two golds", Level.WARN, text, lines, data, hint=f"one of them is wrong; {HINT}")
