"""Ranking, bars and the report of the audit of rows; and the whole of it on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import RowSignals
from grpo_cli.jobs.audit.data import DataAudit, RowVotes, audit_data, choose
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_verifiers.verdict import Outcome, Verdict
from tests.builders.workplaces import Told, tiny_recipe


def made(n: int = 40) -> DataAudit:
    rows = [Row(str(i), f"question {i}", None, {"answer": i}, f"rows.jsonl:{i + 1}") for i in range(n)]
    return DataAudit(rows, RowSignals.of(rows), draws=400)


def test_a_label_against_model_and_gradient_is_first_and_past_the_bar() -> None:
    found = made()
    found.votes = {i: RowVotes(8, 6, "x", 1) for i in range(40)} | {7: RowVotes(64, 1, "unknown", 62)}
    found.cosines = dict.fromkeys(range(40), 0.5) | {7: -0.7}
    assert found.scores()[0][1] == 7
    assert found.flags() == {7: ["against the model"]}
    body = found.as_json()
    assert body["ranked"][0]["place"] == "rows.jsonl:8"
    assert body["signals"]["against the model"] == {
        "n": 1,
        "of": 40,
        "rate": pytest.approx(0.025),
        "ci": pytest.approx([0.0044, 0.1288], abs=1e-3),
    }
    assert "62 say unknown" in found.text()


@pytest.mark.parametrize(
    ("votes", "cosine", "is_flagged"),
    [(7, -0.31, True), (7, -0.3, False), (6, -0.9, False), (8, None, True), (8, 0.2, False)],
)
def test_votes_are_a_filter_for_the_gradient(votes: int, cosine: float | None, is_flagged: bool) -> None:
    """Seven of eight for a wrong answer of probability .7 come in a quarter of honest rows: alone they flag nothing."""
    found = made()
    found.votes = {3: RowVotes(8, 0, "x", votes)}
    found.cosines = {} if cosine is None else {3: cosine}
    assert bool(found.flags()) is is_flagged


def test_rows_past_a_bar_of_the_data_are_asked_first() -> None:
    rows = [Row(str(i), "one" if i in (50, 60) else f"q {i}", None, {"answer": i}) for i in range(100)]
    found = DataAudit(rows, RowSignals.of(rows), draws=400)
    assert {50, 60} <= set(choose(found, 5, seed=1))
    assert len(choose(found, 5, seed=1)) == 5
    assert choose(found, 500, seed=1) == list(range(100))


def test_without_a_model_nothing_is_said_of_it() -> None:
    found = made()
    assert "not looked at" in found.text()
    assert found.as_json()["signals"]["against the model"]["rate"] is None
    assert found.flags() == {}


def test_votes_are_of_wrong_answers_that_were_judged() -> None:
    def judgement(outcome: Outcome, answer: str | None) -> Judgement:
        score = None if outcome is Outcome.ERROR else float(outcome is Outcome.RIGHT)
        return Judgement({"math": Verdict(outcome, score, answer)}, outcome, score, "math")

    judged = [
        judgement(Outcome.WRONG, "un known"),
        judgement(Outcome.WRONG, "un  known "),
        judgement(Outcome.RIGHT, "Maria"),
        judgement(Outcome.NO_ANSWER, None),
        judgement(Outcome.ERROR, None),
    ]
    group = Group(0, [Completion([1], [0.0], "stop")] * 5, list("abcde"), judged, [0.0] * 5)
    found = RowVotes.of(group)
    assert (found.judged, found.right, found.answer, found.votes) == (4, 1, "un known", 2)
    assert found.against == 0.5
    assert RowVotes(0, 0, "", 0).against is None


def test_the_whole_audit_ranks_a_repeated_row_first_and_names_its_place(tmp_path: Path) -> None:
    rows = [{"question": f"say {i}"} for i in range(30)] + [{"question": "say it"}] * 5
    recipe = tiny_recipe(
        tmp_path, rows, train={"steps": 40, "lr": 1e-3}, sample={"prompts": 10, "group": 4, "max_tokens": 4}
    )
    found = audit_data(recipe, tmp_path, Told().display, asked=8, samples=4)
    assert set(found.flags()) == {30, 31, 32, 33, 34}
    assert len(found.votes) == 8
    assert {row for _, row in found.scores()[:5]} <= set(found.votes) | set(found.flags())
    again = audit_data(recipe, tmp_path, Told().display, asked=8, samples=4)
    assert again.as_json() | {"seconds": 0} == found.as_json() | {"seconds": 0}
    bare = audit_data(recipe, tmp_path, Told().display, asked=0, samples=4)
    assert bare.votes == {}
    assert set(bare.flags()) == set(found.flags())
