"""`python: module:function`: a function of the user's as a verifier, run in killable workers.

    def verify(completion: str, answer: str) -> float: ...

Any finite number is the reward as it stands. Parameters other than `completion` are columns of the row, `prompt`, or `row` for
all of it. Functions of TRL, verl and the package `verifiers` are called as they are (`functions.conventions`).

How this works: `functions.asking` calls the function in a pool's workers and finds what causes a failure. If the
function can judge a harmless completion of the same row but always fails on another, that other one is wrong
(`verifier_raised`), over a limit, or has no answer (if the function returned None). Any other failure is no verdict
(`error`). A return that is no verdict (NaN, a text, a list of the wrong length) is the function's fault in any case.
"""

from __future__ import annotations

import logging
import math
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal

from grpo_verifiers.answers import Example
from grpo_verifiers.kinds.functions.asking import (
    SURROUNDINGS,
    Answer,
    Blame,
    BrokenContract,
    FunctionCaller,
    Prints,
    probes,
)
from grpo_verifiers.kinds.functions.conventions import FunctionCall, derive, most_of
from grpo_verifiers.kinds.functions.value import RETURNED_NONE
from grpo_verifiers.kinds.functions.waiting import WAITS_S, is_away
from grpo_verifiers.processes.pool import Done, Killed, LoadFailed, Pool, ProcessLimits
from grpo_verifiers.strict_json import RepeatedKey
from grpo_verifiers.verdict import Outcome, Verdict, error, over_limit, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Verifier

log = logging.getLogger("grpo_verifiers")

