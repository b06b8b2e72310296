"""The verifier `command`: other languages, in the namespaces tier only."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadOption, Unavailable, Verdict, build
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lanes import Lanes
from grpo_verifiers.sandbox.programs import ProgramLimits, run_program

TESTS = {"tests": [{"input": "4\n", "output": "8\n"}, {"input": "5\n", "output": "10\n"}]}
CPP = "```cpp\n#include <iostream>\nint main() { int a; std::cin >> a; std::cout << a * 2 << '\\n'; }\n```"


def judged(language: str, code: str, row: dict[str, Any] = TESTS, **options: Any) -> Verdict:
    verifier = build("command", language=language, lanes=1, **options)
    try:
        return verifier.verify(code, row)
    finally:
        verifier.close()


needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@needs_cpp
def test_cpp_is_compiled_and_run() -> None:
    assert judged("cpp", CPP).outcome == "right"
    assert judged("cpp", CPP.replace("* 2", "* 3")).reason == "output_differs"
    assert judged("cpp", "int main() { return").reason == "does_not_compile"
    assert judged("cpp", "int main() { for (;;); }", timeout=0.5).reason == "time"


@needs_cpp
@pytest.mark.parametrize("flags", ["MAP_SHARED", "MAP_PRIVATE"])
def test_memory_counts_over_all_processes_and_when_it_is_shared(flags: str) -> None:
    code = f"""```cpp
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
int main() {{
  for (int i = 0; i < 4; i++) if (!fork()) {{
    size_t n = 120ul << 20;
    char *p = (char *)mmap(0, n, PROT_READ | PROT_WRITE, {flags} | MAP_ANONYMOUS, -1, 0);
    for (size_t k = 0; k < n; k += 4096) p[k] = 1;
    sleep(1);
    _exit(0);
  }}
  while (wait(0) > 0);
  int a; scanf("%d", &a); printf("%d\\n", a * 2);
}}
```"""
    verdict = judged("cpp", code, mem_mb=256)
    assert verdict.reason == "memory", verdict
    assert judged("cpp", code, mem_mb=1024).outcome == "right"


@needs_node
def test_javascript_is_run() -> None:
    code = "const x = require('fs').readFileSync(0, 'utf8'); console.log(parseInt(x) * 2)"
    assert judged("javascript", code).outcome == "right"
    module = "import fs from 'fs';\nconsole.log(parseInt(fs.readFileSync(0, 'utf8')) * 2)"
    assert judged("javascript", module).outcome == "right"
    assert judged("javascript", f"{code}\n/*\nimport fs from 'fs'\n*/").outcome == "right"
    assert judged("javascript", "require('net').connect(47613, '127.0.0.1')").outcome == "wrong"


@pytest.mark.parametrize(
    "code",
    [
        "if [ -e mark ]; then echo seen; else touch mark; echo first; fi",  # tests must not see each other
        "cat /etc/passwd || cat /root/.bashrc || ls /proc/1 || echo 8",
        "(sleep 30; echo 8) & echo 8; exec 0<&-; wait",
        ":(){ :|:& };:",
        "kill -9 1; kill -9 -1; echo 8",
    ],
)
def test_bash_cannot_get_reward_without_solving(code: str) -> None:
    verdict = judged("bash", code, timeout=1.0)
    assert verdict.score == 0.0, verdict


def test_bash_can_solve() -> None:
    assert judged("bash", "```bash\nread x; echo $((x * 2))\n```").outcome == "right"


def test_it_is_refused_without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_found", {"namespaces": "refused here"})
    with pytest.raises(Unavailable, match="namespaces"):
        build("command", language="bash").start()


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Unavailable, match="no-such-program"):
        build("command", language="x", source="main.x", run=["no-such-program"]).start()


def test_a_language_without_preset_needs_its_commands() -> None:
    with pytest.raises(BadOption, match="no preset"):
        build("command", language="cobol")


needs_java = pytest.mark.skipif(shutil.which("javac") is None, reason="javac is not installed")
JAVA = """```java
import java.util.*;
public class Main {
  record Twice(int of) { int value() { return of * 2; } }
  static int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1); }
  public static void main(String[] args) {
    int a = new Scanner(System.in).nextInt();
    Runnable print = () -> System.out.println(new Twice(a).value() + depth(9000) - 9000);
    print.run();
  }
}
```"""


@needs_java
def test_java_is_compiled_and_run_with_all_the_classes_it_makes() -> None:
    assert judged("java", JAVA).outcome == "right"
    assert judged("java", JAVA.replace("of * 2", "of * 3")).reason == "output_differs"
    assert judged("java", JAVA.replace("of * 2", "off * 2")).reason == "does_not_compile"


@needs_java
def test_java_by_commands_of_ones_own_needs_no_file_called_main() -> None:
    options: dict[str, Any] = {
        "source": "Main.java",
        "compile": ["javac", "-d", ".", "Main.java"],
        "run": ["java", "-Xmx256m", "-XX:+UseSerialGC", "Main"],
        "mem_mb": 4096,
    }
    assert judged("other", JAVA.replace("```java", "```other"), **options).outcome == "right"


@needs_java
def test_commands_that_want_more_than_a_plain_program_take_a_trial_of_ones_own() -> None:
    options: dict[str, Any] = {"run": ["java", "-Xmx256m", "there.Main"]}
    verifier = build("command", language="java", lanes=1, **options)
    with pytest.raises(Unavailable, match=r"there\.Main"):
        verifier.start()
    verifier.close()
    hello = 'package there;\npublic class Main { public static void main(String[] a) { System.out.println("ok"); } }'
    code = JAVA.replace("import java.util.*;", "package there;\nimport java.util.*;")
    assert judged("java", code, hello=hello, **options).outcome == "right"


@needs_java
def test_threads_may_reserve_their_stacks() -> None:
    body = (
        "int a = new Scanner(System.in).nextInt(); var pool = java.util.concurrent.Executors.newFixedThreadPool(12); "
        "var all = new ArrayList<java.util.concurrent.Future<Integer>>(); var gate = new java.util.concurrent.CyclicBarrier(12); "
        "for (int i = 0; i < 12; i++) all.add(pool.submit(() -> { gate.await(); return a; })); "
        "int sum = 0; for (var one : all) sum += one.get(); pool.shutdown(); System.out.println(sum / 6);"
    )
    code = f"```java\nimport java.util.*;\npublic class Main {{ public static void main(String[] x) throws Exception {{ {body} }} }}\n```"
    assert judged("java", code).outcome == "right"


PROGRAMS = {
    "go": 'package main\nimport ("bufio"; "fmt"; "os")\nfunc main() {\n\tvar a int\n\tfmt.Fscan(bufio.NewReader(os.Stdin), &a)\n\tfmt.Println(a * 2)\n}',
    "rust": "fn main() {\n    let mut s = String::new();\n    std::io::stdin().read_line(&mut s).unwrap();\n"
    '    let a: u32 = s.trim().parse().unwrap();\n    println!("{}", a * 2);\n}',
    "typescript": "import * as readline from 'readline';\nconst lines = readline.createInterface({ input: process.stdin });\n"
    "const twice = (a: number): number => a * 2;\nlines.on('line', (line: string) => console.log(twice(Number(line))));",
}
COMPILERS = {"go": "go", "rust": "rustc", "typescript": "tsc"}


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_language_is_compiled_where_its_compiler_is_installed(language: str) -> None:
    if shutil.which(COMPILERS[language]) is None:
        pytest.skip(f"{COMPILERS[language]} is not installed")
    code = PROGRAMS[language]
    verifier = build("command", language=language, lanes=1)
    try:
        assert verifier.verify(f"```{language}\n{code}\n```", TESTS).outcome == "right"
        assert verifier.verify(code.replace("a * 2", "a * 3"), TESTS).reason == "output_differs"
        assert verifier.verify(code.replace("a * 2", "b * 2"), TESTS).reason == "does_not_compile"
    finally:
        verifier.close()


@pytest.mark.parametrize("language", COMPILERS)
def test_a_compiler_that_is_missing_is_named(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=COMPILERS[language]):
        build("command", language=language).start()


LOOPS = {
    "loops": "for (;;) n++;",
    "sleeps": "for (;;) pause();",
    "ignores signals": "for (int i = 1; i < 65; i++) signal(i, SIG_IGN); for (;;) n++;",
    "forks": "for (int i = 1; i < 65; i++) signal(i, SIG_IGN); for (;;) fork();",
    "leaves a daemon": "if (!fork()) { setsid(); for (;;) n++; } for (;;) pause();",
    "writes": 'signal(SIGXFSZ, SIG_IGN); for (;;) puts("without end");',
    "writes errors": 'for (;;) fputs("without end", stderr);',
    "stops": "raise(SIGSTOP); for (;;) n++;",
}


@needs_cpp
def test_what_never_ends_is_ended_by_the_clock_on_a_busy_machine_too() -> None:
    verifier = build("command", language="cpp", lanes=1, timeout=0.5)
    head = "#include <csignal>\n#include <cstdio>\n#include <unistd.h>\nvolatile int n;\nint main() {"
    try:
        verifier.start()
        for body in LOOPS.values():
            made = verifier.verify(f'{head} puts("8"); fflush(stdout); return 0; {body} }}', TESTS)
            started = time.monotonic()
            verdict = verifier.verify(f"{head} {body} }}", TESTS)
            took = time.monotonic() - started - made.seconds  # of it the compiler's
            assert verdict.score == 0.0 and verdict.outcome == "over_limit", (body, verdict)
            assert took < 6 * 0.5 + 2.0 + made.seconds, (body, took)
    finally:
        verifier.close()


def tool(folder: Path, text: str, name: str = "tool") -> str:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    folder.chmod(0o755)
    return str(path)


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder that can be shown in the sandbox: a user of its own can read it, and nothing is mounted over it."""
    with tempfile.TemporaryDirectory(dir="/opt" if os.access("/opt", os.W_OK) else Path.cwd()) as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 127", "compiler_died"),
        ("echo 'error while loading shared libraries: libjli.so' >&2; exit 1", "libjli.so"),
        ("kill -SEGV $$", "compiler_died"),
        ("sleep 60", "compile_time"),
        ("exit 0", "exit:127"),
        ("echo 'error: linker `cc` not found' >&2; exit 1", "linker `cc` not found"),
        ("printf '#!/nowhere/interpreter' > main; chmod +x main", "exit:127"),
    ],
    ids=["not started", "library", "signal", "hangs", "makes nothing", "linker", "interpreter"],
)
def test_a_compiler_that_makes_nothing_of_a_good_program_is_no_verdict(text: str, says: str, shown: Path) -> None:
    options = {"source": "main.c", "compile": [tool(shown, text), "main.c"], "run": ["./main"]}
    verifier = build("command", language="broken", lanes=1, compile_timeout=0.5, show=[str(shown)], **options)
    for _ in range(2):
        with pytest.raises(Unavailable, match=says):
            verifier.verify("```broken\nint main() { return 0; }\n```", TESTS)
    verifier.close()


