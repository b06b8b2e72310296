r"""`agrees`: does the answer say what the thinking came to?

How this works: the result of a thinking is its last box, or what stands behind its last `=`, whichever comes later; without
either it is its last number. The final answer is what `math` reads after the thinking, and the two are compared by the rules of `math`,
with the final answer in the place of a gold. Neither is compared with the row's gold: a right answer may disagree with its
thinking, a wrong one agree with it. No thinking, or one without a result, agrees with nothing: else a policy would earn this score
by leaving its thinking out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from grpo_verifiers.answers import MOST_CHARS, NO_GOLD, Example, Where, find_answer
from grpo_verifiers.kinds.maths_answer import MathVerifier
from grpo_verifiers.maths.comparing.golds import compile_gold
from grpo_verifiers.maths.extract import extract
from grpo_verifiers.thinking import after_thinking, thought
from grpo_verifiers.verdict import Outcome, Verdict, no_answer, over_limit, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Verifier

_BEHIND_EQUALS = re.compile(r"[=≈]([^=≈\n]{1,200})")
_NUMBER = re.compile(r"-?(?<!\d)\d[\d,]*+(?:\.\d++)?(?:/\d++)?")
_SENTENCE_END = re.compile(r"[.;!?](?=\s|\Z)|[,;:]\s")
DISAGREES = "disagrees"
"""The reason of a verdict where both are there and differ."""


@dataclass(frozen=True)
class AgreesOptions:
    """Options of `agrees`."""

    extract: Where = "box_or_line"
    """Where the final answer is looked for, after the thinking."""
    ends: str = ""
    """The text at which the thinking ends, such as `####`, where a model thinks without tags; left out, tags mark it."""


class AgreesVerifier(Verifier):
    """Right where the final answer equals the last result of the thinking."""

    Options: ClassVar[type] = AgreesOptions
    options: AgreesOptions
    columns: tuple[str, ...] = ()

    def __init__(self, options: AgreesOptions | None = None) -> None:
        super().__init__(options or AgreesOptions())
        if self.options.ends.strip() != self.options.ends:
            raise BadOption("ends", "`ends` begins or ends with white space, which a completion may lack")
        self._math = MathVerifier()

    def start(self) -> None:
        """Load computer algebra in its own process, as `math` does."""
        self._math.start()

    def close(self) -> None:
        """End that process."""
        self._math.close()

    def compile(self, row: Mapping[str, Any]) -> tuple[()]:
        """There is no gold."""
        return NO_GOLD

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order; never raises on model text."""
        asked = [self._asked(sample) for sample in samples]
        waiting = [one for one in asked if isinstance(one, Sample)]
        judged = iter(self._math.judge(waiting) if waiting else [])
        return [_renamed(next(judged)) if isinstance(one, Sample) else one for one in asked]

    def _asked(self, sample: Sample) -> Sample | Verdict:
        """The question for `math`: whether the thinking's result equals the final answer; or the verdict, where there is none."""
        if len(sample.completion) > MOST_CHARS:
            return over_limit("too_long")
        turn, ends = sample.turn, self.options.ends
        if ends:
            thinking, end, answer = turn.rpartition(ends)
            answer, thinking = end + answer, thinking if end else ""
        else:
            read = after_thinking(turn)
            if read.is_open:
                return no_answer("in_thinking")
            answer, thinking = read.text, thought(turn)
        if not thinking.strip():
            return no_answer("no_thinking")
        said = find_answer(answer, self.options.extract)
        if not said.texts:
            return no_answer(said.reason or "no_answer")
        if len(said.texts) > 1:
            return wrong(" or ".join(said.texts)[:200], "hedge")
        result = _result(thinking)
        if not result:
            return no_answer("no_result")
        try:
            gold = compile_gold(said.texts)
        except BadGold:
            same = " ".join(result.split()) == " ".join(said.texts[0].split())
            return Verdict(
                Outcome.RIGHT if same else Outcome.WRONG, float(same), said.texts[0], "same_text" if same else DISAGREES
            )
        return Sample(f"\\boxed{{{result}}}", gold)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example("<think>3+5=8, 8+2=10</think>\\boxed{10}", {}, "the last sum is the answer"),
            Example("<think>3+5=8, 8+2=10</think>\\boxed{12}", {}, "the answer is another"),
            Example("<think>so \\boxed{1/2}</think>The answer is 0.5.", {}, "equal in value"),
            Example("\\boxed{10}", {}, "no thinking agrees with nothing"),
        ]


def _result(thinking: str) -> str:
    """The last result that a thinking states; "" where there is none."""
    behind = list(_BEHIND_EQUALS.finditer(thinking))
    box = thinking.rfind("\\boxed{")
    if box >= 0 and (not behind or behind[-1].start() < box):
        boxed = extract(thinking[box:], "boxed").texts
        if boxed:
            return boxed[0]
    if behind:
        text = _SENTENCE_END.split(behind[-1][1])[0].strip(" \t$*.\\]")
        if text:
            return text
    numbers = _NUMBER.findall(thinking)
    return numbers[-1].strip(",") if numbers else ""


def _renamed(verdict: Verdict) -> Verdict:
    """The verdict of `math` on the thinking's result, in the words of this verifier."""
    if verdict.outcome is Outcome.ERROR or verdict.outcome is Outcome.RIGHT:
        return verdict
    return replace(wrong(verdict.answer, DISAGREES, verdict.seconds), score=0.0)
