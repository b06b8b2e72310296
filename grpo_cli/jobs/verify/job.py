"""One run of `grpo verify`: the input through the flow, lines out, progress and mistakes on stderr, and the exit code.

`VerifyJob` finds the keys of each file at its first line with a completion, scores all lines (flow.py), counts groups as they
pass (tally.py) and sums up (summary.py). If no verifier is named, `proposal` reads the golds and proposes one; it never
chooses.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO

from grpo_cli.errors import DataError, Exit, Mistake, SetupError, UsageError, UserError, why_unwritten
from grpo_cli.findings.samples import untrusted_warning
from grpo_cli.jobs.verify.fields import BadLine, FieldNames, WantedKeys, find_keys, row_of
from grpo_cli.jobs.verify.flow import score_all
from grpo_cli.jobs.verify.formats import GoldRows, read_lines
from grpo_cli.jobs.verify.scorer import parse
from grpo_cli.jobs.verify.summary import VerifyReport
from grpo_cli.jobs.verify.tally import Order, Tally
from grpo_cli.lines import NumberedLine
from grpo_cli.recipe.sections.rewards import KINDS
from grpo_cli.reward.errors import FailureLines
from grpo_cli.reward.judge import proxy_warnings
from grpo_cli.reward.plan import ScoringPlan
from grpo_cli.text import Json, raw, strict_json, visible
from grpo_verifiers.combine import cancelling
from grpo_verifiers.processes.pool import allowed_cores
from grpo_verifiers.text import accepted
from grpo_verifiers.verdict import Outcome
from grpo_verifiers.verifier import Verifier

MOST_SHOWN = 10
MOST_HOPELESS = 1000
BEAT_S = 0.2


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """The command line's options except those of verifiers."""

    files: Sequence[str]
    wanted: WantedKeys = field(default_factory=WantedKeys)
    order: Order = "auto"
    out: str | None = None
    as_json: bool = False
    stream: bool = False
    fail_under: float | None = None
    jobs: int | None = None
    quiet: bool = False
    note: str = ""
    rows: str | None = None
    explains: bool = False


def run(plan: ScoringPlan, settings: VerifySettings) -> int:
    """Score the input and return the exit code; a closed pipe ends it silently.

    Raises:
        UserError: nothing could be scored at all.
    """
    if settings.files.count("-") > 1:
        raise UsageError("stdin is named twice")
    try:
        with ExitStack() as stack:
            job = VerifyJob(plan, settings, _sink(settings, stack))
            return job.run()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)


