"""`grpo check` tries every kind of row on every verifier, and names the rows that get no verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import Row
from grpo_cli.errors import Exit
from grpo_cli.jobs.check import verifiers as checking
from grpo_cli.jobs.check.findings import CheckFinding, Level
from grpo_cli.jobs.check.verifiers import TRIED, check_rows_judged, varied
from grpo_verifiers import Verifier, build
from tests.builders.data_builders import row

FUNCTIONS = """
import time


def by_source(data_source, solution_str, ground_truth, extra_info=None):
    if data_source == "new":
        raise NotImplementedError(f"no reward for {data_source}")
    return float(solution_str == ground_truth)


def reads_level(completion, row):
    return {"easy": 0.5, "hard": 1.0}[row["level"]]


def of_words(completion, answer):
    return float(answer.strip() == completion)


def hangs(completion):
    time.sleep(3600)


def strict(completion, answer):
    return float(int(completion) == int(answer))


def once(completions, n, **columns):
    if any(one == 5 for one in n):
        raise ValueError("five is in it")
    return [0.0 for _ in completions]
"""
Check = Callable[..., list[CheckFinding]]


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Check]:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    made: list[Verifier] = []

    def run(name: str, rows: Sequence[Row], **options: Any) -> list[CheckFinding]:
        options = {"path": [str(tmp_path)], "workers": 1, **options}
        one = build("python", function=f"functions.py:{name}", **options)
        made.append(one)
        verifiers = {"math": build("math"), name: one}
        return list(check_rows_judged("train", audit_golds(rows, verifiers), verifiers))

    yield run
    for one in made:
        one.close()


def test_a_function_that_does_not_carry_one_source_is_named_with_the_rows_of_it(check: Check) -> None:
    rows = [row(str(n), answer="4", data_source="new" if n % 3 == 2 else "known") for n in range(9)]
    (found,) = check("by_source", rows)
    assert (found.check, found.level, found.code) == ("verify.by_source", Level.FAIL, Exit.SETUP)
    assert "3 of 9 train rows that were tried: NotImplementedError: no reward for new" in found.message
    assert found.lines == ("a.jsonl:2, a.jsonl:5, a.jsonl:8",)
    assert found.data["failures"][0]["rows"] == ["a.jsonl:2", "a.jsonl:5", "a.jsonl:8"]


def test_one_odd_source_among_thousands_of_rows_is_met(check: Check) -> None:
    rows = [row(str(n), answer=str(n), data_source="new" if n == 3_171 else "known") for n in range(5_000)]
    (found,) = check("by_source", rows)
    assert found.lines == ("a.jsonl:3171",)


@pytest.mark.parametrize(
    ("name", "odd", "says"),
    [
        ("reads_level", {"answer": "4"}, "KeyError: 'level'"),
        ("reads_level", {"answer": "4", "level": "expert"}, "KeyError: 'expert'"),
        ("of_words", {"answer": 4, "level": "easy"}, "AttributeError: 'int' object has no attribute 'strip'"),
    ],
)
def test_a_row_of_another_shape_is_met_wherever_it_stands(
    check: Check, name: str, odd: dict[str, Any], says: str
) -> None:
    rows = [row(str(n), answer=f"{n}", level="easy" if n % 2 else "hard") for n in range(1_000)]
    rows[613] = row("613", **odd)
    (found,) = check(name, rows)
    assert found.lines == ("a.jsonl:613",) and says in found.message


def test_a_function_over_lists_that_fails_on_one_row_names_that_row(check: Check) -> None:
    (found,) = check("once", [row(str(n), answer="4", n=n) for n in range(8)])
    assert found.lines == ("a.jsonl:5",) and "five is in it" in found.message


def test_a_function_that_wants_a_number_and_can_judge_each_row_is_fine(check: Check) -> None:
    assert check("strict", [row(str(n), answer=str(n)) for n in range(20)]) == []


def test_a_function_that_never_answers_costs_no_more_than_a_few_limits(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "TRIED_S", 0.5)
    began = time.monotonic()
    (found,) = check("hangs", [row(str(n), answer=str(n)) for n in range(64)], timeout_s=0.3)
    assert "4 of 4 train rows that were tried: it waited for more than 0.3 s" in found.message
    assert time.monotonic() - began < 10


def test_rows_that_differ_come_first_and_never_too_many_of_them() -> None:
    rows = [row(str(n), answer=str(n), kind=f"k{n % 7}", id=f"{n}") for n in range(10_000)]
    chosen = varied(rows, TRIED)
    assert len(chosen) == TRIED == len(set(chosen))
    assert {rows[at].fields["kind"] for at in chosen} == {f"k{n}" for n in range(7)}
    assert chosen[-1] > 9_000, "the others are spread over all of them"
    assert varied(rows[:5], TRIED) == [0, 1, 2, 3, 4]
