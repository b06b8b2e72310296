"""The verifier `command`: programs in other languages by a compile and a run command, judged by what they print.

Only in the sandbox tier `namespaces`: the landlock tier can allow neither exec nor scratch files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_verifiers.program.compare import COMPARES, same_output
from grpo_verifiers.program.task import Defaults, Output, compile_task
from grpo_verifiers.sandbox.inside import fences
from grpo_verifiers.sandbox.lanes import Lanes, LaneSlot
from grpo_verifiers.sandbox.programs import ProgramLimits, ProgramResult, need_programs, run_program
from grpo_verifiers.sandbox.sandboxed import SandboxedVerifier
from grpo_verifiers.sandbox.tiers import Tier
from grpo_verifiers.thinking import answer_text
from grpo_verifiers.verdict import Verdict, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadOption, Sample

PRODUCT = "main"
MOST_SOURCE = 256 << 10


@dataclass(frozen=True, slots=True)
class Language:
    """File name of the source, tags of its fences, command to compile (empty: none) and to run."""

    source: str
    tags: tuple[str, ...]
    compile: tuple[str, ...]
    run: tuple[str, ...]


LANGUAGES = {
    "cpp": Language(
        "main.cpp",
        ("cpp", "c++", "cxx", "cc"),
        ("g++", "-O2", "-std=c++17", "-o", PRODUCT, "main.cpp"),
        ("./main",),
    ),
    "c": Language("main.c", ("c",), ("gcc", "-O2", "-o", PRODUCT, "main.c", "-lm"), ("./main",)),
    "javascript": Language("main.js", ("javascript", "js", "node"), (), ("node", "main.js")),
    "bash": Language(
        "main.sh", ("bash", "sh", "shell", "console", "zsh", "shell-session"), (), ("bash", "main.sh")
    ),
}


@dataclass(frozen=True)
class CommandOptions:
    """Options of `command`."""

    language: str = "cpp"
    """cpp | c | javascript | bash, or any name together with `run`."""
    compile: list[str] = field(default_factory=list)
    """Command that makes the file `main` of the source; the preset's if empty."""
    run: list[str] = field(default_factory=list)
    """Command that runs it; the preset's if empty."""
    source: str = ""
    """Name of the source file; the preset's if empty."""
    scoring: str = "all"
    """all: every test must pass. fraction: the score is the share of tests passed."""
    timeout: float = 4.0
    """CPU seconds for a test."""
    compile_timeout: float = 20.0
    """CPU seconds for compiling; more is the completion's fault."""
    mem_mb: int = 1024
    """Memory of a run: private for each process, private and shared for all of them together."""
    compare: str = "lenient"
    """Printed output: lenient, tokens or strict, as of the verifier `code`."""
    lanes: int = 0
    """Runs at the same time; 0: cores less GPUs."""


class CommandVerifier(SandboxedVerifier):
    """Compiles the program of a completion once and runs it on each test of its row (`input`, `output`)."""

    Options = CommandOptions
    columns = ()

    def __init__(self, options: CommandOptions) -> None:
        super().__init__(options)
        preset = LANGUAGES.get(options.language, Language("", (options.language,), (), ()))
        self.language = Language(
            options.source or preset.source,
            preset.tags,
            tuple(options.compile) or preset.compile,
            tuple(options.run) or preset.run,
        )
        if not self.language.run or not self.language.source:
            known = ", ".join(LANGUAGES)
            raise BadOption(
                "language", f"`{options.language}` has no preset ({known}); give `source` and `run`"
            )
        if options.compare not in COMPARES or options.scoring not in ("all", "fraction"):
            raise BadOption(
                "compare", f"`compare` is one of {', '.join(COMPARES)}, `scoring` is all or fraction"
            )

    def compile(self, row: Mapping[str, Any]) -> tuple[Output, ...]:
        """The stdio tests of a row."""
        o = self.options
        return compile_task(
            {**row, "style": "stdio"}, Defaults("stdio", o.scoring, o.timeout, o.mem_mb, None)
        ).outputs

    def find_tier(self) -> Tier:
        """The tier `namespaces`, with the programs of the language there."""
        commands = [self.language.compile, self.language.run]
        names = [argv[0] for argv in commands if argv and not argv[0].startswith("./")]
        return need_programs(names, "the verifier `command`")

    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one program."""
        started = time.perf_counter()
        source = source_of(sample.turn, self.language.tags)
        if source is None:
            return no_answer("no_code")
        if len(source) > MOST_SOURCE:
            return over_limit("source_size")
        return self.in_a_slot(lanes, lambda slot: self._run(slot, source, sample.gold, started), started)

    def _run(self, slot: LaneSlot, source: str, tests: tuple[Output, ...], started: float) -> Verdict:
        o = self.options
        files: dict[str, str] = {self.language.source: source}
        products: dict[str, bytes] = {}
        if self.language.compile:
            made = run_program(
                slot.lane("programs", "command"),
                _found(self.language.compile),
                files,
                ProgramLimits(o.compile_timeout, 2048),
                keep=PRODUCT,
            )
            seconds = time.perf_counter() - started
            if made.report.killed or made.is_over_memory:
                return over_limit(
                    "compile_memory" if made.is_over_memory else "compile_time", source, seconds
                )
            if made.report.exit_code != 0:
                return wrong(source, "does_not_compile", seconds, 0.0, made.stderr[-400:])
            files, products = {}, {PRODUCT: made.product}
        passed, bad = 0, ""
        for test in tests:
            stdin = test.input.encode("utf-8", "surrogatepass")
            ran = run_program(
                slot.lane("programs", "command"),
                _found(self.language.run),
                files,
                ProgramLimits(o.timeout, o.mem_mb),
                stdin,
                None,
                products,
            )
            why = _failure(ran, test, test.compare or o.compare)
            passed += not why
            bad = bad or why
            if why and o.scoring == "all":
                break
        seconds = time.perf_counter() - started
        if not bad:
            return right(source, f"passed:{passed}", seconds)
        if o.scoring == "fraction" and passed:
            return wrong(source, f"passed:{passed}/{len(tests)}", seconds, passed / len(tests), bad)
        return (
            over_limit(bad, source, seconds)
            if bad in ("time", "output", "memory")
            else wrong(source, bad, seconds)
        )


def _failure(ran: ProgramResult, test: Output, how: str) -> str:
    if ran.is_over_memory:
        return "memory"
    if ran.report.killed:
        return "time"
    if ran.is_cut:
        return "output"
    if ran.report.exit_code != 0:
        return f"exit:{ran.report.exit_code}"
    printed = ran.stdout.decode("utf-8", "replace")
    return "" if any(same_output(o, printed, how, test.tolerance) for o in test.outputs) else "output_differs"


def _found(argv: Sequence[str]) -> list[str]:
    """The command with the full path of its program; one made by compiling stays as it is."""
    return [argv[0] if argv[0].startswith("./") else shutil.which(argv[0]) or argv[0], *argv[1:]]


def source_of(completion: str, tags: Sequence[str]) -> str | None:
    """The last block of the language, else the last untagged one, else the text itself if it has no blocks."""
    text = answer_text(completion)
    found = fences.blocks(text)
    if not found:
        return text if text.strip() else None
    wanted = [b.text for b in found if b.tag in tags] or [b.text for b in found if not b.tag]
    return wanted[-1] if wanted else None
