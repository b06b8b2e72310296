"""The verifier `code`: programs judged by tests, in a sandbox, from any thread, never by forking the caller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_verifiers.program.compare import COMPARES
from grpo_verifiers.program.formats import mapped, read_row
from grpo_verifiers.program.task import STYLES, CodeTask, Defaults, Output, compile_task, missing_libraries, packages_in
from grpo_verifiers.program.trial import NotCarried, TestsBroken, Trial, run_task, with_reference
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.inside import fences
from grpo_verifiers.sandbox.lanes import Lanes, LaneSlot
from grpo_verifiers.sandbox.sandboxed import SandboxedVerifier
from grpo_verifiers.sandbox.view import PACKAGES, host_view
from grpo_verifiers.thinking import answer_text
from grpo_verifiers.verdict import Outcome, Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadOption, Sample

MOST_SOURCE = 256 << 10
MOST_REFERENCES = 2048


@dataclass(frozen=True)
class CodeOptions:
    """Options of `code`. A row's own columns (style, scoring, timeout, mem_mb) go before them."""

    style: str = "auto"
    """assert | stdio | function_call; auto: by the shape of the tests."""
    scoring: str = "all"
    """all: every test must pass. fraction: the score is the share of tests passed."""
    timeout: float = 4.0
    """CPU seconds for a test (for a whole assert program); wall time may be three times that, six times on a busy machine."""
    mem_mb: int = 512
    """Address space of a run; programs that import numpy get at least 1536."""
    max_tests: int | None = None
    """Use only the first so many tests of a row."""
    compare: str = "lenient"
    """Printed output. lenient: blanks at line ends and the spelling of decimals (`+5`, `1e3`) do not matter, blanks at the
    start of a line and inside it do, as do leading zeros; lines: nor do those at the start; tokens: only the tokens count;
    strict: every character."""
    trusted_objects: bool = False
    """Run solution and tests in one process: the verdict then rests on the solution's own code. Also a column of a row."""
    lanes: int = 0
    """Runs at the same time; 0: cores less GPUs."""
    sandbox: str | dict[str, str] = "landlock"
    """The least isolation accepted: namespaces | landlock | weak, also as {least: …}."""


