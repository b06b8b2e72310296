"""What `grpo check` finds in the golds of rows, by the verifiers that judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import Row
from grpo_cli.errors import DataError
from grpo_cli.jobs.check.findings import CheckFinding, Level
from grpo_cli.jobs.check.verifiers import check_golds, check_refusals
from grpo_verifiers import Outcome, Sample, Verdict, Verifier
from tests.builders.data_builders import row


@dataclass(frozen=True)
class NoOptions:
    pass


class Says(Verifier):
    """Calls right what `accepts` accepts."""

    Options = NoOptions

    def __init__(self, accepts: Any) -> None:
        super().__init__(NoOptions())
        self.accepts = accepts

    def compile(self, row: Mapping[str, Any]) -> str:
        return str(row["answer"])

    def gold_text(self, row: Mapping[str, Any]) -> str:
        return str(row["answer"])

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [
            Verdict(Outcome.RIGHT, 1.0) if self.accepts(s.completion, s.gold) else Verdict(Outcome.WRONG, 0.0)
            for s in samples
        ]


def refusals(accepts: Any) -> CheckFinding:
    verifiers = {"v": Says(accepts)}
    audit, golds = check_golds("train", [row(str(i), answer=str(i)) for i in range(50)], verifiers, False, None)
    assert audit is not None and golds.level is Level.OK
    (found,) = check_refusals(audit, verifiers)
    return found


def test_golds_without_a_verdict_are_counted_with_their_data_set() -> None:
    class NotCarried(Says):
        def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
            left = Verdict(Outcome.ERROR, None, reason="not_supported", detail="threads")
            return [left if s.gold == "3" else Verdict(Outcome.RIGHT, 1.0) for s in samples]

        def describe(self, golds: Sequence[Any]) -> list[str]:
            return [f"set: {golds.count('3')} of {len(golds)} not supported"]

    rows = [row(str(i), answer=str(i)) for i in range(5)]
    _, found = check_golds("train", rows, {"v": NotCarried(None)}, False, None)
    assert (found.level, found.data["bad"], found.lines[0]) == (Level.FAIL, 1, "`v` reads set: 1 of 5 not supported")
    assert "not_supported: threads" in found.lines[1]


def test_a_verifier_that_tells_golds_apart_is_fine() -> None:
    found = refusals(lambda completion, gold: completion == gold)
    assert (found.level, found.data["right"]) == (Level.OK, 0)


def test_a_verifier_that_always_says_yes_is_found_out() -> None:
    assert refusals(lambda completion, gold: True).message == "calls an empty completion right"


def test_a_verifier_that_says_yes_to_any_answer_is_found_out() -> None:
    found = refusals(lambda completion, gold: completion != "")
    assert (found.level, found.data["right"]) == (Level.WARN, 49)


def test_bad_golds_are_a_failure_or_a_note_as_the_recipe_says() -> None:
    rows = [row("1", answer="1"), row("2", answer="13")]
    verifiers = {"v": Says(lambda completion, gold: completion == gold != "13")}
    _, refused = check_golds("train", rows, verifiers, drops=False, budget_s=None)
    _, noted = check_golds("train", rows, verifiers, drops=True, budget_s=None)
    assert (refused.level, noted.level) == (Level.FAIL, Level.NOTE)
    assert refused.lines[0].startswith("a.jsonl:2: `verify.v` cannot use this row")
    same = [row(str(i), answer="13") for i in range(4)]
    _, many = check_golds("train", same, verifiers, drops=False, budget_s=None)
    assert len(many.lines) == 1 and "; so are 3 more: " in many.lines[0], "a message is said once"


class Raises(Verifier):
    """Fails on every completion, as a function does that raises on what it reads; says where and on what."""

    kind = "raises"
    columns = ("answer",)

    def __init__(self, words: str) -> None:
        self.words = words

    def compile(self, row: Mapping[str, Any]) -> Any:
        return row["answer"]

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        return str(row["answer"])

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        details = [self.words.format(repr(one.gold), one.gold) for one in samples]
        return [Verdict(Outcome.ERROR, None, None, "verifier_raised", 0.0, detail) for detail in details]


def test_what_a_verifier_finds_in_the_rows_is_said_before_their_mistakes() -> None:
    class Counts(Says):
        def describe(self, golds: Sequence[Any]) -> list[str]:
            return [f"a set: {len(golds)} values"]

    verifiers = {"v": Counts(lambda completion, gold: completion == gold != "13")}
    rows = [row(str(i), answer=str(10 + i)) for i in range(5)]
    _, found = check_golds("train", rows, verifiers, drops=False, budget_s=None)
    assert found.lines[0] == "`v` reads a set: 5 values"
    assert found.lines[1].startswith("a.jsonl:")


@pytest.mark.parametrize(
    "words",
    [
        "ValueError: invalid literal for int() with base 10: {0} (r.py:2)",
        "KeyError: {0} (r.py:2)",
        "no such answer: {1} (r.py:2)",
        "ZeroDivisionError: division by zero (r.py:2)",
    ],
)
def test_errors_that_differ_only_in_the_text_of_their_rows_are_said_once(words: str) -> None:
    golds = ["2", "10", "it's 4", 'say "7"', "-1.5", "two words", "10,000", "a\\b", "x" * 80]
    rows = [row(str(i), answer=gold) for i, gold in enumerate(golds)]
    _, found = check_golds("train", rows, {"v": Raises(words)}, drops=False, budget_s=None)
    assert len(found.lines) == 1, "\n".join(found.lines)
    assert found.lines[0].startswith("a.jsonl:0: `verify.v` cannot use this row: the verifier fails on")
    assert found.lines[0].endswith("; so are 8 more: a.jsonl:1, a.jsonl:2, …")
    assert found.data["bad"] == len(golds)
    with pytest.raises(DataError) as refused:
        audit_golds(rows, {"v": Raises(words)})
    assert refused.value.render().count("error: ") == 1, "training says it once as well"


def test_errors_of_several_causes_are_told_apart() -> None:
    rows = [row(str(i), answer=gold) for i, gold in enumerate(["1", "2", "3", "4"])]
    verifiers = {"v": Says(lambda completion, gold: completion == gold and gold in "12")}
    _, wrong = check_golds("train", rows, verifiers, drops=False, budget_s=None)
    assert len(wrong.lines) == 1 and wrong.lines[0].endswith("; so is 1 more: a.jsonl:3")
    one, other = ({"v": Raises(f"KeyError: {{0}} (r.py:{line})")} for line in (2, 9))
    kinds = [err.value.mistakes[0].kind for v in (one, other) for err in [_refused(rows, v)]]
    assert len(set(kinds)) == 2, "the lines of a function are no text of a row"


def _refused(rows: list[Row], verifiers: dict[str, Verifier]) -> pytest.ExceptionInfo[DataError]:
    with pytest.raises(DataError) as err:
        audit_golds(rows, verifiers)
    return err


def test_a_slow_verifier_is_sampled_over_all_rows_and_the_count_is_said() -> None:
    rows = [row(str(i), answer=str(i)) for i in range(1_000)]
    verifiers = {"v": Says(lambda completion, gold: completion == gold)}
    audit, found = check_golds("train", rows, verifiers, drops=False, budget_s=0.0)
    assert audit is not None
    assert found.message == "all of 250 of 1,000 train rows pass their own verifier"
    assert (audit.rows[0].id, audit.rows[-1].id) == ("0", "996")
    _, found = check_golds("train", rows, verifiers, drops=False, budget_s=None)
    assert found.message == "all of 1,000 train rows pass their own verifier"


def test_rows_that_are_all_bad_are_one_failure() -> None:
    _, found = check_golds("train", [row("1", answer="1")], {"v": Says(lambda *_: False)}, drops=True, budget_s=None)
    assert (found.level, found.hint) == (
        Level.FAIL,
        "every row has one: look at `data.answer`, `gold` and the verifier first",
    )
