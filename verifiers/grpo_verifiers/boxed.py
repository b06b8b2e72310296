r"""`kind: math`: is the final answer of a completion equal to the gold?

The last `\boxed{}` outside the thinking counts. Reading and comparing live in `grpo_verifiers.maths`; this file only
puts its stages in order: extract, compare cheaply, and let the child process settle what is still open.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar

from grpo_verifiers.maths.extract import extract
from grpo_verifiers.maths.golds import Gold, compile_gold
from grpo_verifiers.maths.match import Match, match
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.verdict import Verdict, no_answer, right, wrong
from grpo_verifiers.verifier import Sample, Verifier

CACHED = 100_000
"""Comparisons remembered, by gold and answer text: the samples of a group repeat their answers."""


class MathVerifier(Verifier):
    """Final answers against a gold answer, in tiers from string equality to computer algebra."""

    Options: ClassVar[type] = MathOptions
    columns = ("answer",)
    options: MathOptions

    def __init__(self, options: MathOptions | None = None) -> None:
        super().__init__(options or MathOptions())
        self._seen: OrderedDict[tuple[tuple[str, ...], str], Match] = OrderedDict()
        self._lock = Lock()

    def compile(self, row: Mapping[str, Any]) -> Gold:
        """The gold of one row.

        Raises:
            BadGold: it is missing or cannot be compared with.
        """
        return compile_gold(row.get("answer"))

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The gold in a box."""
        return "\\boxed{" + self.compile(row).texts[0] + "}"

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order; never raises on model text."""
        return [self._one(sample) for sample in samples]

    def _one(self, sample: Sample) -> Verdict:
        start = time.perf_counter()
        found = extract(sample.completion, self.options.extract, self.options.max_chars)
        if not found.texts:
            return no_answer(found.reason, time.perf_counter() - start)
        matches = [match(sample.gold, text, self.options) for text in found.texts]
        if all(m.equal for m in matches):
            return right(found.texts[-1].strip(), matches[-1].reason, time.perf_counter() - start)
        reason = next(m.reason for m in matches if not m.equal)
        return wrong(found.texts[-1].strip(), "hedge" if len(matches) > 1 else reason, time.perf_counter() - start)
