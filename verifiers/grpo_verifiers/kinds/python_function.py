"""`python: module:function`: a function of the user's as a verifier, run in killable workers.

    def verify(completion: str, answer: str) -> float: ...

Any finite number is the reward as it stands. Parameters beside `completion` are columns of the row, `prompt`, or `row` for
all of it; functions of TRL, verl and the package `verifiers` are taken as they are (`functions.forms`). What an exception
means is decided by the gold, never by the completion: where the function can judge a well-behaved completion of the same row,
the one it raised on is wrong (`verifier_raised`), and one it returned None for has no answer; where it cannot, there is no
verdict (`error`). A return that is no verdict (NaN, a text, a list of the wrong length) is the function's fault in any case.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal

from grpo_verifiers.answers import Example
from grpo_verifiers.kinds.functions.asking import Answer, BrokenContract, FunctionCaller, Prints, Unanswered
from grpo_verifiers.kinds.functions.blame import Blame
from grpo_verifiers.kinds.functions.forms import FunctionCall, derive
from grpo_verifiers.kinds.functions.value import RETURNED_NONE
from grpo_verifiers.processes.pool import Done, Killed, LoadFailed, Pool, ProcessLimits
from grpo_verifiers.strict_json import RepeatedKey
from grpo_verifiers.verdict import Outcome, Verdict, error, over_limit, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Verifier

log = logging.getLogger("grpo_verifiers")

_THREAD_MB = 80  # addresses that a thread reserves: its stack, and its part of the heap
_HINT = "on plain completions too; if it wants a form of its own, say so with the option `gold`"


@dataclass(frozen=True)
class PythonOptions:
    """Options of `python`."""

    function: str = field(default="", metadata={"names": "code"})
    """`module:function` or `file.py:function`; the working folder and the recipe's are searched first."""
    right_at: float = 1.0
    """Reward from which a completion counts as right (in a recipe `verify.NAME.right_at`)."""
    range: list[float] | None = None
    """Least and greatest reward, `[-1, 1]`: others are an error, and no answer is worth the least. Left out, any finite number."""
    messages: bool | None = None
    """Whether completions are handed over as lists of messages; left out, found by trying once."""
    batch: Literal["step", "group", "one"] | None = None
    """What a function that takes lists sees at once; default `step`, or `group` where it has a parameter of that name."""
    concurrency: int | None = None
    """Calls under way at once; default 32 for async functions, else 1 a worker. Above 1 others run in threads."""
    retries: int = 2
    """How often a call of those is made again, after a pause that doubles, when whom it asks is slow, busy or away."""
    cache: bool | None = None
    """Whether those are called once for equal completion, prompt and row; default for async functions."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments of a `load_environment` function."""
    timeout_s: float = 5.0
    """CPU seconds one completion may use; three times as much wall time (and two seconds) when it waits."""
    memory_mb: int = 1024
    """Memory one completion may add to the worker."""
    workers: int | None = None
    """Worker processes; default one a core."""
    gold: str | None = None
    """Template over columns of a completion that must be right, such as `"\\boxed{{{answer}}}"`: the gold audit."""
    path: list[str] = field(default_factory=list, metadata={"names": "folders"})
    """More folders to import from."""