class CodeVerifier(SandboxedVerifier):
    """Runs the program of a completion against the tests of its row."""

    Options = CodeOptions
    # the whole row is read: which columns hold the tests depends on the data set
    columns = ()

    def __init__(self, options: CodeOptions) -> None:
        super().__init__(options)
        _check(options)
        self._least = tiers.least_tier(options.sandbox)
        self._failures: dict[tuple[Output, ...], list[int]] = {}
        self._references: dict[str, CodeTask] = {}

    def compile(self, row: Mapping[str, Any]) -> CodeTask:
        """The task of a row, of any format of `formats.FORMATS`."""
        o, (name, columns) = self.options, read_row(row)
        task = compile_task(columns, Defaults(o.style, o.scoring, o.timeout, o.mem_mb, o.max_tests))
        return replace(task, format=name)

    def describe(self, golds: Sequence[Any]) -> list[str]:
        """A line a data set: how many rows have its format, by the way in which they are judged, or why they are not."""
        ways, left_out = dict[str, Counter[str]](), dict[str, Counter[str]]()
        for task in golds:
            way = "trusted" if task.way == "wall" and self.options.trusted_objects else task.way
            if absent := missing_libraries(task):
                way = f"no library `{absent[0]}`"
            elif what := task.not_carried() if way == "wall" else "":
                way = "not supported"
                left_out.setdefault(task.format, Counter())[what] += 1
            elif way == "trusted":
                way = "trusted (the solution's own code decides)"
            ways.setdefault(task.format, Counter())[way] += 1
        lines = list[str]()
        for name, counted in sorted(ways.items()):
            unsupported = counted.pop("not supported", 0)
            parts = [f"{n:,} {way}" for way, n in counted.most_common()]
            if unsupported:
                whats = ", ".join(f"{what} {n:,}" for what, n in left_out[name].most_common())
                parts.append(f"{unsupported:,} not supported: {whats}")
            lines.append(f"{name}: {', '.join(parts)}")
        return lines

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The reference solution, where the row carries one."""
        solution = mapped(row).get("solution")
        if not isinstance(solution, str) or not solution.strip():
            return None
        return solution if fences.python_blocks(solution) else f"```python\n{solution}\n```"

    def find_tier(self) -> tiers.Tier:
        """The best tier of this machine."""
        return tiers.choose(self._least)

    def start(self) -> None:
        """Find the tier and start the lanes."""
        self.ready().warm()

    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one program."""
        started = time.perf_counter()
        task: CodeTask = sample.gold
        if len(sample.completion) > MOST_SOURCE:
            return over_limit("source_size")
        answer = answer_text(sample.turn)
        if not answer.strip():
            return no_answer("empty")
        if task.needs_scratch and not (self.tier and self.tier.has_scratch):
            return error("no_scratch", f"the row needs scratch files, tier `{lanes.tier}` has none")
        if missing := missing_libraries(task):
            return error("no_library", f"the row imports `{'`, `'.join(missing)}`, which the sandbox does not have")

        def run(slot: LaneSlot) -> Verdict:
            try:
                task = self._complete(sample.gold, slot)
                trial = run_task(
                    task, answer, slot, self._order(task), self.options.compare, is_trusted=self.options.trusted_objects
                )
            except TestsBroken as err:
                return error("tests_broken", str(err)[:300], time.perf_counter() - started)
            except NotCarried as err:
                return error(err.args[0], err.args[1], time.perf_counter() - started)
            self._learn(task, trial)
            verdict = replace(_verdict(task, trial, _shown(answer), time.perf_counter() - started), way=trial.way)
            absent = packages_in(answer) - {name for name, _ in host_view(PACKAGES).packages}
            if absent and verdict.outcome is not Outcome.RIGHT:
                return error("no_library", f"`{'`, `'.join(sorted(absent))}` is not installed here", verdict.seconds)
            return verdict

        return self.in_a_slot(lanes, run, started)

    def _complete(self, task: CodeTask, slot: LaneSlot) -> CodeTask:
        """The task with its expected values, which a reference is run for once."""
        if not task.reference:
            return task
        key = f"{task.reference}\n{task.inputs}"
        if key not in self._references:
            if len(self._references) >= MOST_REFERENCES:
                self._references.clear()
            self._references[key] = with_reference(task, slot)
        return self._references[key]

    def _order(self, task: CodeTask) -> list[int]:
        """The tests that failed most often come first: with `all` the first failure ends the trial."""
        counts = self._failures.get(task.outputs) if task.scoring == "all" else None
        if not counts:
            return list(range(task.count))
        return sorted(range(task.count), key=lambda i: (-counts[i], i))

    def _learn(self, task: CodeTask, trial: Trial) -> None:
        if not task.outputs or task.count < 2:
            return
        counts = self._failures.setdefault(task.outputs, [0] * task.count)
        for number, result in zip(trial.numbers, trial.results, strict=True):
            counts[number] += result.fate != "passed"


def _check(options: CodeOptions) -> None:
    choices = (("style", ("auto", *STYLES)), ("scoring", ("all", "fraction")), ("compare", COMPARES))
    for name, known in choices:
        if (said := getattr(options, name)) not in known:
            raise BadOption(name, f"`{name}` is {said!r}; known: {', '.join(known)}")
    if not 0 < options.timeout <= 600:
        raise BadOption("timeout", f"`timeout` is {options.timeout!r}, not seconds above 0 and up to 600")
    if options.mem_mb < 64:
        raise BadOption("mem_mb", f"`mem_mb` is {options.mem_mb!r}, less than the 64 an interpreter needs")
    if options.lanes < 0:
        raise BadOption("lanes", "`lanes` is below 0")
    if options.max_tests is not None and options.max_tests < 1:
        raise BadOption("max_tests", "`max_tests` is below 1")


def _shown(text: str) -> str:
    """The program as it is shown to people: the last Python block, else the answer."""
    found = fences.python_blocks(text)
    return (found[-1] if found else text).strip()[:20_000]


def _verdict(task: CodeTask, trial: Trial, shown: str, seconds: float) -> Verdict:
    passed = sum(r.fate == "passed" for r in trial.results)
    bad = next((r for r in trial.results if r.fate != "passed"), None)
    if bad is None and passed == task.count:
        return right(shown, f"passed:{passed}", seconds)
    if bad is None:
        return wrong(shown, "tests_not_run", seconds)
    if bad.fate == "no_code":
        return no_answer("no_code", seconds)
    if task.scoring == "fraction" and passed:
        return wrong(shown, f"passed:{passed}/{task.count}", seconds, passed / task.count, bad.reason)
    if bad.fate == "limit":
        return over_limit(bad.reason, shown, seconds)
    return wrong(shown, bad.reason, seconds, 0.0, bad.detail)
