"""One lane as the host sees it: a linked process, and files that carry what is run.

The host writes code and inputs into sealed memory files and reads results from others; the lane's own messages are a few
numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.processes.linked import PLAIN_ENVIRONMENT, LinkedProcess, ProcessFailed, ProcessSilent
from grpo_verifiers.sandbox.inside.child import NO_CODE, NO_MEMORY
from grpo_verifiers.sandbox.view import PACKAGES, PROGRAMS, HostView, host_view, landlock_paths

ROOT = os.path.dirname(os.path.abspath(__file__))
BOOT = "import sys; sys.path.insert(0, {root!r}); from inside import server; server.main()"
FLAGS = ("-s", "-P", "-S", "-B", "-X", "utf8")
START_S = 30.0
LARGEST = 1 << 16
GRACE_S = 20.0
OUTPUT_BYTES = 16 << 20
WALL_FACTOR = 3.0
NUMPY_MB = 1536
STRETCH = 2  # as in `inside.server`
SEALS = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, SHRINK, GROW, WRITE
F_ADD_SEALS = 1033

STANDARD = """
ast bisect collections copy decimal fractions functools heapq itertools json math operator random re
string threading typing atexit inside.child inside.extract inside.wall.solution inside.probe
""".split()  # noqa: SIM905
OF_ROLE = {"tester": ("unittest", "inside.tester"), "trusted": ("unittest", "inside.one_process")}
KINDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "numpy": ("numpy",),
    "pandas": ("numpy", "pandas"),
    "sql": ("sqlite3", "inside.query"),
    "programs": ("inside.programs",),
}


LaneFailed = ProcessFailed
"""The lane died, refused or did not answer: the harness's fault, never the completion's."""
LaneSilent = ProcessSilent


@dataclass(frozen=True, slots=True)
class LaneReport:
    """How a run ended: wait status, seconds, why it was killed ("" if it was not)."""

    status: int
    cpu_s: float
    wall_s: float
    killed: str
    rss_kb: int

    @property
    def exit_code(self) -> int:
        """The exit status, or minus the signal."""
        return os.waitstatus_to_exitcode(self.status)


def _sealed_file(data: bytes, name: str) -> int:
    """A memory file that nobody can change any more."""
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def memory_files(**content: bytes | None) -> Iterator[dict[str, int]]:
    """Memory files for a run: sealed ones with content, empty ones for None; closed at the end."""
    fds: dict[str, int] = {}
    try:
        for name, data in content.items():
            fds[name] = os.memfd_create(name, os.MFD_CLOEXEC) if data is None else _sealed_file(data, name)
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


def read_file(fd: int, most: int) -> bytes:
    """Up to `most` bytes from the start, whatever the file's own position is."""
    size = min(os.fstat(fd).st_size, most)
    parts, at = [], 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


class Lane(LinkedProcess):
    """A running lane. Not for two threads at once."""

    name = "the lane"

    def __init__(
        self, tier: str, kind: str = "plain", role: str = "runner", scratch: str = "", shown: tuple[str, ...] = ()
    ) -> None:
        """Start it and wait until it has isolated itself.

        Raises:
            LaneFailed: it could not, or not in time.
        """
        programs = (*PROGRAMS, *shown) if role == "command" else ()
        view = host_view(PACKAGES if kind in ("numpy", "pandas") else (), programs)
        self.tier, self.kind, self.role, self.runs = tier, kind, role, 0

        def command(link: int) -> list[str]:
            settings = json.dumps(_settings(view, tier, kind, role, link, scratch))
            return [sys.executable, *FLAGS, "-c", BOOT.format(root=ROOT), settings]

        super().__init__(command, PLAIN_ENVIRONMENT, cwd="/", output=subprocess.DEVNULL, largest=LARGEST)
        self.notes: dict[str, Any] = self.greet(START_S)

    def run(
        self, style: str, fds: Mapping[str, int], limits: Mapping[str, Any], look: Callable[[], None] | None = None
    ) -> LaneReport:
        """Run one job to its end; `look` is called now and then meanwhile.

        Raises:
            LaneFailed: no report came.
        """
        self.start(style, fds, limits)
        return self.finish(limits["wall_s"] * limits.get("steps", 1), look)

    def start(self, style: str, fds: Mapping[str, int], limits: Mapping[str, Any]) -> None:
        """Hand a job to the lane; `finish` waits for its report."""
        self.ask({"op": "run", "style": style, "fds": list(fds), "limits": dict(limits)}, list(fds.values()))

    def finish(self, wall_s: float, look: Callable[[], None] | None = None) -> LaneReport:
        """The report of the job that was started; `look` is called now and then while it runs."""
        answer = self.receive(STRETCH * wall_s + GRACE_S, look)
        if "status" not in answer:
            raise LaneFailed(str(answer.get("lane", "bad report")))
        self.runs += 1
        if answer.get("recycle"):
            self.close()
        return LaneReport(answer["status"], answer["cpu"], answer["wall"], answer["killed"], answer["rss_kb"])


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """How a Python program ended, why if not by itself, and what it printed."""

    report: LaneReport
    ended: str
    stdout: bytes
    stderr: str