class VerifyJob:
    """State of one run."""

    def __init__(self, plan: ScoringPlan, settings: VerifySettings, sink: IO[bytes] | None) -> None:
        self._plan = plan
        self._settings = settings
        self._sink = sink
        self._tally = Tally(settings.order)
        self._report = VerifyReport(
            plan.primary, {name: entry.kind for name, entry in plan.entries.items()}, "", self._tally.totals
        )
        self._report.is_gated = plan.is_gated
        writes_lines = not settings.as_json and settings.out is None
        self._progress = _Progress(settings.quiet, writes_lines)
        self._rows = None if settings.rows is None else GoldRows(settings.rows)
        self._lines = FailureLines(None if settings.quiet else self._warn)
        self._began = time.monotonic()

    def run(self) -> int:
        """Score all lines, then sum up."""
        is_interrupted = False
        verifiers = self._plan.start()
        try:
            for source in self._settings.files:
                self._score(source, verifiers)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            self._progress.clear()
            for verifier in verifiers.values():
                verifier.close()
        self._finish()
        if is_interrupted:
            _say(f"interrupted after {self._report.lines:,} lines")
            return int(Exit.INTERRUPTED)
        report, bar = self._report, self._settings.fail_under
        code = Exit.OK
        if bar is not None and (report.mean_score is None or report.mean_score < bar):
            shown = "—" if report.mean_score is None else f"{report.mean_score:.4f}"
            _say(f"mean score {shown} is below {bar:g}")
            code = Exit.BAR_MISSED
        if report.bad_lines:
            code = Exit.DATA
        if report.samples and report.totals.outcomes[Outcome.ERROR.value] == report.samples:
            _say("error: no sample got a verdict")
            code = Exit.TRAINING
        return int(code)

    def _score(self, source: str, verifiers: Mapping[str, Verifier]) -> None:
        name = "<stdin>" if source == "-" else source
        lines = read_lines(source, self._settings.stream)
        if self._rows is not None:
            lines = map(self._rows.under, lines)
        seen, keys = self._find_keys(lines, name)
        if keys is None:
            return
        self._report.grouping = keys.grouping()
        if source == self._settings.files[0] and not self._settings.quiet:
            _say("; ".join(note for note in (self._settings.note, keys.described()) if note))
        jobs, stream, explains = self._settings.jobs or allowed_cores(), self._settings.stream, self._settings.explains
        flow = score_all(chain(seen, lines), self._plan, keys, verifiers, jobs=jobs, stream=stream, explains=explains)
        for scored in flow:
            self._report.lines += len(scored.out)
            self._report.counts.merge(scored.counts, name)
            self._lines.see(self._report.counts.failures)
            for group, outcome, reward, told in scored.samples:
                self._tally.add(group, outcome, reward, told)
            problems = iter(scored.problems)
            for line in scored.out:
                if line is not None:
                    self._write(line)
                else:
                    self._bad(*next(problems), name)
            if self._settings.stream and self._sink is not None:
                self._sink.flush()
            self._progress.beat(self._report.lines)

    def _find_keys(self, lines: Iterator[NumberedLine], name: str) -> tuple[list[NumberedLine], FieldNames | None]:
        """Find the first line with a completion among the first thousand; the lines read are kept.

        Raises:
            DataError: there is none, with the reason for each line (a stream answers each line instead).
        """
        seen: list[NumberedLine] = []
        mistakes: list[Mistake] = []
        is_stream = self._settings.stream
        for line in lines:
            try:
                return [*seen, line], find_keys(parse(line), self._settings.wanted)
            except BadLine as err:
                mistakes.append(Mistake(f"{name}:{line.number}", str(err)))
            if is_stream:
                self._report.lines += 1
                self._bad(line.number, mistakes.pop().message, name)
                continue
            seen.append(line)
            if len(seen) >= MOST_HOPELESS:
                break
        if is_stream:
            return [], None
        raise DataError(mistakes) if mistakes else DataError("is empty", place=name)

    def _warn(self, text: str, hint: str) -> None:
        self._progress.clear()
        _say(f"warning: {visible(text)}\nhint: {hint}")

    def _write(self, line: bytes) -> None:
        if self._sink is not None:
            self._sink.write(line + b"\n")

    def _bad(self, number: int, why: str, name: str) -> None:
        self._report.bad_lines += 1
        if self._settings.stream:  # a client that sends line by line waits for an answer to this line too
            self._write(json.dumps({"line": number, "error": why}).encode())
            if self._sink is not None:
                self._sink.flush()
        if self._report.bad_lines <= MOST_SHOWN:
            self._progress.clear()
            _say(f"error: {name}:{number}: {why}")
        elif self._report.bad_lines == MOST_SHOWN + 1:
            _say("… further bad lines are only counted")

    def _finish(self) -> None:
        report = self._report
        report.totals = self._tally.finish()
        report.is_scattered, report.is_inexact = self._tally.is_scattered, self._tally.is_inexact
        out = [*proxy_warnings(self._plan.entries), *cancelling(report.counts.pairs, self._plan.terms)]
        outcomes, n = report.totals.outcomes, report.samples
        if n and outcomes[Outcome.NO_ANSWER.value] > 0.5 * n:
            (mark, times), *_ = [*report.counts.marks.most_common(1), ("A:", 0)]
            often = (
                f"; {times:,} of them end in a line that begins with `{mark}`"
                if 2 * times > outcomes[Outcome.NO_ANSWER.value]
                else ""
            )
            out.append(
                "more than half of the completions state no answer: does the prompt ask for the form that is looked for? "
                f'`math` and `numeric` read a line of its own by `mark: "{mark}"`{often}'
            )
        if report.counts.failures.failed:
            out.append(report.counts.failures.text())
        counted = [item for one in report.counts.reasons.values() for item in one.items()]
        if (untrusted := untrusted_warning(counted)) is not None:
            out.append(untrusted)
        report.warnings = out
        report.seconds = time.monotonic() - self._began
        if self._sink is not None:
            self._sink.flush()
        if not self._settings.quiet:
            _say(report.text())
        if self._settings.as_json:
            print(strict_json(report.as_json()), flush=True)