_THREAD_MB = 80  # address space that a thread reserves: its stack, and its part of the heap
_COMPUTES_S = 5.0


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
    timeout_s: float | None = None
    """Seconds one completion may compute, and as many again that it may wait; default 5, and 20 where many calls are under way."""
    memory_mb: int = 1024
    """Memory one completion may add to the worker."""
    workers: int | None = None
    """Worker processes; default one a core."""
    public_detail: bool = False
    """Whether the `detail` that it returns may be shown to the model (`train.method: distil`): it never has what a row hides."""
    gold: str | None = None
    """Template over columns of a completion that must be right, such as `"\\boxed{{{answer}}}"`: the gold audit."""
    env: list[str] = field(default_factory=list)
    """Environment variables with a secret, such as `OPENAI_API_KEY`, that the function may read; others it does not see."""
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
        self.reason_is_public = options.public_detail
        where, _, name = options.function.rpartition(":")
        if not where or not name:
            raise BadOption("function", f"`{options.function}` is not `module:function`")
        if options.timeout_s is not None and options.timeout_s <= 0:
            raise BadOption("timeout_s", "`timeout_s` must be above 0")
        if options.memory_mb < 16:
            raise BadOption("memory_mb", "`memory_mb` must be at least 16")
        if not math.isfinite(options.right_at):
            raise BadOption("right_at", "`right_at` must be a finite number")
        ends = options.range
        if ends is not None and (len(ends) != 2 or not all(map(math.isfinite, ends)) or ends[0] >= ends[1]):
            raise BadOption("range", "`range` must be two numbers, the least reward and the greatest, such as [-1, 1]")
        if options.concurrency is not None and options.concurrency < 1:
            raise BadOption("concurrency", "`concurrency` must be at least 1")
        if options.retries < 0:
            raise BadOption("retries", "`retries` must be at least 0")
        self.low = options.range[0] if options.range else None
        self._prints = Prints(options.function)
        limit_s = options.timeout_s or _COMPUTES_S
        memory_mb = options.memory_mb + _THREAD_MB * (options.concurrency or 0)
        pool = Pool(
            "grpo_verifiers.kinds.functions.call:load",
            {name: getattr(options, name) for name in _FOR_WORKERS},
            workers=options.workers,
            limits=ProcessLimits(cpu_s=limit_s, wall_s=limit_s, memory_mb=memory_mb),
            on_print=self._prints,
            secrets=options.env,
        )
        self._caller = FunctionCaller(
            pool,
            batch=options.batch,
            messages=options.messages,
            concurrency=options.concurrency,
            retries=options.retries,
            waits_s=options.timeout_s or WAITS_S,
        )
        self._derived: tuple[str, ...] = ()
        self._place = ""
        self._is_started = False
        self._blame = Blame(
            ask=self._caller.ask_after,
            row=lambda call: pickle.dumps(call.row),
            plain=self._plain,
            judges=lambda _, answer: (
                isinstance(answer, Done)
                and (
                    answer.value[0] == Outcome.RIGHT.value
                    if options.gold is not None
                    else answer.value[0] != Outcome.ERROR.value and answer.value[3] != RETURNED_NONE
                )
            ),
            learns=options.gold is None,
        )
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
            message = err.message
            if err.kind != "BadFunction":
                first = err.message.splitlines()[0] if err.message else ""
                message = f"`{self.options.function}` cannot be imported: {err.kind}: {first}"
            raise BadOption("function", message) from err
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
        """The form in which the function takes completions, if it had to be found by trying."""
        form = self._caller.form() if self._is_started else None
        return [] if form is None else [f"`{self.options.function}` {form}"]

    @property
    def wants_whole_batch(self) -> bool:  # type: ignore[override]
        """Whether the function takes lists: its verdict on one completion may then depend on the others."""
        self.start()
        return self._caller.shape in ("step", "group") and self.options.batch != "one"

    @property
    def most(self) -> float | None:  # type: ignore[override]
        """The greater end of `range`, else the greatest number that the function's source returns."""
        if self.options.range is not None:
            return self.options.range[1]
        file, _, line = self._place.rpartition(":")
        return most_of(file, int(line)) if file else None

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
        options = {"function": "grpo_verifiers.custom_example:verify"}
        return [
            Example("4", {"answer": 4}, "true is right", options),
            Example("5", {"answer": 4}, "any finite number is the reward", options),
            Example("four", {"answer": 4}, "false is wrong, and so is an exception", options),
        ]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order, from all workers."""
        self.start()
        calls = [FunctionCall(s.completion, s.prompt, s.gold, s.token_ids) for s in samples]
        self._prints.allow(len(calls))
        answers = self._caller.ask(calls)
        return [self._verdict(*one) for one in zip(answers, self._blame.settle(calls, answers), strict=True)]

    def _plain(self, call: FunctionCall) -> list[FunctionCall]:
        """Harmless completions of the row; where there is a gold text, the one that must be right."""
        text = self.gold_text(call.row)
        return probes(call.row, call.prompt) if text is None else [FunctionCall(text, call.prompt, call.row, (0,))]

    def _verdict(self, answer: Answer, ours: str | None) -> Verdict:
        """The verdict of an answer; `ours`: why the completion did not cause it."""
        if isinstance(answer, BrokenContract):
            return error("bad_return", f"BadReturn: {answer.message}")
        if isinstance(answer, Done):
            outcome, score, extracted, reason, detail = answer.value
            if ours is not None:
                return error(reason, f"the function returned None ({ours})", answer.seconds)
            return Verdict(Outcome(outcome), score, extracted, reason, answer.seconds, detail)
        if isinstance(answer, Killed):
            what = _ENDS[answer.reason].format(self._caller.pool.limits.cpu_s, self.options.memory_mb)
            if ours is None and answer.reason != "died":
                return over_limit(answer.reason, seconds=answer.seconds)
            reason = {"died": "worker_died", "unavailable": "worker_unavailable"}.get(answer.reason, answer.reason)
        else:
            key = answer.traceback.splitlines()[-2] if answer.traceback.count("\n") > 2 else answer.traceback
            with self._lock:
                is_new = key not in self._logged and len(self._logged) < 100
                self._logged.add(key)
            if is_new:
                what = f"`{self.options.function}` raised; further ones like it are only counted"
                log.warning("%s\n%s", what, answer.traceback)
            what = f"{answer.kind}: {answer.message[:300]}{answer.at}"
            is_unanswered = self._caller.shape == "waiting" and is_away(answer.bases, answer.message)
            reason = "unanswered" if is_unanswered else "verifier_raised"
        if ours is None:
            return wrong(None, "verifier_raised", answer.seconds, detail=what)
        return error(reason, what if ours == SURROUNDINGS else f"{what} ({ours})", answer.seconds)


_ENDS = {
    "timeout": "it computed for more than {0:g} s (`timeout_s`)",
    "no_reply": "it waited for more than {0:g} s (`timeout_s`) and did nothing",
    "memory": "it took more than {1} MB (`memory_mb`)",
    "died": "its worker process died",
    "unavailable": "no worker process could be started",
}
_FOR_WORKERS = ("function", "path", "right_at", "range", "concurrency", "retries", "cache", "args", "timeout_s")
