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
from typing import Any, NamedTuple

from grpo_verifiers.maths.tree import Node

START_S = 60.0
"""How long the server may take to load sympy; not part of any deadline."""
SLOTS = 2
FULL_TIMEOUTS = 2
"""Overstaying cases in a row that still get the full deadline."""
SHORTEST_S = 0.05
MOST_TASKS = 500
_LENGTH = struct.Struct("<I")
_HOME = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys; sys.path[:0] = sys.argv[1:-1]; from grpo_verifiers.maths.child import main; main()"


class Task(NamedTuple):
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

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        self.link.close()


class Pool:
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
        self._ready = False
        self._streak = 0

    def launch(self) -> None:
        """Start the server without waiting for it."""
        if self._owner != os.getpid():
            self._reset()
        with self._boot:
            if self._server is not None and self._server.poll() is None:
                return
            ours, theirs = socket.socketpair()
            os.set_inheritable(theirs.fileno(), True)
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
            }
            try:
                self._server = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, _HOME, *[p for p in sys.path if p], str(theirs.fileno())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()], start_new_session=True, env=environment,
                )  # fmt: skip
            except OSError as err:
                ours.close()
                raise ChildFailed(str(err)) from err
            finally:
                theirs.close()
            self._control = ours
            self._ready = False

    def prove(self, tasks: Sequence[Task], seconds: float) -> list[str]:
        """For every task `s`, `m`, `n` (see `child`), or `timeout`, `memory`.

        Raises:
            ChildFailed: there is no child to ask.
        """
        if self._owner != os.getpid():
            self._reset()
        out: list[str] = []
        worker: _Worker | None = None
        failures = 0
        try:
            while len(out) < len(tasks):
                if worker is None:
                    worker = self._get()
                before = len(out)
                alive = self._batch(worker, tasks[before:], seconds, out)
                if not alive:
                    worker.kill()
                    with self._condition:
                        self._out -= 1
                        self._condition.notify()
                    worker = None
                    failures = failures + 1 if len(out) == before else 0
                    if failures > 2:
                        raise ChildFailed("the child keeps dying")
        finally:
            if worker is not None:
                self._put(worker)
        return out

    def _deadline(self, seconds: float) -> float:
        over = self._streak - FULL_TIMEOUTS + 1
        return seconds if over <= 0 else max(SHORTEST_S, seconds / 2**over)

    def _batch(self, worker: _Worker, tasks: Sequence[Task], seconds: float, out: list[str]) -> bool:
        """Append answers for as many tasks as the worker lives through; False when it is gone."""
        body = pickle.dumps([tuple(task) for task in tasks[:64]], protocol=5)
        try:
            worker.link.sendall(_LENGTH.pack(len(body)) + body)
        except OSError:
            return False
        for _ in tasks[:64]:
            limit = time.monotonic() + self._deadline(seconds)
            reply = _receive(worker.link, 1, limit)
            worker.tasks += 1
            if reply is None:
                self._streak += 1
                out.append("timeout")
                return False
            if reply == b"":
                out.append("memory")
                return False
            self._streak = 0
            out.append("memory" if reply == b"M" else reply.decode("ascii", "replace"))
        return worker.tasks < MOST_TASKS

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
        for _ in range(2):
            self.launch()
            with self._boot:
                control = self._control
                if control is None:
                    continue
                ours, theirs = socket.socketpair()
                try:
                    if not self._ready:
                        if _receive(control, 1, time.monotonic() + START_S) != b"r":
                            raise OSError("the server did not start")
                        self._ready = True
                    socket.send_fds(control, [b"f"], [theirs.fileno()])
                except OSError:
                    ours.close()
                    self._stop_server()
                    continue
                finally:
                    theirs.close()
            hello = _receive(ours, 4, time.monotonic() + 10.0)
            if hello:
                return _Worker(ours, _LENGTH.unpack(hello)[0])
            ours.close()
            self._stop_server()
        raise ChildFailed("the process for computer algebra does not start")

    def _stop_server(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._control, self._server, self._ready = None, None, False

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


POOL = Pool()
atexit.register(POOL.close)


def settle(tasks: Sequence[Task], seconds: float) -> list[Any]:
    """`POOL.prove`, by the name the verifier uses."""
    return POOL.prove(tasks, seconds)
