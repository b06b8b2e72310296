"""Failures of verifiers: counted by sample, told apart by verifier and kind, never more than what can be read."""

from __future__ import annotations

import json

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.failures import MOST_KINDS, MOST_ROWS, Failures
from grpo_cli.statistics.step import outcome_stats
from grpo_verifiers.verdict import Outcome, Verdict, error, right

GONE = error("verifier_raised", "KeyError: 'x' (reward.py:3)")


def sample(row: str, *, outcome: Outcome = Outcome.RIGHT, **verdicts: Verdict) -> SampleRecord:
    return SampleRecord(0, row, row, "Q", "x", {}, {"math": right(), **verdicts}, outcome, None)


def test_a_sample_on_which_any_verifier_fails_is_counted_once_whatever_the_primary_says() -> None:
    records = [sample("a", f=GONE, g=error("timeout", "slow")), sample("b", f=GONE), sample("c", f=right())]
    found = Failures.of(records, {"a": "rows.jsonl:1", "b": "rows.jsonl:2"})
    assert (found.samples, found.failed) == (3, 2)
    assert [(one.verifier, one.samples, one.rows) for one in found.commonest] == [
        ("f", 2, ["rows.jsonl:1", "rows.jsonl:2"]),
        ("g", 1, ["rows.jsonl:1"]),
    ]
    assert outcome_stats(records)["error"] == 2 / 3, "a step counts the same way"
    assert found.text() == (
        "2 of 3 samples have no verdict: `f`: verifier_raised: KeyError: 'x' (reward.py:3) (rows.jsonl:1); 1 more kinds"
    )


def test_messages_that_differ_in_what_their_row_says_are_one_kind() -> None:
    found = Failures()
    for n in range(20):
        verdict = error("verifier_raised", f"ValueError: no number in '{n} apples' of row-{n} (reward.py:7)")
        found.add({"f": verdict}, f"r:{n}", {"name": f"row-{n}"})
    found.add({"f": error("verifier_raised", "ValueError: no number (reward.py:9)")}, "r:20", {})
    assert [one.samples for one in found.commonest] == [20, 1]
    assert len(found.commonest[0].rows) == MOST_ROWS


def test_kinds_without_end_are_bounded_and_none_of_their_samples_is_lost() -> None:
    found = Failures()
    words = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(400)]
    for word in words:
        found.add({"f": error("x", word)}, word, {})
    assert len(found.kinds) == MOST_KINDS + 1
    assert sum(one.samples for one in found.commonest) == found.failed == 400


def test_counts_of_two_processes_are_joined_as_those_of_one() -> None:
    first, second, whole = Failures(), Failures(), Failures()
    for n in range(6):
        part = first if n % 2 else second
        for one in (part, whole):
            one.add({"f": GONE if n else right()}, str(n), {})
    joined = Failures.unpacked(json.loads(json.dumps(first.packed())))
    joined.merge(Failures.unpacked(json.loads(json.dumps(second.packed()))))
    assert (joined.samples, joined.failed) == (whole.samples, whole.failed) == (6, 5)
    assert [one.samples for one in joined.commonest] == [5]
    named = Failures()
    named.merge(first, "in.jsonl")
    assert named.commonest[0].rows == ["in.jsonl:1", "in.jsonl:3", "in.jsonl:5"]
