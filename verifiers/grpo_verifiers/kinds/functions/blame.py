"""Whose fault a failure is: decided by the gold of the row, never by the completion that it happened on."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_verifiers.kinds.functions.asking import Answer, FunctionCaller, probes
from grpo_verifiers.kinds.functions.forms import FunctionCall
from grpo_verifiers.kinds.functions.value import RETURNED_NONE
from grpo_verifiers.processes.pool import Done
from grpo_verifiers.verdict import Outcome
from grpo_verifiers.verifier import Sample


class Blame:
    """What is known, within one batch, of the rows that a function can judge; `gold_text` is a completion that must be right."""

    def __init__(self, caller: FunctionCaller, gold_text: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._caller, self._gold_text = caller, gold_text
        self._settled: dict[bytes, bool] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Forget all: a function that could judge a batch ago may have lost its database since."""
        with self._lock:
            self._settled.clear()

    def note(self, samples: Sequence[Sample], answers: Sequence[Answer]) -> None:
        """A verdict on any completion of a row shows that the function can judge the row, where no gold text decides."""
        texts = {self._gold_text(sample.gold) for sample in samples[:1]}
        if texts != {None} or all(map(self._is_verdict, answers)):
            return
        judged = {pickle.dumps(s.gold) for s, a in zip(samples, answers, strict=True) if self._is_verdict(a)}
        with self._lock:
            self._settled.update(dict.fromkeys(judged, True))

    def can_judge(self, sample: Sample) -> bool:
        """Whether the function gives a verdict on a harmless completion of this row (right, where there is a gold text)."""
        key = pickle.dumps(sample.gold)
        with self._lock:
            known = self._settled.get(key)
        if known is not None:
            return known
        text = self._gold_text(sample.gold)
        if text is None:
            calls = probes(sample.gold, sample.prompt)
        else:
            calls = [FunctionCall(text, sample.prompt, sample.gold, (0,))]
        passes = any(
            self._is_verdict(a, must_be_right=text is not None) for a in self._caller.ask_alone(calls)
        )
        with self._lock:
            self._settled[key] = passes
        return passes

    @staticmethod
    def _is_verdict(answer: Answer, *, must_be_right: bool = False) -> bool:
        if not isinstance(answer, Done):
            return False
        outcome, _, _, reason, _ = answer.value
        if must_be_right:
            return bool(outcome == Outcome.RIGHT.value)
        return bool(outcome != Outcome.ERROR.value and reason != RETURNED_NONE)