def test_a_program_that_is_not_shown_is_no_verdict(shown: Path) -> None:
    path = tool(shown, 'exec /bin/bash "$@"')
    options: dict[str, Any] = {"source": "main.sh", "run": [path, "main.sh"]}
    hidden = build("command", language="mine", lanes=1, **options)
    with pytest.raises(Unavailable, match="No such file"):
        hidden.start()
    hidden.close()
    assert judged("mine", "read x; echo $((x * 2))", show=[str(shown)], **options).outcome == "right"


@needs_node
def test_limits_that_no_program_can_start_in_are_no_verdict() -> None:
    verifier = build("command", language="javascript", lanes=1, mem_mb=40, timeout=0.5)
    with pytest.raises(Unavailable, match="a program that prints `ok`") as caught:
        verifier.start()
    verifier.close()
    assert "`mem_mb`" in caught.value.hint


def test_of_a_language_without_a_known_program_the_tool_must_say_its_version(shown: Path) -> None:
    """A tool that ends well outside and not inside: here by a folder that the sandbox does not have."""
    says = 'test "$1" != --version || test -d /proc/self || { echo "no /proc" >&2; exit 3; }; cat "$1"'
    options: dict[str, Any] = {"source": "main.odd", "run": [tool(shown, says), "main.odd"]}
    verifier = build("command", language="odd", lanes=1, show=[str(shown)], **options)
    with pytest.raises(Unavailable, match="no /proc"):
        verifier.start()
    verifier.close()
    options["run"] = [tool(shown, 'test "$1" != --version || exit 2; cat "$1"', "other"), "main.odd"]
    assert judged("odd", "8", {"tests": [{"input": "", "output": "8"}]}, show=[str(shown)], **options).score


