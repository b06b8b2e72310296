r"""`kind: math`: is the final answer of a completion equal to the gold?

The last `\boxed{}` outside the thinking counts. Comparison lives in `grpo_verifiers.maths`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.extract import extract
from grpo_verifiers.verdict import Verdict, no_answer, right, wrong
from grpo_verifiers.verifier import BadGold, Sample, Verifier


class MathVerifier(Verifier):
    """Final answers against a gold answer, in tiers from string equality to computer algebra."""

    Options: ClassVar[type] = MathOptions
    columns = ("answer",)

    def __init__(self, options: MathOptions | None = None) -> None:
        super().__init__(options or MathOptions())

    def compile(self, row: Mapping[str, Any]) -> Any:
        answer = row.get("answer")
        if answer is None or not str(answer).strip():
            raise BadGold("the gold answer is empty")
        return str(answer).strip()

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [self._one(sample) for sample in samples]

    def _one(self, sample: Sample) -> Verdict:
        found = extract(sample.completion, self.options.extract, self.options.max_chars)
        if not found.texts:
            return no_answer(found.reason)
        text = found.texts[0].strip()
        return right(text, "equal:string") if text == sample.gold else wrong(text, "unequal")

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The gold in a box."""
        return "\\boxed{" + self.compile(row) + "}"
