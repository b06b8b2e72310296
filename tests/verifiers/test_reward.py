"""Verifiers under the calling conventions of other trainers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_verifiers import Sample, Verdict, Verifier, as_reward, build
from grpo_verifiers.reward import NoVerdict, as_rubric, as_verl, completion_text
from grpo_verifiers.verdict import error, over_limit, right, wrong


@dataclass(frozen=True)
class NoOptions:
    """None."""


class Counting(Verifier):
    """Right where the completion is the answer; fails on `fail`; counts compilations."""

    Options = NoOptions

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.compiled = 0

    def compile(self, row: Mapping[str, Any]) -> Any:
        self.compiled += 1
        return row["answer"]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [
            error("down") if s.completion == "fail" else right() if s.completion == s.gold else wrong() for s in samples
        ]


def test_trl_gets_scores_and_none_for_no_verdict() -> None:
    reward = as_reward(Counting(), "count")
    assert reward(completions=["4", "5", "fail"], answer=["4", "4", "4"]) == [1.0, 0.0, None]
    assert reward.__name__ == "count"


def test_equal_rows_of_a_group_are_compiled_once() -> None:
    verifier = Counting()
    as_reward(verifier)(completions=["4"] * 8, prompts=["p"] * 8, answer=["4"] * 4 + ["5"] * 4, trainer_state=None)
    assert verifier.compiled == 2


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("a", "a"),
        ([{"role": "assistant", "content": "a"}], "a"),
        ([{"role": "tool", "content": "t"}, {"role": "assistant", "content": "a"}], "a"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], "a"),
        ([{"role": "assistant", "content": None}], ""),
        ([], ""),
    ],
)
def test_the_text_of_a_completion(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


def test_verl_gets_a_score_and_the_answer() -> None:
    score = as_verl(build("regex", pattern=r"(\d)", match="answer_group"))
    got = score(data_source="x", solution_str="it is 4", ground_truth="4", extra_info={"index": 0})
    assert got == {"score": 1.0, "acc": 1.0, "outcome": "right", "pred": "4"}


def test_rubrics_are_async_and_read_chats() -> None:
    rubric = as_rubric(build("regex", pattern=r"(\d)", match="answer_group"), "digit")
    got = asyncio.run(rubric(completion=[{"role": "assistant", "content": "4"}], answer="4", state={}))
    assert got == 1.0 and rubric.__name__ == "digit"


def test_no_verdict_raises_where_only_numbers_are_known() -> None:
    with pytest.raises(NoVerdict, match="down"):
        as_verl(Counting())("x", "fail", "4")


def test_a_burst_limit_is_worth_no_more_than_the_worst_of_its_own_prompt() -> None:
    class Signed(Verifier):
        Options = NoOptions
        columns = ("answer",)
        low = None

        def compile(self, row: Mapping[str, Any]) -> Any:
            return row["answer"]

        def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
            said = {"late": over_limit("timeout"), "bad": wrong(score=-1.0), "good": right()}
            return [said[sample.completion] for sample in samples]

    reward = as_reward(Signed(NoOptions()))
    texts = ["bad", "late", "good", "late", "good"]
    assert reward(texts, prompts=["a"] * 3 + ["b"] * 2, answer=["1"] * 5) == [-1.0, -1.0, 1.0, 0.0, 1.0]