def _sink(settings: VerifySettings, stack: ExitStack) -> IO[bytes] | None:
    """Where scored lines go: `--out`, else stdout unless that holds the summary object."""
    if settings.out is None or settings.out == "-":
        return None if settings.as_json else sys.stdout.buffer
    path = Path(settings.out)
    if any(file != "-" and Path(file).exists() and path.exists() and path.samefile(file) for file in settings.files):
        raise UsageError(f"`--out {settings.out}` is the input itself")
    try:
        if path.suffix == ".gz":
            import gzip

            return stack.enter_context(gzip.open(path, "wb"))  # type: ignore[return-value]
        return stack.enter_context(path.open("wb"))
    except OSError as err:
        raise SetupError(f"cannot be written: {why_unwritten(err)}", place=settings.out) from err


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Progress:
    """A line count on a terminal, nothing elsewhere."""

    def __init__(self, is_quiet: bool, writes_lines: bool) -> None:
        is_taken = writes_lines and sys.stdout.isatty()  # on one terminal, output lines and the count would mix
        self._is_live = not is_quiet and sys.stderr.isatty() and not is_taken
        self._last = self._began = time.monotonic()
        self._is_shown = False

    def beat(self, lines: int) -> None:
        """Show the count, at most five times a second."""
        now = time.monotonic()
        if not self._is_live or now - self._last < BEAT_S:
            return
        self._last, self._is_shown = now, True
        raw(sys.stderr).write(f"\r  {lines:,} lines   {lines / (now - self._began):,.0f} lines/s\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the count away."""
        if self._is_shown:
            raw(sys.stderr).write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False


LOOKED_AT = 50
_MATHS = re.compile(r"[-+]?[\d.,/%\s]+|.*[\\^_=].*|.*####.*", re.S)
_TESTS = ("tests", "test", "test_list", "test_cases", "unit_tests", "input_output")


def proposal(source: str, rows: str | None) -> str:
    """The hint of a command without a verifier; stdin is not read for it."""
    known = f"say `--math`, `--regex PATTERN`, `--recipe FILE` or `--verifier KIND` (known: {', '.join(sorted(KINDS))})"
    if source == "-":
        return known
    try:
        under = GoldRows(rows).under if rows else None
        found: list[Mapping[str, Json]] = []
        for line in islice(read_lines(source), LOOKED_AT):
            try:
                value = parse(under(line) if under else line)
                found.append(row_of(value, find_keys(value, WantedKeys())))
            except BadLine:
                continue
        flag, why = _flag(found)
    except UserError:
        return known
    return f"{why}: `grpo verify {source} {flag}`; or {known}" if flag else known


def _flag(rows: list[Mapping[str, Json]]) -> tuple[str, str]:
    if rows and all(any(row.get(name) for name in _TESTS) for row in rows):
        return "--code", "the rows have tests"
    golds = [text for row in rows for text in accepted(row.get("answer")) if text is not None]
    if not golds:
        return "", ""
    texts = [str(gold).strip() for gold in golds]
    if all(re.fullmatch(r"\(?[A-J]\)?\.?", text) for text in texts):
        return "--verifier choice", "the golds are letters"
    if all(_MATHS.fullmatch(text) for text in texts):
        return "--math", "the golds look like numbers and formulas"
    if all(isinstance(gold, dict) or _is_object(gold) for gold in golds):
        return "--verifier json", "the golds are JSON"
    return "--verifier exact", "the golds are texts"


def _is_object(gold: object) -> bool:
    if not isinstance(gold, str) or not gold.strip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(gold), dict)
    except (ValueError, RecursionError):
        return False
