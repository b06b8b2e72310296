"""The verifier `metamath` and its ladder of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.data.tasks.metamath import LEVELS, rows
from grpo_verifiers import BadGold, Verdict, build
from grpo_verifiers.proof.checking import PROPOSITIONAL, BadDatabase, parse

ID = {"statement": "|- ( ph -> ph )"}
HALF_PROOF = (
    "wph wph wph wi wi wph wph wi wph wph wph wi wph wi wi wph wph wph wi wi wph wph wi wi "
    "wph wph wph wi ax-1 wph wph wph wi wph ax-2 ax-mp"
)
FULL_ID = (
    "wph wph wph wi wi wph wph wi wph wph ax-1 wph wph wph wi wph wi wi wph wph wph wi wi wph wph wi wi "
    "wph wph wph wi ax-1 wph wph wph wi wph ax-2 ax-mp ax-mp"
)
MP = {"statement": "|- ps", "hypotheses": {"h1": "|- ph", "h2": "|- ( ph -> ps )"}}
WITH_ID = PROPOSITIONAL + "\nid $p |- ( ph -> ph ) $= ? $. other $p |- ( ps -> ps ) $= ? $."


def judged(proof: str, row: dict[str, Any] = ID, **options: Any) -> Verdict:
    return build("metamath", **options).verify(proof, row)


def test_a_proof_of_identity_is_right() -> None:
    assert judged(FULL_ID).outcome == "right"
    assert judged(f"so\n```metamath\n$= {FULL_ID} $.\n```").outcome == "right"
    assert judged(FULL_ID.replace("ax-1", "$( first $) ax-1")).outcome == "right"


def test_one_letter_too_many_in_a_compressed_proof_is_wrong() -> None:
    assert judged("( wi ax-1 ax-2 ax-mp ) AAABZBZFAACAFABBGFBAFCAFADEE").outcome == "right"
    assert judged("( wi ax-1 ax-2 ax-mp ) AAABZBZFAACAFABBGFBAFACAFADEE").reason == "hypothesis"


def test_modus_ponens_uses_the_hypotheses_of_the_row() -> None:
    assert judged("wph wps h1 h2 ax-mp", MP).outcome == "right"
    assert judged("wph wps h1 h2 ax-mp", ID).reason == "unknown_label"
    assert judged("wps wph h1 h2 ax-mp", MP).reason == "hypothesis"


@pytest.mark.parametrize(
    ("proof", "reason"),
    [
        ("?", "unfinished"),
        ("wph wph wi ?", "unfinished"),
        ("cheat $a |- ( ph -> ph ) $. cheat", "keyword"),
        ("( ax-mp ) ABC", "stack"),
        ("id", "unknown_label"),
        ("ax-mp", "stack"),
        ("wph wps ax-1", "proves_other"),
        ("wph wph ax-1", "proves_other"),
        ("wph wph wi", "proves_other"),
        (FULL_ID + " wph", "stack"),
        (HALF_PROOF, "stack"),
        ("wph wph ax-1 wps ax-1", "kind"),
    ],
)
def test_a_proof_that_does_not_hold_is_wrong_for_its_reason(proof: str, reason: str) -> None:
    verdict = judged(proof)
    assert (verdict.outcome, verdict.reason) == ("wrong", reason), verdict


def test_a_theorem_cannot_prove_itself() -> None:
    assert judged("wph id", {**ID, "database": WITH_ID}).reason == "not_yet_proved"
    assert judged("wph id", {**ID, "database": WITH_ID, "label": "id"}).reason == "not_yet_proved"
    assert judged("wph other", {**ID, "database": WITH_ID, "label": "id"}).reason == "not_yet_proved"


def test_axioms_can_be_limited_by_list() -> None:
    row = {**ID, "allowed": ["ax-1", "ax-mp"]}
    assert judged(FULL_ID, row).reason == "not_allowed"
    assert judged(FULL_ID, {**ID, "allowed": ["ax-1", "ax-2", "ax-mp"]}).outcome == "right"


def test_work_is_bounded() -> None:
    doubling = "wph " + "wph wi " * 60
    assert judged(doubling, max_steps=50).outcome == "over_limit"
    # each step doubles the wff: ( A -> ( B -> A ) ) with A made of the last step would need 2^60 symbols
    bomb = PROPOSITIONAL + "dup $a wff ( ph -> ph ) $."
    assert judged("wph " + "dup " * 60, {**ID, "database": bomb}).reason == "symbols"
    assert judged("wph " * 100_000).outcome == "over_limit"


def test_distinct_variables_are_kept_apart() -> None:
    strict = PROPOSITIONAL + "${ $d ph ps $. ax-d $a |- ( ph -> ps ) $. $}"
    row = {"statement": "|- ( ph -> ph )", "database": strict}
    assert judged("wph wph ax-d", row).reason == "distinct"
    apart = {"statement": "|- ( ph -> ps )", "database": strict}
    assert judged("wph wps ax-d", apart).reason == "distinct"
    assert judged("wph wps ax-d", {**apart, "distinct": [["ps", "ph"]]}).outcome == "right"


@pytest.mark.parametrize(
    "row",
    [
        {"statement": "ph"},
        {"statement": "|- ( ph => ph )"},
        {"statement": None},
        {"statement": "|- ph", "hypotheses": {"ax-1": "|- ph"}},
        {"statement": "|- ph", "database": "$[ /etc/passwd $]"},
    ],
)
def test_a_row_that_cannot_be_proved_about_is_bad(row: dict[str, Any]) -> None:
    with pytest.raises(BadGold):
        build("metamath").compile(row)


@pytest.mark.parametrize("text", ["$}", "a b $a wff x $.", "$c wff", "x $f wff ph $.", "$a |- ph $."])
def test_a_broken_database_is_refused(text: str) -> None:
    with pytest.raises(BadDatabase):
        parse(text)


def test_every_proof_of_the_ladder_holds_and_no_task_is_given_away() -> None:
    verifier = build("metamath")
    ladder = list(rows("train", size=300))
    assert {row["level"] for row in ladder} == set(range(LEVELS))
    for row in ladder:
        assert verifier.verify(str(verifier.gold_text(row)), row).outcome == "right", row
        assert row["statement"] not in row["hypotheses"].values()
        for label in row["hypotheses"]:
            assert verifier.verify(label, row).outcome == "wrong"


def test_the_ladder_is_the_same_for_ever_and_splits_do_not_meet() -> None:
    train, test = list(rows("train", size=400)), list(rows("test", test_size=512))
    assert train == list(rows("train", size=400))
    keys = [{(r["statement"], *r["hypotheses"].values()) for r in part} for part in (train, test)]
    assert len(keys[0]) == 400 and len(keys[1]) == 512 and not keys[0] & keys[1]
