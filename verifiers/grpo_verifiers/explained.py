"""How a verdict came about: what a verifier read of gold and answer, and the rules that decided. For people who doubt one.

How this works: `judge_and_explain` lets a verifier judge one sample while `sys.setprofile` records which functions of this package
returned a verdict, a match or a truth value. The rules are the way from the function that made the verdict down to the last one
that agreed with it; each is named by the first line of its docstring. Nothing of this runs unless it is asked for.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from grpo_verifiers.verdict import Outcome, Verdict
from grpo_verifiers.verifier import Sample, Verifier

MOST_RULES = 8
MOST_CHARS = 500
_MADE = frozenset(("right", "wrong", "no_answer", "over_limit", "error", "_verdict", "__post_init__"))
_UNNAMED = frozenset(("judge", "judge_one", "<genexpr>", "<lambda>", "<listcomp>"))


@dataclass
class _Call:
    """One call of a function of this package: what it returned and what it called."""

    code: CodeType
    value: object = None
    calls: list[_Call] = field(default_factory=list)


class _Tracer:
    """Calls as a tree; those of other packages are passed over."""

    def __init__(self) -> None:
        self.root = _Call(_Tracer.__init__.__code__)
        self._open = [self.root]

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if event == "call" and frame.f_globals.get("__name__", "").startswith("grpo_verifiers"):
            call = _Call(code)
            self._open[-1].calls.append(call)
            self._open.append(call)
        elif event == "return" and self._open[-1].code is code and len(self._open) > 1:
            self._open.pop().value = value


def judge_and_explain(verifier: Verifier, sample: Sample) -> tuple[Verdict, dict[str, Any]]:
    """The verdict on one sample, and `gold` and `answer` as they were read with the `rules` that decided."""
    verifier.forget()
    tracer, before = _Tracer(), sys.getprofile()
    sys.setprofile(tracer)
    try:
        (verdict,) = verifier.judge([sample])
    finally:
        sys.setprofile(before)
    gold, answer = verifier.readings(sample, verdict)
    rules = [f"{verdict.reason}: {verdict.detail}" if verdict.detail else verdict.reason]
    return verdict, {
        "gold": gold[:MOST_CHARS],
        "answer": answer[:MOST_CHARS],
        "rules": [*rules, *_rules(tracer.root, verdict)],
    }


def _rules(root: _Call, verdict: Verdict) -> list[str]:
    """From the call that made the verdict to the last one below it that agreed, the names that say nothing left out."""
    found: list[str] = []
    at, is_right = root, verdict.outcome is Outcome.RIGHT
    while len(found) < MOST_RULES:
        below = [call for call in at.calls if call.code.co_name not in _MADE and _agrees(call.value, is_right)]
        if at is not root and at.code.co_name not in _UNNAMED:
            path = at.code.co_filename.rpartition("grpo_verifiers")[2].strip("/").removesuffix(".py").replace("/", ".")
            doc = at.code.co_consts[0] if isinstance(at.code.co_consts[0], str) else ""
            said = inspect.cleandoc(doc).partition("\n")[0]
            if said or not below:
                found.append(f"{path}.{at.code.co_name}" + (f": {said}" if said else ""))
        if not below:
            break
        # what returned a match or a verdict decided more than what returned a truth value
        at = next((call for call in reversed(below) if not isinstance(call.value, bool)), below[-1])
    return found


def _agrees(value: object, is_right: bool) -> bool:
    """Whether what a call returned is the verdict, a match of the same outcome, or its truth value."""
    if isinstance(value, list):
        return len(value) == 1 and _agrees(value[0], is_right)
    if isinstance(value, Verdict):
        return (value.outcome is Outcome.RIGHT) == is_right
    if hasattr(value, "equal"):  # a match that waits for its proof agrees with both
        return value.equal is None or value.equal == is_right
    return isinstance(value, bool) and value == is_right
