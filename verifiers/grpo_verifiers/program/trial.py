"""One completion against one task: send it to a lane, read what came back, compare here.

The process that runs model code gets inputs and returns values; whether they are right is only ever decided in this file,
in `compare` and, for general test programs, in a test process of its own.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from grpo_verifiers.program.claims import Undecided, holds, of_object
from grpo_verifiers.program.compare import CompareRule, same, same_output
from grpo_verifiers.program.literal_tests import LiteralCall
from grpo_verifiers.program.task import KINDS, CodeTask, Returned, packages_of
from grpo_verifiers.sandbox.inside.wall import values as wire
from grpo_verifiers.sandbox.lane import (
    OUTPUT_BYTES,
    STRETCH,
    Lane,
    LaneFailed,
    LaneReport,
    LaneSilent,
    ending,
    limits_of,
    memory_files,
    read_file,
    run_script,
    script,
)
from grpo_verifiers.sandbox.lanes import LaneSlot

SPARE_BYTES = 1 << 16
LOOK_BYTES = 1 << 20
LIMITS = ("time", "wall_time", "memory", "output")
# a test process that these end was brought down by what the solution made it do: SIGABRT, SIGBUS, SIGSEGV, SIGXCPU
CRASHES = (6, 7, 11, 24)

Fate = Literal["passed", "failed", "limit", "no_code", "undecided"]
"""`undecided`: what the run handed out does not show it, and the test program is run in a process of its own."""


class TestsBroken(RuntimeError):
    """The row's own tests cannot be run: nothing is known about the completion."""


class NotCarried(RuntimeError):
    """The tests ask for what the wall does not carry: nothing is known about the completion. `args`: reason, what."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of one test, with a short reason when it did not pass."""

    fate: Fate
    reason: str = ""
    detail: str = ""


PASSED = TestResult("passed")
UNDECIDED = TestResult("undecided")


@dataclass(slots=True)
class Trial:
    """The results in the order they were run; `number` says which test each belongs to."""

    results: list[TestResult] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    way: str = "values"  # as `CodeTask.way`, of what was run in the end

    def add(self, number: int, result: TestResult) -> None:
        """Note the result of a test."""
        self.numbers.append(number)
        self.results.append(result)


def run_task(
    task: CodeTask, code: str, slot: LaneSlot, order: Sequence[int], compare: str, *, is_trusted: bool
) -> Trial:
    """Run the tests of a task on a completion; `compare` and `is_trusted` hold where the row leaves it open.

    Raises:
        LaneFailed: the sandbox broke; nothing is known about the completion.
        TestsBroken: the row is at fault; likewise.
    """
    kind = max(task.packages, packages_of(code), key=KINDS.index)
    if task.outputs:
        return _run_stdio(task, code, slot, kind, compare, order)
    if task.calls or task.returned:
        trial = _run_calls(task, code, slot.lane(kind))
        if all(result.fate != "undecided" for result in trial.results):
            return trial
    if is_trusted or task.is_trusted:
        return replace(_run_trusted(task, code, slot.lane(kind, "trusted")), way="trusted")
    return replace(_run_program(task, code, slot, kind), way="wall")


def with_reference(task: CodeTask, slot: LaneSlot) -> CodeTask:
    """The task with the values that its reference returns, run as a solution is; decoded here, for the row is trusted.

    Raises:
        LaneFailed: the sandbox broke.
        TestsBroken: the reference fails on an input, or returns what is no plain value.
    """
    lane = slot.lane(max(task.packages, packages_of(task.reference), key=KINDS.index))
    payload = _payload(task, task.reference, stop=True)[:-1] + b', "calls": ' + task.inputs.encode() + b"}"
    with memory_files(payload=payload, results=None) as fds:
        lane.run("calls", fds, _limits(task, lane.kind, task.count))
        answers = [json.loads(line) for line in read_file(fds["results"], OUTPUT_BYTES).split(b"\n")[:-1]]
    values = [wire.decode(answer["v"]) for answer in answers if "v" in answer]
    if len(values) < task.count:
        raise TestsBroken(f"the reference returns no value for input {len(values)}: {answers[len(values) :][:1]}")
    returned = tuple(replace(call, accepted=(value,)) for call, value in zip(task.returned, values, strict=True))
    return replace(task, returned=returned, expected_bytes=sum(len(str(answer)) for answer in answers))


def _limits(task: CodeTask, kind: str, steps: int = 1) -> dict[str, Any]:
    return limits_of(kind, task.timeout_s, task.memory_mb, steps)


def _payload(task: CodeTask, code: str, **more: object) -> bytes:
    return script(code, task.entry, task.prompt, task.before, **more)


