"""Failures that no completion has caused are no verdict, whatever they are; those that one causes each time are its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Outcome, Sample, Verdict, build
from grpo_verifiers.kinds.functions.asking import FORM_KILLS, Prints
from grpo_verifiers.kinds.python_function import PythonVerifier
from tests.verifiers.kinds.failing_rewards import CALLS

HERE = str(Path(__file__).parent)
Make = Callable[..., PythonVerifier]

BY_CHANCE = {
    "connection_refused": "verifier_raised",
    "dns": "verifier_raised",
    "http": "verifier_raised",
    "timeout": "verifier_raised",
    "child_timeout": "verifier_raised",
    "reset_later": "verifier_raised",
    "killed": "worker_died",
    "crashed": "worker_died",
    "exits": "worker_died",
    "memory": "memory",
    "eats": "memory",
    "hangs": "no_reply",
    "spins": "timeout",
    "recursion": "verifier_raised",
    "no_fork": "verifier_raised",
    "no_thread": "verifier_raised",
    "in_a_thread": "verifier_raised",
    "missing_import": "verifier_raised",
    "not_carried": "verifier_raised",
    "interrupted": "verifier_raised",
    "left": "verifier_raised",
    "cancelled": "verifier_raised",
    "generator_exit": "verifier_raised",
    "mute": "verifier_raised",
    "quits": "verifier_raised",
    "surrogate": "verifier_raised",
    "group": "verifier_raised",
    "locked": "verifier_raised",
    "key": "verifier_raised",
    "returns_text": "bad_return",
    "returns_list": "bad_return",
    "returns_dict": "bad_return",
    "returns_complex": "bad_return",
    "returns_nan": "bad_return",
    "returns_inf": "bad_return",
    "returns_huge": "bad_return",
    "returns_huge_score": "bad_return",
    "returns_none": "returned_none",
    "returns_generator": "bad_return",
    "returns_type": "bad_return",
    "returns_no_number": "bad_return",
    "returns_no_words": "bad_return",
    "waits_for_refused": "unanswered",
    "waits_and_leaves": "verifier_raised",
    "waits_and_is_mute": "verifier_raised",
    "waits_and_hangs": "unanswered",
    "lists_refused": "verifier_raised",
    "lists_too_few": "bad_return",
    "lists_too_many": "bad_return",
    "lists_hold_text": "bad_return",
    "lists_hold_none": "skipped",
}
"""What fails every fourth time, and the reason of no verdict."""

DIES = ("killed", "crashed", "exits", "memory", "eats")
"""Tried again in a fresh worker by the pool: some of these get their verdict."""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[PythonVerifier] = []

    def build_one(name: str, module: str = "failing_rewards", **options: Any) -> PythonVerifier:
        options = {"path": [HERE], "workers": 1, "timeout_s": 0.5, "retries": 0, "cache": False} | options
        one = build("python", function=f"{module}:{name}", **options)
        assert isinstance(one, PythonVerifier)
        made.append(one)
        return one

    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))
    yield build_one
    for one in made:
        one.close()


def judged(one: PythonVerifier, texts: list[str], rows: int = 2) -> list[Verdict]:
    golds = [one.compile({"answer": "4", "n": n}) for n in range(rows)]
    return one.judge([Sample(text, gold, f"q{n}") for n, gold in enumerate(golds) for text in texts])


@pytest.mark.parametrize(("name", "reason"), BY_CHANCE.items())
def test_a_failure_that_no_completion_caused_is_never_paid(make: Make, name: str, reason: str) -> None:
    found = judged(make(name), ["4"] * 7)
    assert {verdict.score for verdict in found} <= {1.0, None}, found
    lost = [verdict for verdict in found if verdict.outcome is Outcome.ERROR]
    assert lost or name in DIES
    assert {verdict.reason for verdict in lost} <= {reason}
    assert all(verdict.detail and verdict.detail.isprintable() for verdict in lost), lost


@pytest.mark.parametrize("name", DIES)
def test_a_worker_that_dies_for_no_fault_of_a_completion_costs_it_nothing(make: Make, name: str) -> None:
    """One call at a time, so that the failure meets a fresh worker as well as a used one."""
    one = make(name)
    found = [verdict for _ in range(8) for verdict in judged(one, ["4"], rows=1)]
    assert {verdict.score for verdict in found} <= {1.0, None}


@pytest.mark.parametrize(
    ("completion", "outcome", "reason"),
    [
        ("value", "wrong", "verifier_raised"),
        ("spin", "over_limit", "timeout"),
        ("eat", "over_limit", "memory"),
        ("exit", "wrong", "verifier_raised"),
        ("deep", "wrong", "verifier_raised"),
        ("child", "wrong", "verifier_raised"),
        ("none", "no_answer", "returned_none"),
        ("file", "wrong", "verifier_raised"),
        ("refused", "error", "verifier_raised"),
        ("hang", "error", "no_reply"),
        ("import", "error", "verifier_raised"),
    ],
)
def test_a_failure_that_comes_with_one_completion_each_time_is_its_own(
    make: Make, completion: str, outcome: str, reason: str
) -> None:
    """Not so where somebody else is away, silent or missing: a function that catches it may return 0."""
    before, found, after = judged(make("by_content", "content_rewards"), ["4", completion, "4"], rows=1)
    assert (before.score, after.score) == (1.0, 1.0)
    assert (found.outcome.value, found.reason) == (outcome, reason), found
    assert found.score == (None if outcome == "error" else 0.0)


def test_one_sample_alone_is_settled_by_plain_completions_of_its_row(make: Make) -> None:
    one = make("by_content", "content_rewards")
    assert one.verify("value", {"answer": "4"}).outcome is Outcome.WRONG
    assert one.verify("hang", {"answer": "4"}).outcome is Outcome.ERROR


def test_a_row_on_which_every_completion_fails_has_no_verdict(make: Make) -> None:
    one = make("by_row", "content_rewards")
    golds = [one.compile({"answer": "4", "source": source}) for source in ("known", "new")]
    found = one.judge([Sample("5", gold, "q") for gold in golds for _ in range(2)])
    assert [verdict.score for verdict in found] == [0.0, 0.0, None, None]
    assert "KeyError: 'new'" in found[2].detail and "on plain completions too" in found[2].detail


def test_a_call_that_hangs_takes_about_its_limit(make: Make) -> None:
    one = make("by_content", "content_rewards", timeout_s=1.0)
    gold = one.compile({"answer": "4"})
    one.judge([Sample("4", gold, "q")])
    began = time.monotonic()
    found = one.judge([Sample("hang", gold, "q") for _ in range(3)])
    each = (time.monotonic() - began) / 3
    assert [verdict.reason for verdict in found] == ["no_reply"] * 3
    assert 0.9 < each < 2.0, each
    assert "waited for more than 1 s (`timeout_s`)" in found[0].detail


def test_a_function_that_always_spins_is_asked_for_one_plain_completion(make: Make) -> None:
    one = make("spins", "content_rewards", timeout_s=0.2)
    found = judged(one, ["4"] * 3, rows=1)
    assert [(verdict.outcome, verdict.reason) for verdict in found] == [(Outcome.ERROR, "timeout")] * 3
    assert "on plain completions too" in found[0].detail
    one.close()
    assert one.printed == 4


# -- prints -------------------------------------------------------------------------------------------------------------


def test_prints_are_bounded_for_each_completion_and_that_is_said_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = make("prints", "content_rewards", timeout_s=5.0)
    with caplog.at_level(logging.INFO, "grpo_verifiers.printed"):
        for _ in range(3):
            judged(one, ["4"] * 2, rows=1)
        one.close()
    kept = [record.getMessage() for record in caplog.records]
    assert sum(map(len, kept)) < 3 * 2 * Prints.OF_ONE + 500
    assert sum("prints more than is kept" in line for line in kept) == 1
    assert one.printed > 6 * 200, "lines that are not kept are counted"


def test_prints_are_bounded_for_the_whole_run(caplog: pytest.LogCaptureFixture) -> None:
    prints = Prints("f")
    with caplog.at_level(logging.INFO, "grpo_verifiers.printed"):
        for _ in range(1_000):
            prints.allow(1)
            prints("x" * 3_000)
    assert sum(len(record.getMessage()) for record in caplog.records) < 1.1 * Prints.OF_ALL
    assert prints.count == 1_000


def test_what_is_printed_steers_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "grpo_verifiers.printed"):
        Prints("f")("\x1b[31mred \x07\u202e \udcff")
    assert caplog.records[0].getMessage() == "f printed: \\x1b[31mred \\x07\\u202e \\udcff"


def test_a_function_over_lists_that_hangs_is_given_up_while_its_form_is_looked_for(make: Make) -> None:
    one = make("lists_hang", "content_rewards", timeout_s=0.2)
    one.start()
    for n in range(20):
        one.compile({"answer": "4", "n": n})
    one.close()
    assert one.printed == FORM_KILLS