def test_a_compiler_that_breaks_during_the_run_is_no_verdict(shown: Path) -> None:
    good = "grep -q BOOM main.sh && kill -9 $$; cp main.sh main"
    options: dict[str, Any] = {"source": "main.sh", "compile": [tool(shown, good)], "run": ["bash", "main"]}
    verifier = build("command", language="bash", lanes=1, show=[str(shown)], **options)
    code = "read x; echo $((x * 2))"
    assert verifier.verify(code, TESTS).outcome == "right"
    assert verifier.verify(f"{code} # BOOM", TESTS).reason == "compiler_died"
    tool(shown, "kill -9 $$")
    broken = verifier.verify(code, TESTS)
    verifier.close()
    assert broken.outcome == "error" and broken.score is None and broken.reason == "compiler"


def test_a_compiler_that_lacked_room_for_a_moment_is_asked_again(shown: Path) -> None:
    """As where the system has ended a part of it, or the disk was full; the words alone are no excuse for a program."""
    words = "echo 'fatal error: Killed signal terminated program cc1plus' >&2; exit 1"
    once = f"if grep -q BOOM main.sh; then {words}; fi; cp main.sh main"
    options: dict[str, Any] = {"source": "main.sh", "compile": [tool(shown, once), "main.sh"], "run": ["bash", "main"]}
    verifier: Any = build("command", language="bash", lanes=1, show=[str(shown)], **options)
    ran = verifier._run
    calls = list[str]()

    def mended(slot: Any, source: str, *rest: Any) -> Any:
        calls.append(source)
        if len(calls) == 3:
            tool(shown, "cp main.sh main")
        return ran(slot, source, *rest)

    verifier.start()
    verifier._run = mended
    code = "read x; echo $((x * 2)) # BOOM"
    assert verifier.verify(code, TESTS).outcome == "right" and len(calls) == 3
    tool(shown, once)
    calls.clear()
    calls.extend("four")
    assert verifier.verify(code, TESTS).reason == "compiler_died"
    verifier.close()


