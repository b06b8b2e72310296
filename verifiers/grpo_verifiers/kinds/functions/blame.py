"""Whose fault a failure is. One rule for all code of others that judges completions: functions of users, scorers of packages.

A failure is the completion's where the code can judge the row and only this completion makes it fail, every time. It is
ours, and no verdict, where

- somebody else was away, slow or silent, a package is missing, the code says that it does not carry this or ends its process;
- a plain completion of the same row fails as well (one that must be right where there is one, else any that gets a verdict);
- the same completion does not fail the same way again, tried in turn with the plain one.

Only what a completion can cause may count against it; what it can cause must, or a policy learns to fail where it expects to lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from grpo_verifiers.kinds.functions.asking import Answer
from grpo_verifiers.kinds.functions.value import RETURNED_NONE
from grpo_verifiers.kinds.functions.waiting import is_away
from grpo_verifiers.processes.pool import Done, Killed, Raised

Call = TypeVar("Call")

SURROUNDINGS = "its surroundings fail, whatever the completion says"
ON_PLAIN = "on plain completions too; if it wants a form of its own, say so with the option `gold`"
NOT_AGAIN = "the same completion does not fail every time"

TRIALS = 4
"""Trials of a kind of failure in a batch: one that comes by chance passes all of them less than once in 250."""
SURE = 8
"""Trials, batch after batch, after which a kind is tried once a batch: each may take as long as the limit."""
_NOT_CARRIED = ("ImportError", "NotImplementedError")


@dataclass(frozen=True)
class Blame(Generic[Call]):
    """How the failures of one piece of code are settled.

    `ask` makes calls one after the other in one worker, for each of several lists; `row` says which calls are of one row;
    `plain` gives plain completions of a call's row, of which one must pass `judges`; `learns` whether a completion of the
    batch that has a verdict may stand for them.
    """

    ask: Callable[[Sequence[Sequence[Call]]], Sequence[Sequence[Answer]]]
    row: Callable[[Call], Hashable]
    plain: Callable[[Call], Sequence[Call]]
    judges: Callable[[Call, Answer], bool]
    learns: bool
    passed: Counter[Hashable] = field(default_factory=Counter)
    """Trials that a kind of failure has passed since it last came by chance."""

    def settle(self, calls: Sequence[Call], answers: Sequence[Answer]) -> list[str | None]:
        """Of each answer that is no verdict why that is not the completion's fault, None where it is; of verdicts None."""
        out: list[str | None] = [None if isinstance(answer, Done) else SURROUNDINGS for answer in answers]
        kinds = [suspicion(answer) for answer in answers]
        suspects = [i for i, kind in enumerate(kinds) if kind is not None]
        plain = self._plain([calls[i] for i in suspects], calls, answers) if suspects else {}
        tried: dict[Hashable, list[int]] = {}
        for i in suspects:
            if self.row(calls[i]) in plain:
                tried.setdefault(kinds[i], []).append(i)
            else:
                out[i] = ON_PLAIN
        pairs = [
            (kind, members[n % len(members)])
            for kind, members in tried.items()
            for n in range(1 if self.passed[kind] >= SURE else TRIALS)
        ]
        asked = [(plain[self.row(calls[i])], calls[i]) for _, i in pairs]
        by_chance = {
            kind
            for (kind, _), (call, _), (control, again) in zip(pairs, asked, self.ask(asked), strict=True)
            if not self.judges(call, control) or suspicion(again) != kind
        }
        self.passed.update(kind for kind, _ in pairs)
        for kind, members in tried.items():
            for i in members:
                out[i] = NOT_AGAIN if kind in by_chance else None
        for kind in by_chance:
            del self.passed[kind]
        return out

    def _plain(
        self, suspects: Sequence[Call], calls: Sequence[Call], answers: Sequence[Answer]
    ) -> Mapping[Hashable, Call]:
        """A completion for each row that the code can judge."""
        wanted = {self.row(call): call for call in suspects}
        found: dict[Hashable, Call] = {}
        for call, answer in zip(calls, answers, strict=True):
            if self.learns and self.judges(call, answer) and (row := self.row(call)) in wanted:
                found.setdefault(row, call)
        left = {row: list(self.plain(call)) for row, call in wanted.items() if row not in found}
        while left := {row: forms for row, forms in left.items() if forms}:
            first = [(row, forms.pop(0)) for row, forms in left.items()]
            for (row, call), (answer,) in zip(first, self.ask([[call] for _, call in first]), strict=True):
                if self.judges(call, answer):
                    found[row] = call
                if row in found or isinstance(answer, Killed):  # whoever cannot end on one form cannot judge
                    left[row] = []
        return found


def suspicion(answer: Answer) -> Hashable | None:
    """What failures of one kind share that a completion may be to blame for; None of verdicts, and of failures that are ours by
    their nature."""
    if isinstance(answer, Done):
        return RETURNED_NONE if _is_none(answer.value) else None
    if isinstance(answer, Killed):
        return answer.reason if answer.reason in ("timeout", "memory", "died") else None
    if not isinstance(answer, Raised) or is_away(answer.bases, answer.message):
        return None
    is_ours = "Exception" not in answer.bases or not set(_NOT_CARRIED).isdisjoint(answer.bases)
    return None if is_ours else (answer.kind, answer.at)


def _is_none(value: object) -> bool:
    return isinstance(value, list) and value[3] == RETURNED_NONE
