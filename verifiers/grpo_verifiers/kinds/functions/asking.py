"""The host's side of a user's function: batches of completions, their form, and the causes of failures.

How this works: `FunctionCaller` finds by trials whether the function takes texts or messages, sends calls to the pool one by
one or in batches, and calls again alone what failed together. `Blame` then finds the cause of each failure, for all code of users
that judges completions. The completion is the cause where the code can judge the row and only this completion makes it fail, every
time. It is not, and there is no verdict, where

- a service was away, slow or silent, a package is missing, the code raises NotImplementedError or ends its process;
- a plain completion of the same row fails as well (one that must be right where there is one, else any that gets a verdict);
- the same completion does not fail the same way again, tried in turn with the plain one.

A completion may be blamed only for a failure that it can cause. Such a failure must count against it, or a policy
learns to fail when it expects to be wrong.
"""

from __future__ import annotations

import logging
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from grpo_verifiers.kinds.functions.conventions import FunctionCall
from grpo_verifiers.kinds.functions.value import RETURNED_NONE
from grpo_verifiers.kinds.functions.waiting import FIRST_PAUSE_S, is_away
from grpo_verifiers.processes.pool import Done, Killed, Pool, Raised, Result
from grpo_verifiers.processes.wire import raised
from grpo_verifiers.text import printable

FORM_TRIES, FORM_KILLS = 8, 4
"""Number of rows on which the form is tried, and of workers that may be killed meanwhile."""
PROBE_FORMS = ("\\boxed{{{0}}}", "{0}", "<think>ok</think>\n<answer>{0}</answer>", "#### {0}", "")
"""Harmless completions around a gold."""

printed_log = logging.getLogger("grpo_verifiers.printed")
printed_log.setLevel(logging.INFO)  # separate from warnings: they go to a run's log, not to the terminal


@dataclass(frozen=True, slots=True)
class BrokenContract:
    """The function broke its contract, independent of the completion; the message has place, value and remedy."""

    message: str


Answer = Done | Raised | Killed | BrokenContract
"""The result of one call; the value of `Done` is a plain verdict."""