class PythonVerifier(Verifier):
    """A function of yours: `def verify(completion, answer) -> bool | float | None | dict | Verdict`, run in workers.

    Functions of TRL, verl and the package `verifiers` are taken as they are. `columns` is known after `start()`, which loads the function in a worker and checks its signature.
    """

    Options = PythonOptions
    options: PythonOptions
    columns: tuple[str, ...] = ()
    runs_elsewhere = True

    def __init__(self, options: PythonOptions) -> None:
        super().__init__(options)
        where, _, name = options.function.rpartition(":")
        if not where or not name:
            raise BadOption("function", f"`{options.function}` is not `module:function`")
        if options.timeout_s <= 0:
            raise BadOption("timeout_s", "`timeout_s` must be above 0")
        if options.memory_mb < 16:
            raise BadOption("memory_mb", "`memory_mb` must be at least 16")
        _check_numbers(options)
        self.low = options.range[0] if options.range else None
        self._prints = Prints(options.function)
        pool = Pool(
            "grpo_verifiers.kinds.functions.call:load",
            {name: getattr(options, name) for name in _FOR_WORKERS},
            workers=options.workers,
            limits=ProcessLimits(
                cpu_s=options.timeout_s, memory_mb=options.memory_mb + _THREAD_MB * (options.concurrency or 0)
            ),
            on_print=self._prints,
        )
        self._caller = FunctionCaller(
            pool,
            batch=options.batch,
            messages=options.messages,
            concurrency=options.concurrency,
            retries=options.retries,
        )
        self._derived: tuple[str, ...] = ()
        self._place = ""
        self._is_started = False
        self._blame = Blame(self._caller, self.gold_text)
        self._logged: set[str] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Load the function and check its signature.

        Raises:
            BadOption: it cannot be imported, or not be called as a verifier.
            Unavailable: no worker could be started.
        """
        if self._is_started:
            return
        try:
            info = self._caller.start()
        except LoadFailed as err:
            if err.kind not in ("BadFunction", "ModuleNotFoundError"):
                log.error("importing `%s` failed\n%s", self.options.function, err.traceback)
            raise BadOption("function", _load_message(self.options.function, err)) from err
        self.columns = tuple(info["required"])
        self._derived = tuple(info["derived"])
        self._place = info["place"]
        self._is_started = True

    def close(self) -> None:
        """End the workers."""
        self._caller.pool.close()

    def compile(self, row: Mapping[str, Any]) -> Any:
        """The row itself, once it has the columns the function takes.

        Raises:
            BadGold: it lacks one, or one that the option `gold` names.
        """
        self.start()
        missing = [name for name in self.columns if name not in row]
        if missing:
            raise BadGold(f"no column `{missing[0]}`, which `{self.options.function}` takes")
        if self.options.gold is not None:
            self.gold_text(row)
        own = dict(row)
        try:
            lack = derive(own, self._derived)
        except RepeatedKey as err:
            raise BadGold(f"JSON text of a column: {err}") from None
        if lack is not None:
            raise BadGold(f"{lack}, which `{self.options.function}` takes")
        self._caller.find_form(own)
        return own

    def remarks(self) -> list[str]:
        """The form in which the function takes completions, where that had to be found."""
        form = self._caller.form() if self._is_started else None
        return [] if form is None else [f"`{self.options.function}` {form}"]

    @property
    def wants_whole_batch(self) -> bool:  # type: ignore[override]
        """Whether the function takes lists: what it says of one completion may depend on the others."""
        self.start()
        return self._caller.shape in ("step", "group") and self.options.batch != "one"

    @property
    def printed(self) -> int:  # type: ignore[override]
        """Lines that the function has printed."""
        return self._prints.count

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The `gold` template filled from the row; None where the option is not set.

        Raises:
            BadGold: the row lacks a column that the template names.
        """
        if self.options.gold is None:
            return None
        names = [name for _, name, _, _ in Formatter().parse(self.options.gold) if name]
        for name in names:
            if name not in row:
                raise BadGold(f"no column `{name}`, which the option `gold` names")
        return self.options.gold.format(**{name: row[name] for name in names})

    @classmethod
    def examples(cls) -> list[Example]:
        """For `grpo explain python`."""
        options = {"function": "grpo_verifiers.custom_example:verify"}
        return [
            Example("4", {"answer": 4}, "true is right", options),
            Example("5", {"answer": 4}, "any finite number is the reward", options),
            Example("four", {"answer": 4}, "false is wrong, and so is an exception", options),
        ]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order, from all workers."""
        self.start()
        self._blame.begin()
        answers = self._caller.ask(
            [FunctionCall(s.completion, s.prompt, s.gold, s.token_ids) for s in samples]
        )
        self._blame.note(samples, answers)
        return [self._verdict(s, a) for s, a in zip(samples, answers, strict=True)]

    def _verdict(self, sample: Sample, answer: Answer) -> Verdict:
        if isinstance(answer, Done):
            outcome, score, extracted, reason, detail = answer.value
            if (
                reason == RETURNED_NONE
                and outcome != Outcome.ERROR.value
                and not self._blame.can_judge(sample)
            ):
                return error(
                    RETURNED_NONE, "the function returns None on a plain completion too", answer.seconds
                )
            return Verdict(Outcome(outcome), score, extracted, reason, answer.seconds, detail)
        if isinstance(answer, BrokenContract):
            return error("bad_return", f"BadReturn: {answer.message}")
        if isinstance(answer, Killed) and answer.reason == "unavailable":
            return error("worker_unavailable", "no worker process could be started")
        if not isinstance(answer, Killed):
            self._log_once(answer.traceback)
        if isinstance(answer, Unanswered):
            return error("unanswered", f"{answer.message[:300]}{at_line(answer.traceback)}", answer.seconds)
        can_judge = self._blame.can_judge(sample)
        if isinstance(answer, Killed) and answer.reason != "died":
            if can_judge:
                return over_limit(answer.reason, seconds=answer.seconds)
            return error(
                answer.reason, "the function bursts its limit on a plain completion too", answer.seconds
            )
        if isinstance(answer, Killed):
            what = "the worker died"
        else:
            what = f"{answer.kind}: {answer.message[:300]}{at_line(answer.traceback)}"
        if can_judge:
            return wrong(None, "verifier_raised", answer.seconds, detail=what)
        return error("verifier_raised", f"{what} ({_HINT})", answer.seconds)

    def _log_once(self, traceback: str) -> None:
        key = traceback.splitlines()[-2] if traceback.count("\n") > 2 else traceback
        with self._lock:
            is_new = key not in self._logged and len(self._logged) < 100
            self._logged.add(key)
        if is_new:
            log.warning(
                "`%s` raised; further ones like it are only counted\n%s", self.options.function, traceback
            )


_FOR_WORKERS = (
    "function",
    "path",
    "right_at",
    "range",
    "concurrency",
    "retries",
    "cache",
    "args",
    "timeout_s",
)


def _check_numbers(options: PythonOptions) -> None:
    if not math.isfinite(options.right_at):
        raise BadOption("right_at", "`right_at` must be a finite number")
    ends = options.range
    if ends is not None and (len(ends) != 2 or not all(map(math.isfinite, ends)) or ends[0] >= ends[1]):
        raise BadOption(
            "range", "`range` must be two numbers, the least reward and the greatest, such as [-1, 1]"
        )
    if options.concurrency is not None and options.concurrency < 1:
        raise BadOption("concurrency", "`concurrency` must be at least 1")
    if options.retries < 0:
        raise BadOption("retries", "`retries` must be at least 0")


def at_line(traceback: str) -> str:
    """` (reward.py:7)`, the innermost line of a traceback."""
    found = re.findall(r'File "([^"]+)", line (\d+)', traceback)
    return f" ({found[-1][0]}:{found[-1][1]})" if found else ""


def _load_message(function: str, err: LoadFailed) -> str:
    if err.kind == "BadFunction":
        return err.message
    return (
        f"`{function}` cannot be imported: {err.kind}: {err.message.splitlines()[0] if err.message else ''}"
    )