def _ended(report: LaneReport) -> TestResult | None:
    """The verdict that follows from the end of a run alone; None for a clean end, and for one that we asked for."""
    why = ending(report)
    return _of_end(why) if why else None


def _of_end(why: str) -> TestResult:
    fate: Fate = "limit" if why in LIMITS else "no_code" if why == "no_code" else "failed"
    return TestResult(fate, why)


def _run_stdio(task: CodeTask, code: str, slot: LaneSlot, kind: str, compare: str, order: Sequence[int]) -> Trial:
    trial = Trial()
    with memory_files(payload=_payload(task, code)) as shared:
        for index in order:
            # asked for anew: a lane whose scratch folder resists is closed behind the run that did it
            result, report = _one_stdio(task, index, shared, slot.lane(kind), compare)
            trial.cpu_s += report.cpu_s
            trial.add(index, result)
            if result.fate == "no_code" or (result.fate != "passed" and task.scoring == "all"):
                break
    return trial


def _one_stdio(
    task: CodeTask, index: int, shared: dict[str, int], lane: Lane, compare: str
) -> tuple[TestResult, LaneReport]:
    test = task.outputs[index]
    most = 16 * max(len(o) for o in test.outputs) + SPARE_BYTES
    stdin = test.input.encode("utf-8", "surrogatepass")
    ran = run_script(lane, shared, _limits(task, lane.kind), stdin, most + 1)
    if ran.ended:
        return replace(_of_end(ran.ended), detail=ran.stderr[-400:].strip()), ran.report
    if len(ran.stdout) > most:
        return TestResult("failed", "output_differs"), ran.report
    printed = ran.stdout.decode("utf-8", "replace")
    if any(same_output(o, printed, test.compare or compare, test.tolerance) for o in test.outputs):
        return PASSED, ran.report
    return TestResult("failed", "output_differs"), ran.report


def _run_calls(task: CodeTask, code: str, lane: Lane) -> Trial:
    calls: tuple[Any, ...] = task.calls or task.returned
    stop = task.scoring == "all"
    ends_early = stop and not any(call.raises for call in task.calls)
    payload = _payload(task, code, stop=ends_early)[:-1] + b', "calls": ' + task.inputs.encode() + b"}"
    with memory_files(payload=payload, results=None) as fds:
        # an assert program has one limit for all of it, calls have one each
        steps = 1 if task.calls else len(calls)
        watch = FirstFailure(calls, fds["results"], lane) if stop else None
        report = lane.run("calls", fds, _limits(task, lane.kind, steps), watch)
        # room for the honest answers and a good deal more
        most = SPARE_BYTES * min(16, task.count + 1) + 16 * task.expected_bytes
        lines = read_file(fds["results"], most).split(b"\n")
    ended = _ended(report)
    trial = Trial(cpu_s=report.cpu_s)
    of_test: dict[int, TestResult] = {}
    for i, call in enumerate(calls):
        test = call.test if task.calls else i
        if of_test.get(test, PASSED).fate == "passed":
            of_test[test] = _judge_line(call, lines[i] if i < len(lines) - 1 else None, ended)
        if of_test[test].fate == "no_code" or (stop and of_test[test].fate != "passed"):
            break
    for test, result in of_test.items():
        trial.add(test, result)
    return trial


class FirstFailure:
    """Looks at the results of a run while it goes on, and asks for its end as soon as one has decided."""

    def __init__(self, calls: tuple[Any, ...], results: int, lane: Lane) -> None:
        self.calls, self.results, self.lane = calls, results, lane
        self.at, self.judged, self.is_over = 0, 0, False

    def __call__(self) -> None:
        """Judge the lines that have come since the last look."""
        if self.is_over:
            return
        data = os.pread(self.results, LOOK_BYTES, self.at)
        data = data[: data.rfind(b"\n") + 1]
        self.at += len(data)
        for line in data.split(b"\n")[:-1]:
            if self.judged >= len(self.calls):
                return
            passed = _judge_line(self.calls[self.judged], line, None).fate == "passed"
            self.judged += 1
            if not passed:
                self.is_over = True
                with contextlib.suppress(LaneFailed):
                    self.lane.tell({"op": "stop"})
                return


def _judge_line(call: LiteralCall | Returned, line: bytes | None, ended: TestResult | None) -> TestResult:
    if line is None:
        return ended or TestResult("failed", "left_the_run")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return TestResult("failed", "false_message")
    try:
        if type(answer) is not dict or "v" not in answer:
            return _no_value(call, answer if type(answer) is dict else {})
        if not isinstance(call, LiteralCall):
            rule = CompareRule(exact=call.is_exact, tolerance=call.tolerance)
            passed = any(same(value, answer["v"], rule) for value in call.accepted)
        else:
            passed = not call.raises and all(holds(claim, answer["v"]) for claim in call.claims)
    except Undecided:
        return UNDECIDED
    except Exception:  # noqa: BLE001 - nothing that a run says may raise in the caller
        passed = False  # a value made to break the comparison is not the expected one
    return PASSED if passed else TestResult("failed", "value_differs")