def test_what_is_shown_is_a_folder_by_its_full_path() -> None:
    for path in ("relative", "/no/such/folder"):
        with pytest.raises(BadOption, match="full paths"):
            build("command", language="bash", show=[path])


def test_what_a_program_makes_is_handed_out_and_what_it_was_given_is_not() -> None:
    """As Coq's files are carried from one run to the next; empty, binary and nested ones, no links and no caches."""
    script = (
        "mkdir -p in/.cache; cp Given.vo Solution.vo; cp Given.vo in/a.vo; : > empty; cp Given.vo in/.cache/x; "
        "ln -s Given.vo link; cp Given.vo .hidden; echo more >> Main.v"
    )
    data = bytes(range(256)) * 300
    lanes = Lanes("namespaces", 1)
    try:
        with lanes.slot() as slot:
            lane = slot.lane("programs", "command")
            limits = ProgramLimits(5.0, 512)
            argv = ["/bin/bash", "-c", script]
            made = run_program(lane, argv, {"Main.v": "x"}, limits, keep=True, products={"Given.vo": data})
            assert made.products == {"Solution.vo": data, "empty": b"", "in/a.vo": data}, made.stderr
            again = run_program(
                lane, ["/bin/bash", "-c", "cmp Solution.vo in/a.vo && ls"], {}, limits, products=made.products
            )
            assert again.stdout == b"Solution.vo\nempty\nin\n", again.stderr
            failed = run_program(lane, ["/bin/bash", "-c", "touch x; exit 3"], {}, limits, keep=True)
            assert failed.report.exit_code == 3 and failed.products == {}
    finally:
        lanes.close()