def script(code: str, entry: str | None = None, prompt: str = "", before: str = "", **more: object) -> bytes:
    """The payload of a run of Python code: a text that holds the program, and what stands before it."""
    return json.dumps({"code": code, "entry": entry, "prompt": prompt, "before": before, **more}).encode()


def limits_of(
    kind: str, cpu_s: float, memory_mb: int, steps: int = 1, output_bytes: int = OUTPUT_BYTES
) -> dict[str, Any]:
    """The limits of a run in a lane of this kind; `steps` is how many results may each take `cpu_s`."""
    memory_mb = max(memory_mb, NUMPY_MB) if kind in ("numpy", "pandas") else memory_mb
    return {
        "cpu_s": cpu_s, "wall_s": cpu_s * WALL_FACTOR, "memory_mb": memory_mb, "output_bytes": output_bytes, "steps": steps,
    }  # fmt: skip


def run_script(
    lane: Lane, payload: Mapping[str, int], limits: Mapping[str, Any], stdin: bytes = b"", most: int = OUTPUT_BYTES
) -> ScriptRun:
    """Run a Python program, whose payload is a memory file, to its end; of what it prints `most` bytes are read.

    Raises:
        LaneFailed: the sandbox broke.
    """
    with memory_files(stdin=stdin, stdout=None, stderr=None) as fds:
        report = lane.run("stdio", {**payload, **fds}, limits)
        is_cut = os.fstat(fds["stdout"]).st_size >= limits["output_bytes"]
        said = read_file(fds["stderr"], 1 << 16).decode("utf-8", "replace")
        return ScriptRun(report, "output" if is_cut else ending(report), read_file(fds["stdout"], most), said)


def ending(report: LaneReport) -> str:
    """Why a run of Python code ended, if not by itself or because it was asked to: a limit, `no_code`, `signal:9`, `exit:1`."""
    code = report.exit_code
    if report.killed not in ("", "asked"):
        return {"cpu": "time", "output": "output"}.get(report.killed, "wall_time")
    known = {0: "", NO_CODE: "no_code", NO_MEMORY: "memory", -24: "time", -25: "output"}
    known |= {-9: ""} if report.killed else {}
    return known.get(code, f"signal:{-code}" if code < 0 else f"exit:{code}")


def _settings(view: HostView, tier: str, kind: str, role: str, fd: int, scratch: str) -> dict[str, Any]:
    readable, listed = landlock_paths(view) if tier == "landlock" else (view.readable, ())
    return {
        "fd": fd,
        "tier": tier,
        "readable": list(readable),
        "listed": list(listed),
        "links": list(view.links),
        "hidden": list(view.hidden),
        "search": list(view.search),
        "packages": dict(view.packages),
        "preload": [*STANDARD, *KINDS[kind], *OF_ROLE.get(role, ())],
        "role": role,
        "scratch": scratch,
    }
