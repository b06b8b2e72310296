from __future__ import annotations

import re
from typing import Any

import pytest

from grpo_cli.data.rows import Row, load_rows
from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_verifiers import build
from grpo_verifiers.verdict import Outcome
from grpo_verifiers.verifier import Sample
from tests.builders.data_builders import Data, Source


def rows(name: str, which: str = "train", **options: Any) -> list[Row]:
    source = Source(name, options=options)
    prompt = "{text}" if name == "tasks:records" else "{question}"
    return load_rows(Data([source], eval=source, prompt=prompt), "train" if which == "train" else "eval")


def test_addition3_trains_on_twelve_thousand_sums_and_holds_out_1024_others() -> None:
    train, test = rows("tasks:addition3"), rows("tasks:addition3", "eval")
    assert (len(train), len(test)) == (12_000, 1_024)
    assert not {r.prompt for r in train} & {r.prompt for r in test}
    assert len({r.prompt for r in train}) == 12_000


def test_addition3_works_its_sums_out_column_by_column() -> None:
    from grpo_cli.data.tasks.addition3 import problem

    assert problem(412, 989) == {
        "question": "412+989=?",
        "answer": "1401",
        "worked": "<think>290:11,181:10,491:14</think>\\boxed{1401}",
        "blurt": "\\boxed{1401}",
    }


def test_every_worked_column_of_addition3_adds_up() -> None:
    for row in rows("tasks:addition3", size=300):
        for x, y, carry, total in re.findall(r"(\d)(\d)(\d):(\d+)", row.fields["worked"]):
            assert int(x) + int(y) + int(carry) == int(total)


def test_a_smaller_training_set_keeps_the_held_out_rows() -> None:
    assert rows("tasks:addition3", "eval", size=5) == rows("tasks:addition3", "eval")


