"""One place of a pool: a keeper process, the worker it forked, and the thread that talks to them.

A job is a list of items for one worker. Deadlines run from the reply before, so a chunk of items shares nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from grpo_verifiers.processes import wire
from grpo_verifiers.verifier import Unavailable

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from grpo_verifiers.processes.worker import boot; boot()"
_LONGEST_WAIT_S = 0.1
_STARVED_FACTOR = 10
_LONGEST_LINE = 4000
_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one item may use. `wall_s` None means three times the CPU limit plus two seconds."""

    cpu_s: float = 5.0
    wall_s: float | None = None
    memory_mb: int | None = 1024
    load_s: float = 120.0

    @property
    def backstop_s(self) -> float:
        """Wall seconds after which a worker that is not computing is given up."""
        return self.wall_s if self.wall_s is not None else 3.0 * self.cpu_s + 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """The work returned."""

    value: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Raised:
    """The work raised; `traceback` is for a log."""

    kind: str
    message: str
    traceback: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker was killed (`timeout`, `memory`), died on this item (`died`), or there was none (`unavailable`)."""

    reason: str
    seconds: float


Result = Done | Raised | Killed


class LoadFailed(Unavailable):
    """The task could not be loaded in a worker: `kind` and `message` of the exception, `traceback` for a log."""

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.traceback = traceback


class SlotJob:
    """Items for one worker; `units` are how many times the limits of one item each of them may use."""

    def __init__(self, items: list[Any], units: Sequence[float] = ()) -> None:
        self.items = items
        self.units = list(units) or [1.0] * len(items)
        self.future: Future[list[Result]] = Future()


class Slot:
    """One keeper with its worker; all methods but `close` are called by one thread."""

    def __init__(
        self,
        setup: dict[str, Any],
        path: list[str],
        limits: ProcessLimits,
        on_print: Callable[[str], None] | None = None,
    ) -> None:
        self._on_print = on_print
        self._reader: threading.Thread | None = None
        self._setup = setup
        self._path = path
        self._limits = limits
        self._keeper: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._connection: socket.socket | None = None
        self._inbox: wire.Inbox | None = None
        self._pid = 0
        self._judged = 0
        self._is_closed = False

    # -- life ---------------------------------------------------------------------------------------------

    def start(self) -> Any:
        """Start the keeper and wait for the task to load; what the task says when it is ready.

        Raises:
            Unavailable: the process did not start within `load_s` seconds, or ended.
            LoadFailed: the task itself could not be loaded; with its message.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._keeper = _spawn(theirs.fileno(), self._path, hears=self._on_print is not None)
        if self._keeper.stderr is not None and self._on_print is not None:
            self._reader = threading.Thread(
                target=_hear, args=(self._keeper.stderr, self._on_print), name="grpo-prints", daemon=True
            )
            self._reader.start()
        self._control = ours
        inbox = wire.Inbox(ours)
        try:
            wire.send(ours, pickle.dumps(self._setup))
            reply = _awaited(inbox, self._limits.load_s)
        except OSError:
            reply = None
        if reply is None:
            self._drop_keeper()
            late = "" if inbox.is_closed else f" within {self._limits.load_s:g} s"
            raise Unavailable(f"a verifier process did not start{late}")
        said = json.loads(reply)
        if "failed" in said:
            self._drop_keeper()
            raise LoadFailed(*said["failed"])
        return said["ready"]

    def close(self) -> None:
        """End keeper and worker; may be called from any thread."""
        self._is_closed = True
        self._drop_keeper()

    def _drop_keeper(self) -> None:
        keeper, control = self._keeper, self._control
        self._keeper = self._control = None
        self._forget_worker()
        if control is not None:
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)  # close alone would not wake a thread that reads from it
            control.close()
        if keeper is not None:
            try:
                keeper.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
        reader, self._reader = self._reader, None
        if reader is not None and reader is not threading.current_thread():
            reader.join(timeout=1.0)  # the last lines; what outlives the keeper may hold the pipe open

    def _forget_worker(self) -> None:
        connection, self._connection = self._connection, None
        self._pid = 0
        if connection is not None:
            connection.close()

    # -- work ---------------------------------------------------------------------------------------------

    def serve(self, jobs: queue.SimpleQueue[SlotJob | None]) -> None:
        """Thread body: one job after another until None. The keeper starts first, so that no job waits for it."""
        with contextlib.suppress(Unavailable, OSError):  # the first job will say so
            if self._control is None:
                self.start()
        while (job := jobs.get()) is not None:
            try:
                job.future.set_result(self._judge(job))
            except Unavailable:
                job.future.set_result([Killed("unavailable", 0.0)] * len(job.items))
            except BaseException as err:  # noqa: BLE001 - it belongs to whoever waits for the job
                job.future.set_exception(err)

    def _judge(self, job: SlotJob) -> list[Result]:
        results: list[Result] = []
        while len(results) < len(job.items):
            failure = self._converse(job, results)
            if failure is None:
                break
            was_fresh = self._judged == 0
            self._kill()
            # memory or a crash in a used worker may be what earlier items left behind: once more in a fresh one
            if failure.reason == "timeout" or was_fresh:
                results.append(failure)
        return results

    def _converse(self, job: SlotJob, results: list[Result]) -> Killed | None:
        """Send the items without a result and take replies; None when all are answered, else why the worker has to go."""
        at = len(results)
        self._deliver(pickle.dumps(job.items[at:]))
        for units in job.units[at:]:
            began = time.monotonic()
            reply = self._await_reply(began, units)
            if isinstance(reply, Killed):
                return reply
            try:
                result = _decoded(reply)
            except (ValueError, KeyError, TypeError):  # the work wrote into our connection
                return Killed("died", time.monotonic() - began)
            if isinstance(result, Raised) and result.kind == "MemoryError":
                return Killed("memory", time.monotonic() - began)
            results.append(result)
            self._judged += 1
        return None

    def _deliver(self, chunk: bytes) -> None:
        for _ in range(3):
            if self._connection is None:
                self._fork()
            assert self._connection is not None
            try:
                return wire.send(self._connection, chunk)
            except OSError:
                self._kill()  # it died while it had nothing to do
        raise Unavailable("verifier processes die before they are given work")

    def _await_reply(self, began: float, units: float) -> bytes | Killed:
        assert self._inbox is not None
        inbox, cpu_s, wall_s = self._inbox, units * self._limits.cpu_s, units * self._limits.backstop_s
        reply = inbox.take()
        if reply is not None:
            return reply
        cpu_began = _cpu_s(self._pid)
        while True:
            wall = time.monotonic() - began
            used = _cpu_s(self._pid) - cpu_began
            inbox.wait(max(0.001, min(cpu_s - used, _LONGEST_WAIT_S)) if used < cpu_s else 0.0)
            reply = inbox.take()
            if reply is not None:
                return reply
            if inbox.is_closed:
                return Killed("died", wall)
            if used >= cpu_s or wall >= wall_s * _STARVED_FACTOR:
                return Killed("timeout", wall)
            if wall >= wall_s and not _is_runnable(self._pid):
                return Killed("timeout", wall)

    def _fork(self) -> None:
        for attempt in (1, 2, 3):
            if self._is_closed:
                raise Unavailable("the pool was closed while it worked")
            try:
                if self._control is None:
                    self.start()
                control = self._control
                assert control is not None
                ours, theirs = socket.socketpair()
                with theirs:
                    socket.send_fds(control, [b"F"], [theirs.fileno()])
                pid = wire.receive(control)
                if pid is None:
                    raise OSError("the keeper is gone")
            except OSError as err:
                self._drop_keeper()
                if attempt == 3:
                    raise Unavailable(f"a verifier process could not be started: {err}") from err
                continue
            self._pid, self._connection, self._inbox, self._judged = int(pid), ours, wire.Inbox(ours), 0
            return

    def _kill(self) -> None:
        control = self._control
        self._forget_worker()
        if control is None:
            return
        try:
            control.sendall(b"K")
            if wire.receive(control) is None:
                self._drop_keeper()
        except OSError:
            self._drop_keeper()


