"""`python: module:function`: a function of the user's as a verifier, run in killable workers.

    def verify(completion: str, answer: str) -> float: ...

Parameters beside `completion` (or `completions`, lists of one, as TRL's reward functions take them) are columns of the
row, `prompt`, or `row` for all of it. What an exception means is decided by the gold, never by the completion: where
the function can judge a well-behaved completion of the same row, the one it raised on is wrong (`verifier_raised`), and
one it returned None for has no answer; where it cannot, there is no verdict (`error`).
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from grpo_verifiers.answers import Example
from grpo_verifiers.kinds.python_call import RETURNED_NONE
from grpo_verifiers.processes.pool import Done, Killed, LoadFailed, Pool, ProcessLimits, Raised, Result
from grpo_verifiers.verdict import Outcome, Verdict, error, over_limit, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Verifier

log = logging.getLogger("grpo_verifiers")

_PROBE_FORMS = ("\\boxed{{{0}}}", "{0}", "<think>ok</think>\n<answer>{0}</answer>", "#### {0}", "")
_HINT = "on plain completions too; if it wants a form of its own, say so with the option `gold`"


@dataclass(frozen=True)
class PythonOptions:
    """Options of `python`."""

    function: str = ""
    """`module:function` or `file.py:function`; the working folder and the recipe's are searched first."""
    timeout_s: float = 5.0
    """CPU seconds one completion may use; three times as much wall time (and two seconds) when it waits."""
    memory_mb: int = 1024
    """Memory one completion may add to the worker."""
    workers: int | None = None
    """Worker processes; default one a core."""
    gold: str | None = None
    """Template over columns of a completion that must be right, such as `"\\boxed{{{answer}}}"`: the gold audit."""
    path: list[str] = field(default_factory=list)
    """More folders to import from."""


class PythonVerifier(Verifier):
    """A function of yours: `def verify(completion, answer) -> bool | float | None | dict | Verdict`, run in workers.

    `columns` is known after `start()`, which loads the function in a worker and checks its signature.
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
        self._pool = Pool(
            "grpo_verifiers.kinds.python_call:load",
            {"function": options.function, "path": list(options.path)},
            workers=options.workers,
            limits=ProcessLimits(cpu_s=options.timeout_s, memory_mb=options.memory_mb),
        )
        self._takes_all = False
        self._is_started = False
        self._settled: dict[bytes, bool] = {}
        self._logged: set[tuple[str, str]] = set()
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
            info = self._pool.start()
        except LoadFailed as err:
            if err.kind not in ("BadFunction", "ModuleNotFoundError"):
                log.error("importing `%s` failed\n%s", self.options.function, err.traceback)
            raise BadOption("function", _load_message(self.options.function, err)) from err
        self.columns = tuple(info["required"])
        self._takes_all = bool(info["takes_all"])
        self._is_started = True

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def compile(self, row: Mapping[str, Any]) -> Any:
        """The row itself, once it has the columns the function takes."""
        self.start()
        missing = [name for name in self.columns if name not in row]
        if missing:
            raise BadGold(f"no column `{missing[0]}`, which `{self.options.function}` takes")
        if self.options.gold is not None:
            self.gold_text(row)
        return dict(row)

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The `gold` template filled from the row."""
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
            Example("5", {"answer": 4}, "a number from 0 to 1 is the score", options),
            Example(
                "four", {"answer": 4}, "it raised, and does not on the gold: the completion is wrong", options
            ),
        ]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order, from all workers."""
        self.start()
        with self._lock:
            self._settled.clear()  # a function that could judge a batch ago may have lost its database since
        results = self._pool.run([(s.completion, s.prompt, s.gold) for s in samples])
        self._note_judged(samples, results)
        return [self._verdict(s, r) for s, r in zip(samples, results, strict=True)]

    def _note_judged(self, samples: Sequence[Sample], results: Sequence[Result]) -> None:
        """A verdict on any completion of a row shows that the function can judge the row, where no `gold` decides."""
        if self.options.gold is not None or all(map(self._is_verdict, results)):
            return
        judged = {pickle.dumps(s.gold) for s, r in zip(samples, results, strict=True) if self._is_verdict(r)}
        with self._lock:
            self._settled.update(dict.fromkeys(judged, True))

    def _verdict(self, sample: Sample, result: Result) -> Verdict:
        if isinstance(result, Done):
            outcome, score, answer, reason, detail = result.value
            if reason == RETURNED_NONE and not self._can_judge(sample):
                return error(
                    RETURNED_NONE, "the function returns None on a plain completion too", result.seconds
                )
            return Verdict(Outcome(outcome), score, answer, reason, result.seconds, detail)
        if isinstance(result, Killed) and result.reason == "unavailable":
            return error("worker_unavailable", "no worker process could be started")
        self._log_once(result)
        can_judge = self._can_judge(sample)
        if isinstance(result, Killed) and result.reason != "died":
            if can_judge:
                return over_limit(result.reason, seconds=result.seconds)
            return error(
                result.reason, "the function bursts its limit on a plain completion too", result.seconds
            )
        what = f"{result.kind}: {result.message}" if isinstance(result, Raised) else "the worker died"
        if can_judge:
            return wrong(None, "verifier_raised", result.seconds, detail=what[:300])
        return error("verifier_raised", f"{what[:300]} ({_HINT})", result.seconds)

    def _can_judge(self, sample: Sample) -> bool:
        """Whether the function gives a verdict on a harmless completion of this row (right, where `gold` is set)."""
        key = pickle.dumps(sample.gold)
        with self._lock:
            known = self._settled.get(key)
        if known is not None:
            return known
        passes = any(map(self._is_verdict, self._probes(sample)))
        with self._lock:
            self._settled[key] = passes
        return passes

    def _is_verdict(self, result: Result) -> bool:
        if not isinstance(result, Done):
            return False
        outcome, _, _, reason, _ = result.value
        if self.options.gold is not None:
            return bool(outcome == Outcome.RIGHT.value)
        return bool(outcome != Outcome.ERROR.value and reason != RETURNED_NONE)

    def _probes(self, sample: Sample) -> list[Result]:
        if self.options.gold is not None:
            texts = [self.gold_text(sample.gold) or ""]
        else:
            texts = list(dict.fromkeys(form.format(sample.gold.get("answer", "1")) for form in _PROBE_FORMS))
        return self._pool.run([(text, sample.prompt, sample.gold) for text in texts])

    def _log_once(self, result: Raised | Killed) -> None:
        if isinstance(result, Killed):
            return
        key = (result.kind, result.traceback.splitlines()[-2] if result.traceback.count("\n") > 2 else "")
        with self._lock:
            is_new = key not in self._logged and len(self._logged) < 100
            self._logged.add(key)
        if is_new:
            log.warning(
                "`%s` raised; further ones like it are only counted\n%s",
                self.options.function,
                result.traceback,
            )


def _load_message(function: str, err: LoadFailed) -> str:
    if err.kind == "BadFunction":
        return err.message
    return (
        f"`{function}` cannot be imported: {err.kind}: {err.message.splitlines()[0] if err.message else ''}"
    )