class Prints:
    """Lines that a function prints: counted, and written to the log (to stderr where no handler is set), as many as are allowed.

    For each completion `OF_ONE` characters are kept and for all of them `OF_ALL`; that others are left out is logged once.
    """

    OF_ONE, OF_ALL, OF_LINE = 4_000, 1_000_000, 64
    """A line counts for `OF_LINE` characters more than it has: the log puts its time and name before it."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0
        self._left, self._of_all, self._is_over = self.OF_ONE, self.OF_ALL, False
        self._lock = threading.Lock()

    def allow(self, completions: int) -> None:
        """Begin a batch of so many completions."""
        with self._lock:
            self._left = self.OF_ONE * completions

    def __call__(self, line: str) -> None:
        with self._lock:
            self.count += 1
            room = min(self._left, self._of_all) - self.OF_LINE
            cost = min(len(line), max(room, 0)) + self.OF_LINE
            self._left, self._of_all = self._left - cost, self._of_all - (cost if room >= 0 else 0)
            is_first = room < len(line) and not self._is_over
            self._is_over |= is_first
        if room >= 0:
            self._log(f"{self.name} printed: {printable(line[:room])}")
        if is_first:
            most = f"{self.OF_ONE:,} characters for a completion, {self.OF_ALL:,} for all of them"
            self._log(f"{self.name} prints more than is kept ({most}): further lines are counted")

    @staticmethod
    def _log(text: str) -> None:
        if printed_log.hasHandlers():
            printed_log.info("%s", text)
        else:
            print(text, file=sys.stderr)


class FunctionCaller:
    """Calls of one function in a pool's workers."""

    def __init__(
        self,
        pool: Pool,
        *,
        batch: str | None,
        messages: bool | None,
        concurrency: int | None,
        retries: int,
        waits_s: float,
    ) -> None:
        """`waits_s` is the time limit of one of many concurrent calls."""
        self.pool, self.messages, self._waits_s = pool, messages, waits_s
        self._batch, self._concurrency, self._retries = batch, concurrency or 32, retries
        self._info: Mapping[str, Any] = {}
        self._tries = self._kills = 0
        self._is_set = messages is not None
        self._lock = threading.Lock()

    def start(self) -> Mapping[str, Any]:
        """Start the pool; returns how the worker describes the function."""
        self._info = self.pool.start()
        return self._info

    @property
    def shape(self) -> str:
        """`one` completion a call, `waiting` (one each, many concurrently), `step` or `group` (lists)."""
        shape = str(self._info["shape"])
        if shape != "many":
            return shape
        return self._batch or ("group" if self._info["wants_group"] else "step")

    def form(self) -> str | None:
        """The form in which the function takes completions, in words, if it was found by trying."""
        if self._is_set or self.messages is None or not self._info["tries_messages"]:
            return None
        if self.messages:
            return "takes completions as lists of messages (found by trying once)"
        return None if self._info["is_ours"] else "takes completions as texts (found by trying once)"

    def find_form(self, row: Mapping[str, Any]) -> None:
        """Try the function once with each form, on harmless completions of this row, until one does not raise."""
        with self._lock:
            if self.messages is not None or self._tries >= FORM_TRIES or not self._info["tries_messages"]:
                return
            self._tries += 1
            first = bool(self._info["prefers_messages"])
            for messages in (first, not first):
                for call in probes(row, "1"):
                    (found,) = self._alone([call], messages)
                    if isinstance(found, Done):
                        self.messages = messages
                        return
                    self._kills += isinstance(found, Killed)
                    if self._kills >= FORM_KILLS:  # each takes as long as the limit
                        self._tries = FORM_TRIES
                        return

    def ask(self, calls: Sequence[FunctionCall]) -> list[Answer]:
        """The results of the calls, in order."""
        if self.shape == "one" or self._batch == "one":
            return self._alone(calls, bool(self.messages))
        batches: dict[Hashable, list[int]] = {}
        for i, call in enumerate(calls):
            key = (call.prompt, pickle.dumps(call.row)) if self.shape == "group" else None
            batches.setdefault(key, []).append(i)
        answers: dict[int, Answer] = {}
        for batch in batches.values():
            found = self._together([calls[i] for i in batch])
            answers |= dict(zip(batch, found, strict=True))
        return [answers[i] for i in range(len(calls))]

    def ask_after(self, pairs: Sequence[Sequence[FunctionCall]]) -> list[list[Answer]]:
        """The results of each pair of calls, which are made one after the other in one worker."""
        jobs = [
            self.pool.submit([([call], bool(self.messages)) for call in pair], [self._of_one()] * len(pair))
            for pair in pairs
        ]
        return [[self._spread(result, 1)[0] for result in job.result()] for job in jobs]

    def _together(self, calls: Sequence[FunctionCall]) -> list[Answer]:
        """One call for all. If it raises, each is called alone, and those that do not raise are called together once more."""
        whole = self._once(calls)
        if not isinstance(whole, Raised | Killed) or len(calls) == 1:
            return self._spread(whole, len(calls))
        alone = self._alone(calls, bool(self.messages))
        if self.shape == "waiting":
            return alone
        good = [i for i, answer in enumerate(alone) if isinstance(answer, Done)]
        if not good:
            return alone
        again = self._once([calls[i] for i in good]) if len(good) < len(calls) else whole
        rest = self._spread(again, len(good))
        if isinstance(again, Killed) or (isinstance(again, Raised) and not is_away(again.bases, again.message)):
            why = again.reason if isinstance(again, Killed) else f"{again.kind}: {again.message}"
            rest = [BrokenContract(f"it fails on {len(good)} completions together ({why}), though on none of them alone")] * len(good)  # fmt: skip
        for i, answer in zip(good, rest, strict=True):
            alone[i] = answer
        return alone

    def _once(self, calls: Sequence[FunctionCall]) -> Result:
        units = float(len(calls))
        if self.shape == "waiting":
            pauses_s = FIRST_PAUSE_S * (2**self._retries - 1)
            one_s = self._waits_s * (self._retries + 1) + pauses_s
            units = (-(-len(calls) // self._concurrency) * one_s + 1.0) / self.pool.limits.backstop_s
        return self.pool.run([(list(calls), bool(self.messages))], [units])[0]

    def _alone(self, calls: Sequence[FunctionCall], messages: bool) -> list[Answer]:
        results = self.pool.run([([call], messages) for call in calls], [self._of_one()] * len(calls))
        return [self._spread(result, 1)[0] for result in results]

    def _of_one(self) -> float:
        """Units of the limits for one call: where many wait at once no more than for its first try, which others wait for."""
        return (self._waits_s + 1.0) / self.pool.limits.backstop_s if self._info["shape"] == "waiting" else 1.0

    @staticmethod
    def _spread(result: Result, n: int) -> list[Answer]:
        """The result of a call for n completions as one answer each."""
        if isinstance(result, Raised) and result.kind in ("BadReturn", "NotHere"):
            return [BrokenContract(result.message)] * n
        if not isinstance(result, Done):
            return [result] * n
        each_s, answers = result.seconds / n, list[Answer]()
        for entry in result.value:
            if isinstance(entry, list):
                answers.append(Done(entry, each_s))
            elif "bad" in entry:
                answers.append(BrokenContract(printable(entry["bad"])))
            else:
                answers.append(raised(*entry["raised"], seconds=each_s))
        return answers


def probes(row: Mapping[str, Any], prompt: str) -> list[FunctionCall]:
    """Calls with harmless completions of a row."""
    texts = dict.fromkeys(form.format(row.get("answer", "1")) for form in PROBE_FORMS)
    return [FunctionCall(text, prompt, row, (0,)) for text in texts]


# What causes a failure.

Call = TypeVar("Call")

SURROUNDINGS = "its surroundings fail, whatever the completion says"
ON_PLAIN = "on plain completions too; if it wants a form of its own, say so with the option `gold`"
NOT_AGAIN = "the same completion does not fail every time"

TRIALS = 4
"""Number of trials of a kind of failure in a batch: a random failure passes all of them less than once in 250."""
SURE = 8
"""Trials, batch after batch, after which a kind is tried once a batch: each may take as long as the limit."""
_NOT_CARRIED = ("ImportError", "NotImplementedError")


@dataclass(frozen=True)
class Blame(Generic[Call]):
    """Finds the cause of failures of one piece of code.

    `ask` makes calls one after the other in one worker, for each of several lists; `row` returns the same for calls of one row;
    `plain` gives plain completions of a call's row, of which one must pass `judges`; `learns` whether a completion of the
    batch that has a verdict may be used as one.
    """

    ask: Callable[[Sequence[Sequence[Call]]], Sequence[Sequence[Answer]]]
    row: Callable[[Call], Hashable]
    plain: Callable[[Call], Sequence[Call]]
    judges: Callable[[Call, Answer], bool]
    learns: bool
    passed: Counter[Hashable] = field(default_factory=Counter)
    """Number of trials that a kind of failure has passed since it last proved random."""

    def settle(self, calls: Sequence[Call], answers: Sequence[Answer]) -> list[str | None]:
        """For each answer without a verdict, the reason why this is not the completion's fault, or None if it is; for
        verdicts None."""
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
                if row in found or isinstance(answer, Killed):  # code that hangs on one form cannot judge
                    left[row] = []
        return found


def suspicion(answer: Answer) -> Hashable | None:
    """A key shared by failures of one kind that a completion may cause; None for verdicts and other failures."""
    if isinstance(answer, Done):
        return RETURNED_NONE if (isinstance(answer.value, list) and answer.value[3] == RETURNED_NONE) else None
    if isinstance(answer, Killed):
        return answer.reason if answer.reason in ("timeout", "memory", "died") else None
    if not isinstance(answer, Raised) or is_away(answer.bases, answer.message):
        return None
    is_ours = "Exception" not in answer.bases or not set(_NOT_CARRIED).isdisjoint(answer.bases)
    return None if is_ours else (answer.kind, answer.at)