def _decoded(reply: bytes) -> Result:
    if reply[:1] == b"\0":
        return Done(reply[1:], 0.0)
    said = json.loads(reply)
    if "raised" in said:
        kind, message, trace = said["raised"]
        return Raised(kind, message, trace, said["seconds"])
    return Done(said["value"], said["seconds"])


def _awaited(inbox: wire.Inbox, timeout_s: float) -> bytes | None:
    end = time.monotonic() + timeout_s
    while (reply := inbox.take()) is None and not inbox.is_closed and (left := end - time.monotonic()) > 0:
        inbox.wait(left)
    return reply


def _cpu_s(pid: int) -> float:
    """CPU seconds of another process, read from its clock; 0 where the platform cannot say (wall then decides)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        return 0.0


def _is_runnable(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


# -- starting processes -------------------------------------------------------------------------------------
# PR_SET_PDEATHSIG fires when the *thread* that started a process ends, so one thread that never ends starts them all.

_Request = tuple[list[str], int, dict[str, str], bool, Future[subprocess.Popen[bytes]]]
_requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
_spawner: tuple[int, threading.Thread] | None = None
_spawner_lock = threading.Lock()


def _hear(stream: IO[bytes], on_print: Callable[[str], None]) -> None:
    """Thread body: pass on what the processes behind the stream print, line by line, until none is left."""
    with stream, contextlib.suppress(ValueError, OSError):
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            on_print(line.decode("utf-8", "replace").rstrip("\r\n"))


def _spawn(fd: int, path: list[str], hears: bool = False) -> subprocess.Popen[bytes]:
    global _spawner, _requests
    with _spawner_lock:
        if _spawner is None or _spawner[0] != os.getpid():
            _requests = queue.SimpleQueue()
            thread = threading.Thread(
                target=_spawn_for_ever, args=(_requests,), name="grpo-spawn", daemon=True
            )
            thread.start()
            _spawner = (os.getpid(), thread)
    here = [os.getcwd() if entry == "" else str(entry) for entry in [*path, *sys.path, _SOURCE_ROOT]]
    argv = [sys.executable, "-c", _BOOT, json.dumps(list(dict.fromkeys(here))), str(fd), str(os.getpid())]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    future: Future[subprocess.Popen[bytes]] = Future()
    env = {**os.environ, **single, "TOKENIZERS_PARALLELISM": "false"}
    if hears:
        env["PYTHONUNBUFFERED"] = "1"  # what a killed worker had printed is not lost
    _requests.put((argv, fd, env, hears, future))
    try:
        return future.result()
    except OSError as err:
        raise Unavailable(f"a verifier process could not be started: {err}") from err


def _spawn_for_ever(requests: queue.SimpleQueue[_Request]) -> None:
    while True:
        argv, fd, env, hears, future = requests.get()
        stderr = subprocess.PIPE if hears else None
        try:
            future.set_result(
                subprocess.Popen(argv, pass_fds=[fd], env=env, stdin=subprocess.DEVNULL, stderr=stderr)
            )
        except BaseException as err:  # noqa: BLE001 - handed to the thread that asked
            future.set_exception(err)
