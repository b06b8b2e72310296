from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import Row, drop_overlong
from grpo_cli.errors import DataError, SetupError
from grpo_verifiers.combine import CombineRule
from grpo_verifiers.verdict import Verdict, error, right, wrong
from grpo_verifiers.verifier import BadGold, Sample, Unavailable, Verifier


@dataclass(frozen=True)
class NoOptions:
    pass


class Whole(Verifier):
    """Golds are whole numbers; the completion must be the number, and 13 never is."""

    Options = NoOptions

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.compiled = 0

    def compile(self, row: Mapping[str, Any]) -> int:
        self.compiled += 1
        try:
            return int(row["answer"])
        except ValueError as err:
            raise BadGold(f"{row['answer']!r} is no whole number") from err

    def gold_text(self, row: Mapping[str, Any]) -> str:
        return str(row["answer"])

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [self._one(sample) for sample in samples]

    def _one(self, sample: Sample) -> Verdict:
        if sample.gold == 666:
            return error("crashed")
        return right() if sample.gold != 13 and sample.completion == str(sample.gold) else wrong(reason="not_equal")


class Anything(Whole):
    """Golds are any text."""

    def compile(self, row: Mapping[str, Any]) -> Any:
        return row["answer"]


def row(n: int, answer: Any = None) -> Row:
    return Row(f"r{n}", f"q{n}", None, {"answer": str(n) if answer is None else answer}, f"a.jsonl:{n}")


def test_golds_stand_in_the_order_of_the_rows() -> None:
    audit = audit_golds([row(3), row(1), row(2)], {"whole": Whole()})
    assert audit.golds == {"whole": [3, 1, 2]}
    assert audit.dropped == []


def test_equal_golds_are_compiled_once() -> None:
    verifier = Whole()
    audit_golds([row(1, "7"), row(2, "7"), row(3, "8")], {"whole": verifier})
    assert verifier.compiled == 2


def test_rows_share_a_gold_only_if_they_agree_in_all_that_was_read() -> None:
    class Scaled(Whole):
        def compile(self, row: Mapping[str, Any]) -> int:
            return super().compile(row) * row.get("unit", 1)

        def gold_text(self, row: Mapping[str, Any]) -> str:
            return str(int(row["answer"]) * row.get("unit", 1))

    rows = [Row(str(i), "q", None, fields) for i, fields in enumerate([{"answer": "7"}, {"answer": "7", "unit": 2}])]
    verifier = Scaled()
    assert audit_golds([*rows, rows[1]], {"scaled": verifier}).golds == {"scaled": [7, 14, 14]}
    assert verifier.compiled == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("x", "'x' is no whole number"),
        ("13", "does not pass its own verifier: '13' is wrong (not_equal)"),
        ("007", "does not pass its own verifier: '007' is wrong (not_equal)"),
        ("666", "the verifier fails on the gold '666': crashed"),
    ],
)
def test_a_bad_gold_is_an_error_with_its_line(answer: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        audit_golds([row(1), row(2, answer)], {"whole": Whole()})
    (mistake,) = caught.value.mistakes
    assert mistake.place == "a.jsonl:2"
    assert mistake.message.startswith("`verify.whole` cannot use this row: ")
    assert words in mistake.message


def test_dropped_rows_are_listed_and_leave_every_verifier() -> None:
    audit = audit_golds([row(1), row(2, "x"), row(3)], {"a": Whole(), "b": Whole()}, "drop")
    assert [r.id for r in audit.rows] == ["r1", "r3"]
    assert audit.golds == {"a": [1, 3], "b": [1, 3]}
    assert [m.place for m in audit.dropped] == ["a.jsonl:2"]


def test_dropping_every_row_is_an_error() -> None:
    with pytest.raises(DataError, match="no whole number") as caught:
        audit_golds([row(1, "x")], {"whole": Whole()}, "drop")
    assert "data.answer" in caught.value.hint


def test_a_row_without_the_verifiers_column_is_a_bad_row() -> None:
    with pytest.raises(DataError, match="no column `answer`; did you mean `answers`"):
        audit_golds([Row("r", "q", None, {"answers": "1"}, "a.jsonl:1")], {"whole": Whole()})


def test_a_verifier_that_cannot_run_here_is_a_matter_of_the_machine() -> None:
    class NoSandbox(Whole):
        def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
            raise Unavailable("no sandbox", "do this")

    with pytest.raises(SetupError, match="no sandbox") as caught:
        audit_golds([row(1)], {"code": NoSandbox()})
    assert (caught.value.hint, caught.value.mistakes[0].place) == ("do this", "verify.code")


def test_with_the_rule_by_a_row_has_a_gold_only_for_the_verifier_it_names() -> None:
    rows = [
        Row(str(i), "q", None, {"answer": a, "kind": k}, f"a:{i}") for i, (a, k) in enumerate([("1", "a"), ("x", "b")])
    ]
    verifiers = {"a": Whole(), "b": Anything()}
    audit = audit_golds(rows, verifiers, rule=CombineRule("by", by="kind"))
    assert audit.golds == {"a": [1, None], "b": [None, "x"]}


def test_with_the_rule_by_a_row_that_names_no_verifier_is_a_bad_row() -> None:
    rows = [Row("1", "q", None, {"answer": "1", "kind": "c"}, "a:1"), Row("2", "q", None, {"answer": "1"}, "a:2")]
    with pytest.raises(DataError) as caught:
        audit_golds(rows, {"a": Whole()}, rule=CombineRule("by", by="kind"))
    assert [m.place for m in caught.value.mistakes] == ["a:1", "a:2"]
    assert "`kind` is 'c'" in caught.value.mistakes[0].message


def test_overlong_prompts_are_dropped_whole_and_counted() -> None:
    rows = [row(1), row(22), row(333)]
    fitting = drop_overlong(rows, lambda r: len(r.prompt), limit=3)
    assert fitting.rows == rows[:2]
    assert fitting.summary() == ("dropped 1 of 3 rows: prompts over 3 tokens (the longest has 4, a.jsonl:333)")


def test_without_a_limit_nothing_is_counted() -> None:
    assert drop_overlong([row(1)], lambda _: 1 // 0, limit=None).rows == [row(1)]


def test_when_no_prompt_fits_the_shortest_is_named() -> None:
    with pytest.raises(DataError, match="the shortest has 2"):
        drop_overlong([row(1), row(22)], lambda r: len(r.prompt), limit=1)
