"""Extracts the answer that a completion states, for all verifiers of short answers.

Extraction is that of the maths verifier: the last box after the thinking, else a line that announces the answer. Two final
answers are a hedge. A hedge is never right, or a policy would learn to name every candidate.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from grpo_verifiers.maths.extract import extract
from grpo_verifiers.thinking import after_thinking
from grpo_verifiers.verdict import Verdict, no_answer, over_limit
from grpo_verifiers.verifier import Sample, Verifier

Where = Literal["box_or_line", "boxed", "answer_line", "last_line", "whole"]

MOST_CHARS = 200_000
NO_GOLD: tuple[()] = ()
"""The gold of verifiers that need none. Not None: None means that this verifier does not judge the row."""


class Example(NamedTuple):
    """A completion and a row that show what a verifier does; `grpo explain` prints its current verdict."""

    completion: str
    row: dict[str, Any]
    why: str
    options: dict[str, Any] | None = None


class StatedAnswers(NamedTuple):
    """The stated answers (two or more are a hedge), or none with the reason."""

    texts: tuple[str, ...]
    reason: str = ""


def find_answer(completion: str, where: Where, mark: str = "") -> StatedAnswers:
    """The answer that a completion states after its thinking; the text after `mark`, if a line begins with it."""
    if where in ("whole", "last_line"):
        text, is_open, _ = after_thinking(completion)
        if is_open:
            return StatedAnswers((), "in_thinking")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            return StatedAnswers((), "empty")
        return StatedAnswers((text.strip() if where == "whole" else lines[-1],))
    found = extract(completion, "last_box_or_line" if where == "box_or_line" else where, mark)
    return StatedAnswers(tuple(found.texts), found.reason)


class AnswerVerifier(Verifier):
    """A verifier that judges one completion at a time, in this process and in linear time."""

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order."""
        verdicts = []
        for sample in samples:
            began = time.perf_counter()
            verdict = over_limit("too_long") if len(sample.completion) > MOST_CHARS else self.judge_one(sample)
            verdicts.append(replace(verdict, seconds=time.perf_counter() - began))
        return verdicts

    @abstractmethod
    def judge_one(self, sample: Sample) -> Verdict:
        """The verdict on one completion of at most `MOST_CHARS`."""


class StatedAnswer(AnswerVerifier):
    """Judges the one answer that a completion states."""

    def judge_one(self, sample: Sample) -> Verdict:
        """No answer, or a hedge; else the verdict of `compare`."""
        found = find_answer(sample.turn, self.options.extract, getattr(self.options, "mark", ""))
        if not found.texts:
            return no_answer(found.reason or "no_answer")
        verdicts = [self.compare(text, sample.gold) for text in found.texts]
        if len(verdicts) > 1 and any(v.score != 1.0 for v in verdicts):
            return Verdict(verdicts[0].outcome.WRONG, 0.0, " or ".join(found.texts)[:200], "hedge")
        return verdicts[0]

    @abstractmethod
    def compare(self, answer: str, gold: Any) -> Verdict:
        """The verdict on a stated answer."""
