"""One lane as the host sees it: a process started by exec, a socket to it, files that carry what is run.

The host writes code and inputs into sealed memory files and reads results from others; the lane's own messages are a few
numbers. Starting a lane never forks the caller (`subprocess` with no pre-exec hook uses vfork and exec).
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.sandbox.view import PACKAGES, HostView, host_view, landlock_paths

ROOT = os.path.dirname(os.path.abspath(__file__))
BOOT = "import sys; sys.path.insert(0, {root!r}); from inside import server; server.main()"
START_S = 30.0
LOOK_S = 0.1
GRACE_S = 20.0
STRETCH = 2  # as in `inside.server`
SEALS = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, SHRINK, GROW, WRITE
F_ADD_SEALS = 1033

STANDARD = """
ast bisect collections copy decimal fractions functools heapq itertools json math operator random re
string threading typing atexit inside.child inside.wire inside.extract inside.solution.objects inside.probe
""".split()  # noqa: SIM905
KINDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "numpy": ("numpy",),
    "pandas": ("numpy", "pandas"),
    "sql": ("sqlite3", "inside.query"),
    "programs": ("inside.programs",),
}


class LaneFailed(RuntimeError):
    """The lane died, refused or did not answer: the harness's fault, never the completion's."""


class LaneSilent(LaneFailed):
    """No answer within the time allowed."""


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


def sealed_file(data: bytes, name: str) -> int:
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


def empty_file(name: str) -> int:
    """A memory file for output."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


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


class Lane:
    """A running lane. Not for two threads at once."""

    def __init__(self, tier: str, kind: str = "plain", role: str = "runner", scratch: str = "") -> None:
        view = host_view(PACKAGES if kind in ("numpy", "pandas") else (), role == "command")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tier, self.kind, self.role, self.runs = tier, kind, role, 0
        self._asked = 0  # the number of the last request; an answer must carry it
        self._socket = ours
        try:
            settings = _settings(view, tier, kind, role, theirs.fileno(), scratch)
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-s",
                    "-P",
                    "-S",
                    "-B",
                    "-X",
                    "utf8",
                    "-c",
                    BOOT.format(root=ROOT),
                    json.dumps(settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # one hash seed for all lanes: a verdict must not depend on where it was made
                env={
                    "PYTHONHASHSEED": "0",
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1",
                },
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            answer = self.receive(START_S)
        except LaneFailed:
            self.close()
            raise
        if "failed" in answer:
            self.close()
            raise LaneFailed(str(answer["failed"]))
        self.notes: dict[str, Any] = answer["ready"]

    def run(
        self,
        style: str,
        fds: Mapping[str, int],
        limits: Mapping[str, Any],
        look: Callable[[], None] | None = None,
    ) -> LaneReport:
        """Run one job to its end; `look` is called now and then meanwhile.

        Raises:
            LaneFailed: no report came.
        """
        self.start(style, fds, limits)
        return self.finish(limits["wall_s"] * limits.get("steps", 1), look)

    def start(self, style: str, fds: Mapping[str, int], limits: Mapping[str, Any]) -> None:
        """Hand a job to the lane; `finish` waits for its report."""
        self.send({"op": "run", "style": style, "fds": list(fds), "limits": dict(limits)}, list(fds.values()))

    def finish(self, wall_s: float, look: Callable[[], None] | None = None) -> LaneReport:
        """The report of the job that was started; `look` is called now and then while it runs."""
        answer = self.receive(STRETCH * wall_s + GRACE_S, look)
        if "status" not in answer:
            raise LaneFailed(str(answer.get("lane", "bad report")))
        self.runs += 1
        if answer.get("recycle"):
            self.close()
        return LaneReport(answer["status"], answer["cpu"], answer["wall"], answer["killed"], answer["rss_kb"])

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """One message with descriptors; a request (`run`, `test`) gets the next number."""
        if message.get("op") != "stop":
            self._asked += 1
            message = {**message, "id": self._asked}
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([json.dumps(message).encode()], ancillary)
        except OSError as err:
            raise LaneFailed(f"the lane is gone: {err}") from err

    def receive(self, timeout_s: float, look: Callable[[], None] | None = None) -> dict[str, Any]:
        """The answer to the last request.

        Raises:
            LaneSilent: none came in time.
            LaneFailed: the lane is gone, or out of step: its answer is to another request. Such a lane is closed.
        """
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if poll.poll(max(0.0, left if look is None else min(left, LOOK_S)) * 1000):
                break
            if look is not None:
                look()
            if left <= 0:
                raise LaneSilent(f"no answer in {timeout_s:.0f} s")
        try:
            data = self._socket.recv(65536)
        except OSError as err:
            raise LaneFailed(f"the lane is gone: {err}") from err
        if not data:
            raise LaneFailed("the lane died")
        try:
            answer = json.loads(data)
            in_step = type(answer) is dict and answer.get("id") == self._asked
        except (ValueError, RecursionError):
            in_step = False
        if not in_step:
            self.close()
            raise LaneFailed("the lane is out of step")
        return dict(answer)

    @property
    def is_open(self) -> bool:
        """Whether the lane can take another job."""
        return self._socket.fileno() >= 0

    @property
    def crash_signal(self) -> int | None:
        """The signal that ended the lane from within, once it is closed; None for an orderly end."""
        code = self.process.poll()
        if code is None or code == 0:
            return None
        return -code if code < 0 else code - 128

    def close(self) -> None:
        """End the lane and everything in it."""
        if self._socket.fileno() < 0:
            return
        self._socket.close()
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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
        "preload": [*STANDARD, *KINDS[kind], *(("inside.tester",) if role == "tester" else ())],
        "role": role,
        "scratch": scratch,
    }
