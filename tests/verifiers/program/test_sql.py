"""The verifier `sql`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from grpo_verifiers import BadGold, Verifier, build
from grpo_verifiers.program.sql import QueryAnswer, orders_rows, same_rows, tie_sizes

PEOPLE = "create table p(name text, age int); insert into p values('ann', 3), ('bob', 5), ('cy', 5), ('di', null);"
OTHERS = "create table p(name text, age int); insert into p values('eve', 5), ('fay', 4);"
ROW = {"schema": PEOPLE, "answer": "select name from p where age = 5"}


@pytest.fixture(scope="module")
def sql() -> Iterator[Verifier]:
    verifier = build("sql", lanes=1, timeout=1.0)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("query", "outcome", "reason"),
    [
        ("```sql\nSELECT name FROM p WHERE age > 4 ORDER BY name DESC;\n```", "right", "databases:1"),
        ("select name from p where age = 5 -- a comment", "right", "databases:1"),
        ("so:\n```sql\nselect 1\n```\nno:\n```sql\nselect name from p where age = 5\n```", "right", "databases:1"),
        ("select name from p", "wrong", "rows_differ"),
        ("select name, age from p where age = 5", "wrong", "rows_differ"),
        ("select 'bob'", "wrong", "rows_differ"),
        ("drop table p", "wrong", "no_rows"),
        ("insert into p values('bob', 5) returning name", "wrong", "no_rows"),
        ("pragma writable_schema = 1", "wrong", "no_rows"),
        ("attach '/tmp/x' as y", "wrong", "no_rows"),
        ("select load_extension('x')", "wrong", "no_rows"),
        ("select 1; select name from p where age = 5", "wrong", "no_rows"),
        ("selec name", "wrong", "no_rows"),
        ("select randomblob(900000000)", "wrong", "no_rows"),
        ("", "no_answer", "no_query"),
        ("<think>select name from p where age = 5", "no_answer", "no_query"),
        (
            "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c",
            "over_limit",
            "time",
        ),
        ("with recursive c(x) as (select 1 union all select x + 1 from c) select x from c", "wrong", "rows_differ"),
    ],
)
def test_a_query_is_judged_by_its_rows(sql: Verifier, query: str, outcome: str, reason: str) -> None:
    verdict = sql.verify(query, ROW)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict


def test_order_counts_only_where_the_gold_orders(sql: Verifier) -> None:
    ordered = {"schema": PEOPLE, "answer": "select name from p where age = 5 order by name"}
    assert sql.verify("select name from p where age = 5 order by name desc", ordered).score == 0.0
    assert sql.verify("select name from p where age = 5 order by 1", ordered).score == 1.0


def test_a_second_database_catches_a_lucky_query(sql: Verifier) -> None:
    both = {"schema": [PEOPLE, OTHERS], "answer": "select name from p where age = 5"}
    lucky = "select 'bob' as name union all select 'cy'"
    assert sql.verify(lucky, ROW).score == 1.0
    assert sql.verify(lucky, both).score == 0.0
    assert sql.verify("select name from p where age = 5", both).score == 1.0


def test_gold_rows_stand_in_for_a_gold_query(sql: Verifier) -> None:
    row = {"schema": PEOPLE, "rows": [["ann", 3], ["di", None]]}
    assert sql.verify("select name, age from p where age is null or age < 4", row).score == 1.0
    assert sql.verify("select name, 3.0 from p where age = 3 union all select 'di', null", row).score == 1.0
    assert sql.verify("select name, age from p", row).score == 0.0


@pytest.mark.parametrize("row", [{"schema": ""}, {"schema": PEOPLE}, {"schema": [1], "answer": "x"}])
def test_a_row_without_schema_or_gold_is_bad(sql: Verifier, row: dict[str, Any]) -> None:
    with pytest.raises(BadGold):
        sql.compile(row)


def test_a_gold_query_that_fails_gives_no_verdict(sql: Verifier) -> None:
    assert sql.verify("select 1", {"schema": PEOPLE, "answer": "selec"}).score is None


def test_a_gold_query_that_ran_out_of_time_once_is_asked_again(sql: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"schema": OTHERS, "answer": "select name from p where age < 5"}
    with monkeypatch.context() as busy:
        busy.setattr(sql, "_ask", lambda *given: QueryAnswer(None, "time", is_limit=True))
        assert sql.verify("select name from p where age = 4", row).score is None
    assert sql.verify("select name from p where age = 4", row).score == 1.0


def test_only_an_outer_order_by_orders() -> None:
    assert orders_rows("select x from t\nORDER  BY x")
    assert not orders_rows("select x from (select x from t order by x)")
    assert not orders_rows("select 'order by' from t -- order by x")


def test_rows_are_a_multiset() -> None:
    assert same_rows([[1], [2], [2]], [[2], [1], [2.0]], is_ordered=False)
    assert not same_rows([[1], [2], [2]], [[2], [1], [1]], is_ordered=False)
    assert not same_rows([[1]], [["1"]], is_ordered=False)
    assert same_rows([[0.1 + 0.2]], [[0.3]], is_ordered=True)


def test_a_schema_that_fails_gives_no_verdict(sql: Verifier) -> None:
    verdict = sql.verify("select 1", {"schema": "create tabel p", "answer": "select 1"})
    assert (verdict.score, verdict.reason) == (None, "schema")


@pytest.mark.parametrize(
    ("gold", "query", "score"),
    [
        ("select name, age from p order by age", "select name, age from p order by age, name desc", 1.0),
        ("select name, age from p order by p.age desc", "select name, age from p order by 2 desc, 1 desc", 1.0),
        ("select name, age from p order by 2", "select name, age from p order by age, name desc", 1.0),
        ("select name, age from p order by age", "select name, age from p order by name desc", 0.0),
        ("select name, age from p order by age, name", "select name, age from p order by age, name desc", 0.0),
        ("select name from p order by age", "select name from p order by age, name desc", 0.0),
        (
            "select name, age from p order by age limit 3",
            "select name, age from p order by age, name desc limit 3",
            0.0,
        ),
    ],
)
def test_rows_equal_in_what_the_gold_orders_by_come_in_any_order(
    sql: Verifier, gold: str, query: str, score: float
) -> None:
    assert sql.verify(query, {"schema": PEOPLE, "answer": gold}).score == score


def test_ties_are_known_where_the_query_orders_by_columns_it_returns() -> None:
    rows = [["a", 1], ["b", 1], ["c", 2]]
    assert tie_sizes("select x, n from t order by n", ["x", "n"], rows) == [2, 1]
    assert tie_sizes("select x, n from t order by (select 1), n", ["x", "n"], rows) is None
    assert tie_sizes("select x, n from t order by lower(x)", ["x", "n"], rows) is None
    assert tie_sizes("select n, n from t order by n", ["n", "n"], rows) is None


def test_whole_numbers_are_compared_exactly() -> None:
    for number in (10**9, 2**53, 10**18):
        assert same_rows([[number]], [[number]], is_ordered=True)
        assert not same_rows([[number]], [[number + 1]], is_ordered=True)
        assert not same_rows([[number]], [[number - 1]], is_ordered=False)
