"""The caller's side of the child: one fork server for this process, a few warm workers, a deadline for every case.

No signals are used here and none are touched: a worker that overstays is killed by its process id and replaced.
Cases in a row that overstay shrink the deadline, so that a flood of hostile answers cannot stop a training step.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock
from typing import NamedTuple

from grpo_verifiers.maths.reading.tree import Node

START_S = 60.0
"""How long the server may take to load sympy; not part of any deadline."""
SLOTS = 2
FEW = 3
"""Batches up to this size get the full deadline at once; so many overstaying cases in a row keep it full."""
QUICK_S = 0.25
"""Deadline of the first round of a larger batch, less after overstaying cases in a row; most proofs take 10 to 50 ms."""
LEAST_S = 0.2
SHORTEST_S = 0.05
GIVE_UP = 16
"""Overstaying cases in a row after which a round ends: this is a flood."""
BUDGET_S = 1.2
"""What a batch may spend on its second round; three times that if few of it are slow."""
FORGET_S = 5.0
"""After this long without an overstaying case the deadline is the full one again."""
MOST_TASKS = 500
_LENGTH = struct.Struct("<I")
_HOME = str(Path(__file__).resolve().parents[3])
_BOOT = (
    "import sys; sys.path[:0] = sys.argv[1:-1]; from grpo_verifiers.maths.proving.child import main; main()"
)


class ProofTask(NamedTuple):
    """What is to be proved, and the texts for the last tier."""

    pairs: tuple[tuple[Node, Node], ...]
    gold: str
    answer: str
    log10: bool = False


class ChildFailed(RuntimeError):
    """The child could not be started: no verdict can be given on what was left open."""


class _Worker:
    def __init__(self, link: socket.socket, pid: int) -> None:
        self.link = link
        self.pid = pid
        self.tasks = 0

    def ask(self, task: ProofTask, seconds: float) -> str:
        """Its reply; `gone`, `timeout` or `memory` where there is none."""
        body = pickle.dumps(tuple(task), protocol=5)
        limit = time.monotonic() + seconds
        try:
            self.link.sendall(_LENGTH.pack(len(body)) + body)
        except OSError:
            return "gone"
        self.tasks += 1
        reply = _receive(self.link, 1, limit)
        if reply is None:
            return "timeout"
        return {b"": "gone", b"M": "memory"}.get(reply) or reply.decode("ascii", "replace")

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        self.link.close()


class AlgebraPool:
    """Workers shared by all verifiers of this process. Thread-safe; starts by itself; survives a fork of the caller."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.slots = slots
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._condition = Condition()
        self._boot = Lock()
        self._idle: list[_Worker] = []
        self._out = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._spare: socket.socket | None = None
        self._ready = False
        self._overstayed = 0
        self._last_timeout = 0.0

    def launch(self) -> None:
        """Start the server without waiting for it."""
        if self._owner != os.getpid():
            self._reset()
        with self._boot:
            if self._server is not None and self._server.poll() is None:
                return
            self._stop_server()
            ours, theirs = socket.socketpair()
            os.set_inheritable(theirs.fileno(), True)
            try:
                self._server = _start_server(theirs.fileno())
            except OSError as err:
                ours.close()
                raise ChildFailed(str(err)) from err
            finally:
                theirs.close()
            self._control = ours
            self._ready = False

    def prove(self, tasks: Sequence[ProofTask], seconds: float) -> list[str]:
        """For every task `s`, `m`, `n` (see `child`), or `timeout`, `memory`.

        A large batch gets a short deadline first, so that many slow cases cannot starve the quick ones; what
        overstayed it is tried again with the full deadline while `BUDGET_S` lasts.

        Raises:
            ChildFailed: there is no child to ask.
        """
        if self._owner != os.getpid():
            self._reset()
        replies: dict[int, str] = {}
        waiting = sorted(
            range(len(tasks)), key=lambda i: len(tasks[i].answer)
        )  # short answers are seldom slow
        if len(tasks) > FEW:
            self._round(tasks, waiting, replies, min(seconds, QUICK_S), None)
            waiting = [i for i in waiting if replies[i] == "timeout"]
        if waiting:
            over = self._overstayed if time.monotonic() - self._last_timeout < FORGET_S else 0
            full = seconds if over <= FEW else max(min(seconds, LEAST_S), seconds / 2 ** (over - FEW))
            budget = BUDGET_S * (3 if 4 * len(waiting) < len(tasks) else 1)
            until = time.monotonic() + budget if len(tasks) > FEW else None
            self._round(tasks, waiting, replies, full, until)
        return [replies[i] for i in range(len(tasks))]

    def _round(
        self,
        tasks: Sequence[ProofTask],
        which: Sequence[int],
        replies: dict[int, str],
        seconds: float,
        until: float | None,
    ) -> None:
        """Ask for `which` tasks with one deadline each; workers that die are replaced."""
        worker: _Worker | None = None
        left = list(which)
        in_a_row = deaths = 0
        try:
            while left and (until is None or time.monotonic() < until) and in_a_row < GIVE_UP:
                worker = worker or self._get()
                limit = max(SHORTEST_S, seconds / (1, 2, 5)[min(in_a_row // FEW, 2)])
                if until is not None:
                    limit = min(limit, max(SHORTEST_S, until - time.monotonic()))
                reply = worker.ask(tasks[left[0]], limit)
                if reply == "gone" and deaths < 2:
                    deaths += 1  # killed from outside, or it ran out of memory: once more in a fresh one
                else:
                    deaths = 0
                    replies[left.pop(0)] = "memory" if reply == "gone" else reply
                    in_a_row = in_a_row + 1 if reply == "timeout" else 0
                    if seconds > QUICK_S:
                        self._note(reply)
                if reply in ("gone", "timeout") or worker.tasks >= MOST_TASKS:
                    self._drop(worker)
                    worker = None
        finally:
            if worker is not None:
                self._put(worker)
            for i in left:
                replies.setdefault(i, "timeout")

    def _note(self, reply: str) -> None:
        if reply == "timeout":
            self._overstayed += 1
            self._last_timeout = time.monotonic()
        else:
            self._overstayed = 0

    def _drop(self, worker: _Worker) -> None:
        worker.kill()
        with self._condition:
            self._out -= 1
            self._condition.notify()

    def _get(self) -> _Worker:
        with self._condition:
            while not self._idle and self._out >= self.slots:
                self._condition.wait()
            self._out += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._fork()
        except BaseException:
            with self._condition:
                self._out -= 1
                self._condition.notify()
            raise

    def _put(self, worker: _Worker) -> None:
        with self._condition:
            self._out -= 1
            self._idle.append(worker)
            self._condition.notify()

    def _fork(self) -> _Worker:
        """A fresh worker: the spare one, forked while the last case ran, or a new one; a spare is ordered for next time."""
        for _ in range(3):
            self.launch()
            with self._boot:
                link, self._spare = self._spare or self._order(), None
            hello = _receive(link, 4, time.monotonic() + 10.0) if link is not None else b""
            if link is not None and hello:
                with self._boot:
                    self._spare = self._spare or self._order()
                return _Worker(link, _LENGTH.unpack(hello)[0])
            with self._boot:
                if link is not None:
                    link.close()
                self._stop_server()
        raise ChildFailed("the process for computer algebra does not start")

    def _order(self) -> socket.socket | None:
        """Ask the server for a worker; our end of its socket, or None if the server is gone. Called under `_boot`."""
        control = self._control
        if control is None:
            return None
        ours, theirs = socket.socketpair()
        try:
            if not self._ready:
                if _receive(control, 1, time.monotonic() + START_S) != b"r":
                    raise OSError("the server did not start")
                self._ready = True
            socket.send_fds(control, [b"f"], [theirs.fileno()])
        except OSError:
            ours.close()
            return None
        finally:
            theirs.close()
        return ours

    def _stop_server(self) -> None:
        for link in (self._spare, self._control):
            if link is not None:
                link.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._spare, self._control, self._server, self._ready = None, None, None, False

    def close(self) -> None:
        """End the server and its idle workers; the next task starts anew."""
        if self._owner != os.getpid():
            return
        with self._condition:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()
        with self._boot:
            self._stop_server()


def _start_server(link: int) -> subprocess.Popen[bytes]:
    """The process that forks workers; it is asked over `link`."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT, _HOME, *[p for p in sys.path if p], str(link)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=[link], start_new_session=True, env=environment,
    )  # fmt: skip


def _receive(link: socket.socket, count: int, limit: float) -> bytes | None:
    """`count` bytes; None past the limit, b"" if the other side is gone."""
    parts = b""
    poller = select.poll()
    poller.register(link, select.POLLIN)
    while len(parts) < count:
        left = limit - time.monotonic()
        if left <= 0 or not poller.poll(max(1, int(left * 1000))):
            if time.monotonic() >= limit:
                return None
            continue
        try:
            part = link.recv(count - len(parts))
        except OSError:
            return b""
        if not part:
            return b""
        parts += part
    return parts


POOL = AlgebraPool()
atexit.register(POOL.close)
