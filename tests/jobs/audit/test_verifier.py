"""The reward audit: our own verifiers pass it, and verifiers with holes do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_cli.errors import UsageError
from grpo_cli.jobs.audit.verifier import ATTACKS, REWRITES, ROWS, audit, audit_kinds
from grpo_verifiers import Sample, Verdict, Verifier
from grpo_verifiers.verdict import right, wrong


@dataclass(frozen=True)
class NoOptions:
    """None."""


class Naive(Verifier):
    """Right where the gold stands anywhere in the text; trips over braces."""

    Options = NoOptions

    def compile(self, row: Mapping[str, Any]) -> Any:
        return row["answer"]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        if "{{" in samples[0].completion:
            raise ValueError("braces")
        return [right() if s.gold in s.completion else wrong() for s in samples]

    def gold_text(self, row: Mapping[str, Any]) -> str:
        return f"\\boxed{{{row['answer']}}}"


@pytest.mark.parametrize("kind", ROWS)
def test_our_own_verifiers_pass_their_audit(kind: str) -> None:
    if kind == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    (found,) = audit_kinds([kind])
    assert found.worst_rate == 0.0, found.text()
    assert found.tried > 20 and not found.bad_golds


def test_a_verifier_that_searches_for_the_gold_is_caught() -> None:
    found = audit("naive", Naive(NoOptions()), [{"answer": "Paris"}, {"answer": "Rome"}])
    caught = {failure.name for failure in found.paid}
    assert caught >= {"only in the thinking", "hedge with or", "right, then corrected to wrong", "denied"}
    assert {failure.name for failure in found.errors} == {"template field"}
    assert found.missed == [] and 0 < found.worst_rate < 1


def test_counts_and_intervals_are_in_the_object() -> None:
    body = audit("naive", Naive(NoOptions()), [{"answer": "Paris"}, {"answer": "Rome"}]).as_json()
    rate = body["false_positives"]
    assert rate["of"] <= 2 * len(ATTACKS) and rate["ci"][0] < rate["rate"] < rate["ci"][1]
    assert body["rewrites"] <= 2 * len(REWRITES)


def test_an_unknown_kind_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no built-in rows for `mth`"):
        audit_kinds(["mth"])


@pytest.mark.parametrize("named", ["quickstart", "mine/recipe.yaml", "other.yml"])
def test_a_recipe_in_the_place_of_a_kind_is_told_its_option(named: str) -> None:
    with pytest.raises(UsageError) as told:
        audit_kinds([named])
    assert told.value.hint == f"the verifiers of a recipe are audited by `--recipe {named}`"
