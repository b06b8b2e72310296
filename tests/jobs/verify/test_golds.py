"""Golds shared between lines: equal rows compile once, rows that differ in anything read do not share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.jobs.verify.scorer import GoldCache
from grpo_verifiers import Sample, Verdict, Verifier, build


@dataclass(frozen=True)
class NoOptions:
    """None."""


class Reads(Verifier):
    """Reads the fields it is told to, and counts."""

    Options = NoOptions

    def __init__(self, *names: str, whole: bool = False) -> None:
        super().__init__(NoOptions())
        self.names, self.whole, self.compiled = names, whole, 0

    def compile(self, row: Mapping[str, Any]) -> Any:
        self.compiled += 1
        return dict(row) if self.whole else [row.get(name) for name in self.names]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        return []


def test_equal_rows_compile_once_in_any_order() -> None:
    verifier = Reads("answer")
    cache = GoldCache(verifier)
    for n in range(12):
        assert cache.gold({"answer": n % 3, "completion": n}) == [n % 3]
    assert verifier.compiled == 3


def test_rows_that_differ_in_a_field_that_is_read_do_not_share() -> None:
    cache = GoldCache(build("choice"))
    first = cache.gold({"answer": "A", "choices": ["x", "y"]})
    assert cache.gold({"answer": "A", "choices": ["y", "x"]}) != first


def test_one_and_true_are_different_golds() -> None:
    cache = GoldCache(Reads("answer"))
    assert [cache.gold({"answer": value})[0] is value for value in (1, True, "1")] == [True, True, True]


def test_a_verifier_that_reads_the_whole_row_shares_nothing() -> None:
    verifier = Reads(whole=True)
    cache = GoldCache(verifier)
    assert [cache.gold({"a": 1, "n": n})["n"] for n in (1, 2)] == [1, 2]