def _no_value(call: LiteralCall | Returned, answer: dict[str, Any]) -> TestResult:
    """The call raised, or returned what is no plain value: of that only the truth is known, which `assert f(x)` asks for."""
    if isinstance(call, LiteralCall):
        if call.raises and "x" in answer:
            return _raised(call.raises, str(answer["x"]))
        if "o" in answer and not call.raises:
            said = [of_object(claim, answer.get("b")) for claim in call.claims]
            return PASSED if all(said) else TestResult("failed", "opaque", str(answer["o"])[:100])
    if "x" in answer:
        if answer["x"] == "MemoryError":
            return TestResult("limit", "memory")
        return TestResult("failed", "raised", str(answer["x"])[:100])
    return TestResult("failed", "opaque", str(answer.get("o"))[:100])


def _raised(expected: tuple[str, ...], name: str) -> TestResult:
    """Whether an exception of this name is one of the expected; what a class of the solution's derives from is not known."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return UNDECIDED
    if issubclass(kind, tuple(getattr(builtins, one) for one in expected)):
        return PASSED
    return TestResult("failed", "raised", name)


def _run_program(task: CodeTask, code: str, slot: LaneSlot, kind: str) -> Trial:
    """Solution and test program, each in a process of its own."""
    lane, tester = slot.lane(kind), slot.lane(kind, "tester")
    tests = {
        "tests": list(task.programs),
        "entry": task.entry,
        "before": task.before,
        "shared": task.shared,
        "stop": task.scoring == "all",
    }
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        memory_files(payload=_payload(task, code, shared=task.shared)) as fds,
        memory_files(tests=json.dumps(tests).encode()) as more,
    ):
        limits = _limits(task, kind)
        lane.start("served", {**fds, "rpc": theirs.fileno()}, limits)
        tester.ask({"op": "test", "cpu_s": task.timeout_s}, [more["tests"], ours.fileno()])
    answer: dict[str, Any] = {}
    try:
        answer = tester.receive(STRETCH * limits["wall_s"] + 2.0)
        tester.runs += 1
    except LaneSilent:
        tester.close()
        answer = {"late": True}
    except LaneFailed:
        tester.close()
        lane.close()
        raise
    if "crashed" in answer and answer["crashed"] not in CRASHES:
        lane.close()
        raise LaneFailed(f"the test process ended: {answer['crashed']}")
    if answer.get("recycle"):
        tester.close()
    with contextlib.suppress(LaneFailed):
        lane.tell({"op": "stop"})  # the tests are over, whatever the solution still does
    report = lane.finish(limits["wall_s"])
    return _program_trial(task, answer, report)


def _run_trusted(task: CodeTask, code: str, lane: Lane) -> Trial:
    """Solution and test program in one process: what it reports counts if it carries the number made for this run."""
    number = secrets.token_hex(16)
    more = {"tests": list(task.programs), "stop": task.scoring == "all", "number": number}
    with memory_files(payload=_payload(task, code, **more), results=None) as fds:
        report = lane.run("trusted", fds, _limits(task, lane.kind))
        said = read_file(fds["results"], SPARE_BYTES * 16)
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = {}
    is_ours = type(answer) is dict and answer.get("number") == number
    if not is_ours or not (answer.get("checks") or "broken" in answer or answer.get("ended") == "not_supported"):
        answer = {"ended": "left_the_run", "detail": "no report"}
    return _program_trial(task, answer, report)


def _program_trial(task: CodeTask, answer: dict[str, Any], report: LaneReport) -> Trial:
    how, detail = answer.get("ended"), answer.get("detail", "")
    if "broken" in answer:
        raise TestsBroken(answer["broken"])
    if how in ("not_supported", "untrusted_objects"):
        raise NotCarried(how, detail)
    if how == "lane_failed":
        raise LaneFailed(detail)
    trial, ended = Trial(cpu_s=report.cpu_s), _ended(report)
    if answer.get("late") or "crashed" in answer:
        trial.add(0, ended if ended and ended.fate == "limit" else TestResult("limit", "wall_time"))
        return trial
    for at, why in enumerate(answer.get("results", [])):
        bad = TestResult("failed", why if why == "missing_name" else "test_failed", why)
        trial.add(at, bad if why else PASSED)
    if how:
        bad = TestResult("limit", detail) if how == "limit" else TestResult("failed", how, detail)
        trial.add(min(len(trial.results), task.count - 1), ended if ended and how == "left_the_run" else bad)
    return trial
