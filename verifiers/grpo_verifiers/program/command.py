"""The verifier `command`: programs in other languages by a compile and a run command, judged by what they print.

Only in the sandbox tier `namespaces`: the landlock tier can allow neither exec nor scratch files.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_verifiers.program.compare import COMPARES, same_output
from grpo_verifiers.program.formats import mapped
from grpo_verifiers.program.hello import hello
from grpo_verifiers.program.task import Defaults, Output, compile_task
from grpo_verifiers.sandbox.inside import fences
from grpo_verifiers.sandbox.lanes import Lanes, LaneSlot
from grpo_verifiers.sandbox.programs import (
    PRODUCT_BYTES,
    TAIL,
    ProgramLimits,
    ProgramResult,
    need_programs,
    run_program,
)
from grpo_verifiers.sandbox.sandboxed import SandboxedVerifier
from grpo_verifiers.sandbox.tiers import Tier
from grpo_verifiers.thinking import answer_text
from grpo_verifiers.verdict import Outcome, Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Unavailable

MOST_SOURCE = 256 << 10
COMPILE_MB = 2048
DIED = "compiler_died"
NOT_STARTED = 127  # what a shell ends with for a program that it does not find; above are signals
SHORT_OF = re.compile(
    r"No space left|[Oo]ut of memory|annot allocate memory|memory exhausted|memory allocation of|OutOfMemory|out of resources|"
    r"\b[Kk]illed\b|temporarily unavailable"
)
"""What compilers print that lack room, and anything else that a program has them print."""
MODULE = re.compile(r"^(import\b[^(\n]*[\"']|export\b)", re.M)
"""What makes a JavaScript file a module, which Node up to 22.6 finds out by its folder alone."""
_proved = set[str]()
_proof = threading.Lock()


# What Node gives a program, without types: its own ones are a package of their own that is rarely installed.
NODE_TYPES = """
declare module "*";
declare var require: any, module: any, exports: any, process: any, console: any, Buffer: any, performance: any;
declare var setTimeout: any, clearTimeout: any, setInterval: any, clearInterval: any, setImmediate: any;
declare var queueMicrotask: any, structuredClone: any, TextEncoder: any, TextDecoder: any;
"""


@dataclass(frozen=True, slots=True)
class Language:
    """File name of the source, tags of its fences, command to compile (empty: none) and to run.

    `sysroot` prints the folder of a toolchain that lies outside the system's folders; it is shown where it holds the file
    `mark`, and so nothing of the user's. `beside` are files that lie beside the source.
    """

    source: str
    tags: tuple[str, ...]
    compile: tuple[str, ...]
    run: tuple[str, ...]
    sysroot: tuple[str, ...] = ()
    mark: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)


GO_PACKAGES = """
bufio bytes cmp container/heap container/list container/ring context crypto/md5 crypto/sha1 crypto/sha256 encoding/base64
encoding/binary encoding/hex encoding/json errors fmt hash/crc32 hash/fnv io iter log maps math math/big math/bits math/cmplx
math/rand math/rand/v2 os reflect regexp runtime runtime/debug slices sort strconv strings sync sync/atomic testing
text/tabwriter time unicode unicode/utf8
""".split()  # noqa: SIM905


def language(
    source: str, tags: str, compile: str, run: str, sysroot: str = "", mark: str = "", beside: Mapping[str, str] = {}
) -> Language:
    """A language whose tags and commands are written as texts, with blanks between their parts."""
    parts = [tuple(text.split()) for text in (tags, compile, run, sysroot)]
    return Language(source, parts[0], parts[1], parts[2], parts[3], mark, beside)


LANGUAGES = {
    "cpp": language("main.cpp", "cpp c++ cxx cc", "g++ -O2 -std=c++17 -o main main.cpp", "./main"),
    "c": language("main.c", "c", "gcc -O2 -o main main.c -lm", "./main"),
    "java": language(
        *("Main.java", "java", "javac -J-Xmx512m -J-XX:+UseSerialGC -d . Main.java"),
        "java -Xmx512m -Xss64m -XX:+UseSerialGC Main",
    ),
    "javascript": language("main.js", "javascript js node", "", "node main.js"),
    "typescript": language(
        *("main.ts", "typescript ts"),
        "tsc --target es2022 --lib es2022 --module commonjs --esModuleInterop --typeRoots . main.ts node.d.ts",
        "node main.js",
        beside={"node.d.ts": NODE_TYPES},
    ),
    "go": language("main.go", "go golang", "go build -o main main.go", "./main", "go env GOROOT", "pkg/tool"),
    # the linker that comes with newer compilers finds itself through /proc, which is not here
    "rust": language(
        *("main.rs", "rust rs", "rustc -O --edition 2021 -C link-arg=-fuse-ld=bfd -o main main.rs", "./main"),
        *("rustc --print sysroot", "lib/rustlib/multirust-channel-manifest.toml"),
    ),
    "bash": language("main.sh", "bash sh shell console zsh shell-session", "", "bash main.sh"),
}


@dataclass(frozen=True)
class CommandOptions:
    """Options of `command`."""

    language: str = "cpp"
    """bash | c | cpp | go | java | javascript | rust | typescript, or any name together with `run`."""
    compile: list[str] = field(default_factory=list)
    """Command that compiles the source; the files it makes are there when they are run. The preset's if empty."""
    run: list[str] = field(default_factory=list)
    """Command that runs what was compiled, or the source; the preset's if empty."""
    show: list[str] = field(default_factory=list)
    """Folders that these commands may read besides the system's, such as `/opt/node`; model code can read them too."""
    source: str = ""
    """Name of the source file; the preset's if empty."""
    hello: str = ""
    """A program that these commands must compile and run before any is judged; if empty, one of the language that prints `ok`."""
    scoring: str = "all"
    """all: every test must pass. fraction: the score is the share of tests passed."""
    timeout: float = 4.0
    """CPU seconds for a test; wall time may be three times that, six times on a busy machine."""
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
        self.language = replace(
            preset,
            source=options.source or preset.source,
            compile=tuple(options.compile) or preset.compile,
            run=tuple(options.run) or preset.run,
        )
        self.toolchain = ""
        self.around: tuple[str, ...] = ()
        if not self.language.run or not self.language.source:
            known = ", ".join(LANGUAGES)
            raise BadOption("language", f"`{options.language}` has no preset ({known}); give `source` and `run`")
        if options.compare not in COMPARES or options.scoring not in ("all", "fraction"):
            raise BadOption("compare", f"`compare` is one of {', '.join(COMPARES)}, `scoring` is all or fraction")

        self.shown = tuple(options.show)
        missing = [path for path in self.shown if not os.path.isabs(path) or not os.path.isdir(path)]
        if missing:
            raise BadOption("show", f"`show` takes full paths of folders; `{missing[0]}` is none")

    def compile(self, row: Mapping[str, Any]) -> tuple[Output, ...]:
        """The stdio tests of a row."""
        o = self.options
        if "tests" in row and (style := mapped(row).get("style") or "stdio") != "stdio":
            raise BadGold(f"the tests of this row are of the style {style}, and a program is judged by what it prints")
        return compile_task({**row, "style": "stdio"}, Defaults("stdio", o.scoring, o.timeout, o.mem_mb, None)).outputs

    def find_tier(self) -> Tier:
        """The tier `namespaces`, with the programs of the language there; a toolchain outside the system's folders is shown."""
        tier = need_programs(self._programs(), "the verifier `command`")
        asked = self.language.sysroot
        if asked and asked[0] in self._programs() and not self.toolchain:
            ran = subprocess.run(asked, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
            folder = ran.stdout.strip()
            if os.path.isabs(folder) and os.path.exists(os.path.join(folder, self.language.mark)):
                self.toolchain = folder
                self.shown = (*self.shown, folder)
                if asked[0] == "go":
                    self._compile_packages()
            self.shown = (*self.shown, os.path.realpath(self._found([asked[0]])[-1]))
        return tier

    def _compile_packages(self) -> None:
        """Compile Go's own packages once a machine, where they come as sources: each run would do it, for 10 seconds.

        Raises:
            Unavailable: they do not compile.
        """
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "grpo", "go")
        if glob.glob(f"{self.toolchain}/pkg/linux_*/fmt.a"):
            return
        environment = {**os.environ, "GOCACHE": cache, "GOROOT": self.toolchain, "GOTOOLCHAIN": "local"}
        there = [name for name in GO_PACKAGES if os.path.isdir(f"{self.toolchain}/src/{name}")]  # a new Go has more
        command = [*self._found(["go"]), "build", *there]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, umask=0o022)
        if ran.returncode:
            raise Unavailable("Go cannot compile its own packages", ran.stderr[-300:])
        self.shown = (*self.shown, cache)
        self.around = ("/usr/bin/env", f"GOROOT={self.toolchain}", f"GOCACHE={cache}")

    def _programs(self) -> list[str]:
        commands = [self.language.compile, self.language.run]
        return [argv[0] for argv in commands if argv and not argv[0].startswith("./")]

    def _found(self, argv: Sequence[str]) -> list[str]:
        """The command with the full path of its program; one made by compiling stays as it is."""
        if argv[0].startswith("./"):
            return list(argv)
        path = os.path.join(self.toolchain, "bin") if self.toolchain else None
        return [*self.around, shutil.which(argv[0], path=path) or shutil.which(argv[0]) or argv[0], *argv[1:]]

    def prove(self, lanes: Lanes) -> None:
        """Put a program that prints `ok` through the same commands and limits, once a process.

        Raises:
            Unavailable: it does not compile or run, so no completion could.
        """
        key = repr(self.options)
        with _proof:
            if key not in _proved and (trouble := self._trouble(lanes)):
                raise Unavailable(
                    f"the verifier `command` cannot run `{self.options.language}` in the sandbox: {trouble}",
                    "`compile`, `run`, `timeout`, `compile_timeout` and `mem_mb` must do for a program that prints "
                    "`ok`; `hello` is another such program, `show` the folder of a toolchain outside /usr",
                )
            _proved.add(key)

    def _trouble(self, lanes: Lanes) -> str:
        """Why a program that is known to be good cannot be judged; empty where it can, or none is known."""
        source = self.options.hello or hello(self.language.source)
        if source is None:
            return self._silent_program(lanes)
        tests = self.compile({"tests": [{"input": "", "output": "ok\n"}]})
        for _ in range(2):  # a busy machine may fail it once
            got = self.in_a_slot(lanes, lambda slot: self._run(slot, source, tests, 0.0), 0.0)
            if got.outcome is Outcome.RIGHT or got.reason == "output_differs":
                return ""
        return f"a program that prints `ok` ended with `{got.reason}`{': ' * bool(got.detail)}{got.detail}"

    def _silent_program(self, lanes: Lanes) -> str:
        """A program that says its version on this machine and cannot in the sandbox, in words."""
        for name in self._programs():
            argv = [*self._found([name]), "--version"]
            with lanes.slot() as slot:
                ran = run_program(slot.lane("programs", "command"), argv, {}, ProgramLimits(10.0, COMPILE_MB))
            if (ran.report.killed or ran.report.exit_code != 0) and _runs_here(argv):
                return f"`{name} --version` works outside and not in it: {ran.stderr[-300:].strip()}"
        return ""

    def judge_one(self, lanes: Lanes, sample: Sample) -> Verdict:
        """The verdict on one program."""
        started = time.perf_counter()
        source = source_of(sample.turn, self.language.tags)
        if source is None:
            return no_answer("no_code")
        if len(source) > MOST_SOURCE:
            return over_limit("source_size")
        verdict = self.in_a_slot(lanes, lambda slot: self._run(slot, source, sample.gold, started), started)
        if verdict.reason not in (DIED, "compile_memory"):
            return verdict
        # the machine's doing where a good program fails as well; else it may have lacked room for a moment
        if trouble := self._trouble(lanes):
            return error("compiler", trouble, time.perf_counter() - started)
        return self.in_a_slot(lanes, lambda slot: self._run(slot, source, sample.gold, started), started)

    def _run(self, slot: LaneSlot, source: str, tests: tuple[Output, ...], started: float) -> Verdict:
        o = self.options
        files = {self.language.source: source, **self.language.beside}
        if self.language.source == "main.js" and MODULE.search(source) and "require(" not in source:
            files["package.json"] = '{"type": "module"}'
        products: Mapping[str, bytes] = {}
        if self.language.compile:
            made = run_program(
                slot.lane("programs", "command"),
                self._found(self.language.compile),
                files,
                ProgramLimits(o.compile_timeout, COMPILE_MB, PRODUCT_BYTES),
                keep=True,
            )
            seconds = time.perf_counter() - started
            if made.report.killed or made.is_over_memory:
                return over_limit("compile_memory" if made.is_over_memory else "compile_time", source, seconds)
            if (code := made.report.exit_code) != 0:
                said = made.stderr or made.stdout[-TAIL:].decode("utf-8", "replace")
                has_died = not 0 < code < NOT_STARTED or SHORT_OF.search(said)
                return wrong(source, DIED if has_died else "does_not_compile", seconds, 0.0, said[-400:])
            products = made.products
        passed, bad, printed = 0, "", ""
        for test in tests:
            stdin = test.input.encode("utf-8", "surrogatepass")
            ran = run_program(
                slot.lane("programs", "command"),
                self._found(self.language.run),
                files,
                ProgramLimits(o.timeout, o.mem_mb, reserved=3),
                stdin,
                products=products,
            )
            why = _failure(ran, test, test.compare or o.compare)
            passed += not why
            if why and not bad:
                bad, printed = why, ran.stderr[-400:]
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
            else wrong(source, bad, seconds, 0.0, printed)
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


def _runs_here(argv: Sequence[str]) -> bool:
    """Whether a program ends with 0 outside of the sandbox."""
    try:
        return subprocess.run(argv, capture_output=True, timeout=30, stdin=subprocess.DEVNULL).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def source_of(completion: str, tags: Sequence[str]) -> str | None:
    """The last block of the language, else the last untagged one, else the text itself if it has no blocks."""
    text = answer_text(completion)
    found = fences.blocks(text)
    if not found:
        return text if text.strip() else None
    wanted = [b.text for b in found if b.tag in tags] or [b.text for b in found if not b.tag]
    return wanted[-1] if wanted else None