def test_the_split_can_be_named() -> None:
    assert rows("tasks:addition3", "train", split="test") == rows("tasks:addition3", "eval")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tasks:additoin3", {}, "did you mean `addition3`"),
        ("tasks:addition3", {"sise": 3}, "did you mean `size`"),
        ("tasks:addition3", {"size": "many"}, "whole number from 0, got 'many'"),
        ("tasks:addition3", {"split": "dev"}, "train or test, got 'dev'"),
        ("tasks:rg/chain_sums", {}, "did you mean `chain_sum`"),
        ("tasks:rg/chain_sum", {"min_term": 1}, "did you mean `min_terms`"),
        ("tasks:rg/chain_sum", {"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
        ("tasks:rg/chain_sum", {"size": 0}, "whole number from 1, got 0"),
        ("https://example.org/a.jsonl", {}, "download it"),
        ("a.jsonl", {"split": "test"}, "unknown option `split`"),
    ],
)
def test_a_source_that_cannot_be_meant_is_a_mistake_of_the_recipe(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        rows(name, **options)
    assert caught.value.mistakes[0].place == "data.train"


def test_reasoning_gym_rows_carry_what_its_scorer_needs() -> None:
    from reasoning_gym.factory import get_score_answer_fn

    for row in rows("tasks:rg/countdown", size=5):
        score = get_score_answer_fn(row.fields["rg"])
        assert score(row.fields["answer"], row.fields) == 1.0
        assert score("1", row.fields) < 1.0


def test_reasoning_gym_rows_are_the_same_every_time() -> None:
    assert rows("tasks:rg/chain_sum", size=20) == rows("tasks:rg/chain_sum", size=20)
    assert rows("tasks:rg/chain_sum", size=20) != rows("tasks:rg/chain_sum", size=20, seed=1)


def test_reasoning_gym_splits_share_no_question_even_in_a_small_space() -> None:
    options = {"max_digits": 1, "max_terms": 2, "size": 400}
    train, test = (rows("tasks:rg/chain_sum", "train", **options), rows("tasks:rg/chain_sum", "eval", **options))
    assert len(train) == len(test) == 400
    assert not {r.prompt for r in train} & {r.prompt for r in test}


def test_a_space_without_enough_test_questions_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo_cli.data.tasks import gym

    monkeypatch.setattr(gym, "TEST_SHARE", 300)
    with pytest.raises(DataError, match="rows for the test split"):
        rows("tasks:rg/chain_sum", "eval", max_digits=1, max_terms=2, size=1)


def test_without_reasoning_gym_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(SetupError) as caught:
        rows("tasks:rg/chain_sum")
    assert caught.value.hint == "pip install 'grpo-cli[tasks]'"


def test_every_small_function_passes_its_own_tests_and_another_one_does_not() -> None:
    both = [*rows("tasks:functions"), *rows("tasks:functions", "eval")]
    assert len({row.fields["question"] for row in both}) == len(both) == 340
    for row in both:
        assert passes(row.fields["solution"], row.fields["tests"]), row.fields["question"]
        assert not passes("def f(x):\n    return None", row.fields["tests"]), row.fields["question"]


def test_a_small_function_that_ignores_its_number_fails() -> None:
    for row in rows("tasks:functions", "eval"):
        wrong = re.sub(r"\d+(?=\D*$)", lambda number: str(int(number[0]) + 1), row.fields["solution"])
        if wrong != row.fields["solution"]:
            assert not passes(wrong, row.fields["tests"]), wrong


def passes(solution: str, tests: list[str]) -> bool:
    """Whether all asserts hold; run here, since both texts are ours."""
    names: dict[str, Any] = {}
    exec(solution, names)
    try:
        for test in tests:
            exec(test, names)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", ["instructions", "records", "shop"])
def test_held_out_rows_of_a_task_stand_in_no_training_row(name: str) -> None:
    train, test = rows(f"tasks:{name}"), rows(f"tasks:{name}", "eval")
    assert len(test) == 64 and len(train) >= 192
    assert len({row.prompt for row in (*train, *test)}) == len(train) + len(test)
    assert rows(f"tasks:{name}", "eval", size=5) == test


def test_a_task_ends_when_it_has_no_more_rows() -> None:
    assert 1_000 < len(rows("tasks:instructions", size=40_000)) < 40_000


def test_golds_of_the_shop_and_of_records_are_right_and_no_other_row_is() -> None:
    for name, kind in (("records", "json"), ("shop", "sql")):
        verifier = build(kind)
        some = [row.fields for row in rows(f"tasks:{name}", "eval")][:12]
        golds = [verifier.compile(row) for row in some]
        pairs = [(a, b) for a in range(12) for b in range(12) if some[a]["answer"] != some[b]["answer"]]
        own = verifier.judge([Sample(row["answer"], gold) for row, gold in zip(some, golds, strict=True)])
        assert [one.outcome for one in own] == [Outcome.RIGHT] * 12
        others = verifier.judge([Sample(some[a]["answer"], golds[b]) for a, b in pairs])
        assert sum(one.outcome is Outcome.RIGHT for one in others) == 0


def test_what_instructions_ask_for_is_what_is_judged() -> None:
    verifier = build("instructions")
    every = {name: row for row in rows("tasks:instructions") for name in row.fields["instruction_id_list"]}
    assert len(every) == 7
    texts = {
        "change_case:english_lowercase": ("rain falls on the roof", "Rain falls"),
        "change_case:english_capital": ("RAIN FALLS ON THE ROOF", "Rain falls"),
        "punctuation:no_comma": ("rain falls", "rain, then sun"),
        "length_constraints:number_words": ("rain", "rain " * 60),
        "startend:quotation": ('"Rain."', "Rain."),
    }
    for name, (good, bad) in texts.items():
        found = [r for r in rows("tasks:instructions") if r.fields["instruction_id_list"] == [name]]
        gold = verifier.compile(found[0].fields)
        said = verifier.judge([Sample(good, gold), Sample(bad, gold)])
        assert [one.outcome for one in said] == [Outcome.RIGHT, Outcome.WRONG], name
