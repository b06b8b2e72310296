"""Lines of samples: what is ours on them and what is the row's."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.run.records import SampleRecord


def record(**values: Any) -> SampleRecord:
    return SampleRecord(1, "r1", "0/0", "q", "a", **values)


def test_what_the_outcome_pays_stands_beside_the_reward() -> None:
    line = record(reward=0.7, outcome_reward=1.0).as_json()
    assert (line["reward"], line["outcome_reward"]) == (0.7, 1.0)
    assert SampleRecord.from_json(line).outcome_reward == 1.0
    assert SampleRecord.from_json(line).fields == {}


def test_a_line_without_it_is_as_it_was_and_still_read() -> None:
    line = record(reward=0.7).as_json()
    assert "outcome_reward" not in line and "fields" not in line
    assert SampleRecord.from_json(line).outcome_reward is None


@pytest.mark.parametrize("column", [0.5, "x", None, 3])
@pytest.mark.parametrize("paid", [None, 0.25])
def test_a_column_of_that_name_stays_the_rows(column: object, paid: float | None) -> None:
    line = record(fields={"outcome_reward": column}, outcome_reward=paid).as_json()
    read = SampleRecord.from_json(line)
    assert read.fields == {"outcome_reward": column}
    assert read.outcome_reward == paid
