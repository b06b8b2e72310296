"""The verifier `coq`, run by `make test-coq`: fails, not skips, where Debian's package `coq` is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from grpo_verifiers import BadGold, Verifier, build
from grpo_verifiers.proof.coq import foreign_assumptions

ROW = {"statement": "forall n : nat, n + 0 = n"}
GOOD = "Proof. induction n; simpl; [reflexivity | rewrite IHn; reflexivity]. Qed."
STATED = f"Theorem goal : forall n : nat, n + 0 = n. {GOOD}"
TREES = {
    "statement": "forall t : tree, size t >= 1",
    "imports": "Require Import Lia.",
    "preamble": "Inductive tree := L | N (a b : tree).\n"
    "Fixpoint size t := match t with L => 1 | N a b => size a + size b end.",
}


@pytest.fixture(scope="module")
def coq() -> Iterator[Verifier]:
    verifier = build("coq", lanes=1, timeout=20.0)
    verifier.start()
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("script", "row"),
    [
        (f"so:\n```coq\n{GOOD}\n```", ROW),
        ("induction n; simpl; auto.", ROW),
        (STATED, ROW),
        (f"Lemma helper : True. Proof. exact I. Qed.\n{STATED}", ROW),
        ("induction t; simpl; lia.", TREES),
    ],
)
def test_a_proof_is_right(coq: Verifier, script: str, row: dict[str, Any]) -> None:
    verdict = coq.verify(script, row)
    assert verdict.outcome == "right", verdict


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("Admitted.", "assumes"),
        ("Proof. Admitted.", "assumes"),
        ("Axiom cheat : False. Lemma goal : forall n : nat, n + 0 = n. Proof. destruct cheat. Qed.", "assumes"),
        ("Parameter goal : forall n : nat, n + 0 = n.", "does_not_check"),
        (
            "Unset Guard Checking. Fixpoint f (n : nat) : False := f n. "
            "Theorem goal : forall n : nat, n + 0 = n. Proof. destruct (f 0). Qed.",
            "assumes",
        ),
        ("Lemma goal : True. Proof. exact I. Qed.", "proves_other"),
        (
            'Notation "x + y" := (x) (at level 50, left associativity). '
            "Theorem goal : forall n : nat, n + 0 = n. Proof. reflexivity. Qed.",
            "proves_other",
        ),
        (
            "Definition nat := unit. Definition plus (a b : nat) := a. "
            "Theorem goal : forall n : nat, n = n. Proof. reflexivity. Qed.",
            "proves_other",
        ),
        ("reflexivity.", "does_not_check"),
        ("Abort.", "proves_other"),
        ('Load "/etc/passwd". ' + GOOD, "does_not_check"),
    ],
)
def test_a_cheat_is_wrong(coq: Verifier, script: str, reason: str) -> None:
    verdict = coq.verify(script, ROW)
    assert (verdict.outcome, verdict.reason) == ("wrong", reason), verdict


def test_an_axiom_on_the_list_is_allowed() -> None:
    row = {
        "statement": "forall P : Prop, P \\/ ~ P",
        "imports": "Require Import Classical.",
        "answer": "exact classic.",
    }
    for axioms, outcome in (([], "wrong"), (["Classical_Prop.classic"], "right")):
        verifier = build("coq", lanes=1, axioms=axioms)
        verdict = verifier.verify(str(verifier.gold_text(row)), row)
        verifier.close()
        assert verdict.outcome == outcome, verdict


def test_a_script_that_never_ends_is_over_its_limit() -> None:
    verifier = build("coq", lanes=1, timeout=1.0)
    verdict = verifier.verify("repeat (pose 1).", ROW)
    verifier.close()
    assert verdict.outcome == "over_limit"


def test_a_statement_that_is_no_coq_gives_no_verdict(coq: Verifier) -> None:
    assert coq.verify(GOOD, {"statement": "forall n, n +"}).score is None
    with pytest.raises(BadGold):
        coq.compile({"statement": " "})


def test_what_is_not_understood_counts_as_an_assumption() -> None:
    assert foreign_assumptions("Closed under the global context\n", []) == []
    assert (
        foreign_assumptions("", []) and foreign_assumptions("Closed", []) and foreign_assumptions("Axioms:\nx : P", [])
    )
    assert foreign_assumptions("Axioms:\nx : forall a,\n  P", ["x"]) == []
