"""The verifier `command`: other languages, in the namespaces tier only."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from grpo_verifiers import BadOption, Unavailable, Verdict, build
from grpo_verifiers.sandbox import tiers

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
