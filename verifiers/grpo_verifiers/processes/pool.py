"""Killable workers: many items in parallel, each under its own deadline, none able to hang or crash the caller.

How this works: a `Pool` cuts its items into jobs, which the threads of its slots take from one queue. A `Slot` starts a
keeper (`worker.keep`), has it fork a worker, sends the worker a job and takes one reply an item. A worker that exceeds
a limit is killed and the next one goes on. The deadline of an item starts at the previous reply, so the items of a job
do not share a deadline.

The deadline is CPU time of the worker, so a loaded machine does not turn right answers into timeouts. Wall time is
only a backstop, and a worker that merely waits for a core gets ten times as long. A pool may be called from any thread.
It touches no signal handler or alarm of the caller, and never forks the trainer.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from grpo_verifiers.processes import wire
from grpo_verifiers.processes.linked import (
    PLAIN_ENVIRONMENT,
    LinkedProcess,
    ProcessFailed,
    ProcessRefused,
    ProcessSilent,
    end_with,
)
from grpo_verifiers.processes.wire import Done, Killed, LoadFailed, ProcessLimits, Raised, Result, raised
from grpo_verifiers.verifier import Unavailable

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from grpo_verifiers.processes.worker import boot; boot()"
)
_FOREIGN = """\
import sys
sys.path[:] = filter(None, sys.path)  # not the current folder; the flag for it is unknown to Python 3.10
import json, importlib.util as util
for name, place in json.loads(sys.argv[1]).items():
    found = util.spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
    sys.modules[name] = module = util.module_from_spec(found)
    found.loader.exec_module(module)
"""
_LONGEST_WAIT_S = 0.1
_IDLE = 0.1
"""A worker that computes for less than this share of the time counts as waiting."""
_FORK_S = 60.0
_END_S = 2.0
_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])


_SECRET = re.compile(
    r"(?i)(^|_)(token|api_?key|key|secret|password|passwd|pat|creds|credentials?|webhook)($|_)|(password|apikey|token|_pwd)$"
)
_SIGNED = re.compile(r"://[^/\s:@]{0,99}:[^/\s@]{1,999}@")
"""An address with a password in it."""


def without_secrets(environment: Mapping[str, str], readable: Sequence[str]) -> dict[str, str]:
    """The variables that are no secret by their name (`HF_TOKEN`, `WANDB_API_KEY`, …) and hold no address with a password but
    a proxy's, and those of `readable`."""
    return {
        name: value
        for name, value in environment.items()
        if name in readable
        or name == "TOKENIZERS_PARALLELISM"
        or not (_SECRET.search(name) or (_SIGNED.search(value) and not name.lower().endswith("_proxy")))
    }


def foreign_line(interpreter: str, package: str, call: str) -> list[str]:
    """The command line with which another Python runs `call`: of what is installed here it can import two packages, ours and this one."""
    places = {name: sys.modules[name].__path__[0] for name in dict.fromkeys(["grpo_verifiers", package])}
    return [interpreter, "-c", f"{_FOREIGN}{call}", json.dumps(places)]


def foreign_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for another Python: without those that lead it to packages of this one."""
    return {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


class SlotJob:
    """Items for one worker; `units` are factors of the limits, one an item."""

    def __init__(self, items: list[Any], units: Sequence[float] = ()) -> None:
        self.items = items
        self.units = list(units) or [1.0] * len(items)
        self.future: Future[list[Result]] = Future()


class Slot:
    """One keeper with its worker; all methods but `close` are called by one thread. `setup` is what `worker.keep` takes."""

    def __init__(
        self,
        setup: dict[str, Any],
        path: list[str],
        limits: ProcessLimits,
        on_print: Callable[[str], None] | None = None,
        secrets: Sequence[str] | None = None,
        interpreter: str | None = None,
    ) -> None:
        self.info: Future[Any] = Future()
        """The task's `info`, or the reason why the task could not be loaded."""
        self._setup, self._path, self._limits, self._on_print = setup, path, limits, on_print
        self._secrets, self._interpreter = secrets, interpreter
        self._keeper: LinkedProcess | None = None
        self._worker: wire.Channel | None = None
        self._pid = 0
        self._judged = 0
        self._is_closed = False

    def _start(self) -> Any:
        """Start the keeper and wait for the task to load; returns the task's `info`.

        Raises:
            Unavailable: the process did not start within `load_s` seconds, or ended.
            LoadFailed: the task itself could not be loaded; with its message.
        """
        own = dict(os.environ) if self._secrets is None else without_secrets(os.environ, self._secrets)
        environment = {**own, **PLAIN_ENVIRONMENT, "TOKENIZERS_PARALLELISM": "false"}
        if self._on_print is not None:
            environment["PYTHONUNBUFFERED"] = "1"  # keep the output of a killed worker
        here = [os.getcwd() if entry == "" else str(entry) for entry in [*self._path, *sys.path, _SOURCE_ROOT]]
        line = [sys.executable, "-P", "-c", _BOOT, json.dumps(list(dict.fromkeys(here)))]
        if self._interpreter is not None:
            call = "from grpo_verifiers.processes.worker import boot; boot()"
            line = foreign_line(self._interpreter, self._setup["task"].partition(".")[0], call)
            environment = foreign_variables(environment)
        try:
            self._keeper = keeper = LinkedProcess(
                lambda link: [*line, str(link), str(os.getpid())], environment, on_print=self._on_print
            )
        except OSError as err:
            raise Unavailable(f"a verifier process could not be started: {err}") from err
        if self._is_closed:
            self._drop_keeper()
        try:
            return keeper.greet(self._limits.load_s, pickle.dumps(self._setup))
        except ProcessRefused as err:
            raise LoadFailed(*err.why) from err
        except ProcessFailed as err:
            late = f" within {self._limits.load_s:g} s" if isinstance(err, ProcessSilent) else ""
            raise Unavailable(f"a verifier process did not start{late}") from err

    def close(self) -> None:
        """End keeper and worker; may be called from any thread."""
        self._is_closed = True
        self._drop_keeper()

    def _drop_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        self._forget_worker()
        if keeper is not None:
            # while it still loads there is no worker to end, and it would not read a message
            keeper.close(_END_S if self.info.done() else 0.0)

    def _forget_worker(self) -> None:
        worker, self._worker, self._pid = self._worker, None, 0
        if worker is not None:
            worker.close()

    def serve(self, jobs: queue.SimpleQueue[SlotJob | None]) -> None:
        """Thread body: one job after another until None. The keeper starts first, so that no job waits for it."""
        try:
            self.info.set_result(self._start())
        except BaseException as err:  # noqa: BLE001 - it belongs to whoever starts the pool
            self.info.set_exception(err)
        while (job := jobs.get()) is not None:
            try:
                job.future.set_result(self._judge(job))
            except Unavailable:
                job.future.set_result([Killed("unavailable", 0.0)] * len(job.items))
            except BaseException as err:  # noqa: BLE001 - it belongs to whoever waits for the job
                job.future.set_exception(err)

    def _judge(self, job: SlotJob) -> list[Result]:
        results: list[Result] = []
        if self._limits.most_items is not None and self._judged >= self._limits.most_items:
            self._kill()
        while len(results) < len(job.items):
            failure = self._converse(job, results)
            if failure is None:
                break
            was_fresh = self._judged == 0
            self._kill()
            # in a used worker, lack of memory or a crash may come from earlier items: try again in a fresh one
            if failure.reason in ("timeout", "no_reply") or was_fresh:
                results.append(failure)
        return results

    def _converse(self, job: SlotJob, results: list[Result]) -> Killed | None:
        """Send the items without a result and take replies; None when all are answered, else why the worker must be
        killed."""
        at, chunk = len(results), pickle.dumps(job.items[len(results) :])
        for attempt in (1, 2, 3):
            worker = self._worker or self._fork()
            try:
                worker.send(chunk)
                break
            except OSError as err:
                self._kill()  # it died while idle
                if attempt == 3:
                    raise Unavailable("verifier processes die before they are given work") from err
        for units in job.units[at:]:
            began = time.monotonic()
            reply = self._await_reply(worker, began, units)
            if isinstance(reply, Killed):
                return reply
            try:
                result = _decoded(reply, self._judged)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                # the work wrote into our connection
                return Killed("died", time.monotonic() - began)
            if isinstance(result, Raised) and result.kind == "MemoryError":
                return Killed("memory", time.monotonic() - began)
            results.append(result)
            self._judged += 1
        return None

    def _await_reply(self, worker: wire.Channel, began: float, units: float) -> bytes | Killed:
        cpu_s, wait_s = units * self._limits.cpu_s, units * self._limits.backstop_s
        longest_s = wait_s * self._limits.patience
        reply = worker.take()
        if reply is not None:
            return reply
        cpu_began, at = _cpu_s(self._pid), time.monotonic()
        seen = waited = 0.0
        while True:
            left = min(cpu_s - seen, wait_s - waited, longest_s - (at - began))
            worker.wait(max(0.001, min(left, _LONGEST_WAIT_S)))
            reply = worker.take()
            if reply is not None:
                return reply
            before, at = at, time.monotonic()
            if worker.is_closed:
                return Killed("died", at - began)
            used = _cpu_s(self._pid) - cpu_began
            if used - seen < _IDLE * (at - before):
                is_busy = False  # whether it is running, or waiting for a core or a disk
                with contextlib.suppress(OSError, IndexError), open(f"/proc/{self._pid}/stat", "rb") as file:
                    is_busy = file.read().rpartition(b")")[2].split()[0] in (b"R", b"D")
                # if this process itself was paused, the worker is not to blame: count the pause as one interval
                waited += 0.0 if is_busy else min(at - before, 2 * _LONGEST_WAIT_S)
            seen = used
            if used >= cpu_s:
                return Killed("timeout", at - began)
            if waited >= wait_s or at - began >= longest_s:
                return Killed("no_reply" if _CAN_LOOK else "timeout", at - began)

    def _fork(self) -> wire.Channel:
        for attempt in (1, 2, 3):
            if self._is_closed:
                raise Unavailable("the pool was closed while it worked")
            if self._keeper is None or not self._keeper.is_open:
                self._drop_keeper()
                self._start()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    self._pid = int(self._asked("fork", [theirs.fileno()])["pid"])
            except (ProcessFailed, KeyError) as err:
                ours.close()
                self._drop_keeper()
                if attempt == 3:
                    raise Unavailable(f"a verifier process could not be started: {err}") from err
                continue
            self._worker, self._judged = wire.Channel(ours), 0
            return self._worker
        raise AssertionError("the last attempt returns or raises")

    def _kill(self) -> None:
        self._forget_worker()
        with contextlib.suppress(ProcessFailed):
            self._asked("kill")
            return
        self._drop_keeper()

    def _asked(self, op: str, files: Sequence[int] = ()) -> dict[str, Any]:
        keeper = self._keeper
        if keeper is None:
            raise ProcessFailed("the keeper is gone")
        keeper.ask({"op": op}, files)
        return keeper.receive(_FORK_S)


def _decoded(reply: bytes, number: int) -> Result:
    """The result in a reply, which must be the one to item `number` of its worker.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, RecursionError: it is not.
    """
    if int.from_bytes(reply[:4], "big") != number:
        raise ValueError("a reply out of turn")
    if reply[4:5] == b"\0":
        return Done(reply[5:], 0.0)
    found = json.loads(reply[4:])
    if "raised" in found:
        return raised(*found["raised"], seconds=found["seconds"])
    return Done(found["value"], found["seconds"])


def _cpu_s(pid: int) -> float:
    """CPU seconds of another process, read from its clock; 0 where the platform has none (wall time then decides)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        return 0.0


_CAN_LOOK = sys.platform == "linux"
"""Whether clock and state of another process can be read; if not, waiting counts as work."""


def allowed_cores() -> int:
    """Cores in the affinity mask, at least one; where a system has no mask, all of the machine."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Pool:
    """Workers for `task`, a `module:function` that takes `config` and returns `(work, info)`.

    `work(item)` runs in the worker and returns plain data (what JSON can hold) or bytes; `info` comes back from
    `start()`. Items and config are pickled; results are not. Lines that the work prints go to `on_print`, called from
    threads of the pool; without it to this process's stderr. `secrets` names the environment variables with a secret
    that workers may read; None: all. `interpreter` is the Python of the workers, which then import nothing else of this one's.
    """

    def __init__(
        self,
        task: str,
        config: object = None,
        *,
        workers: int | None = None,
        limits: ProcessLimits | None = None,
        path: Sequence[str] = (),
        chunk: int = 32,
        on_print: Callable[[str], None] | None = None,
        secrets: Sequence[str] | None = None,
        interpreter: str | None = None,
    ) -> None:
        self._on_print = on_print
        self.limits = limits or ProcessLimits()
        self.workers = workers or allowed_cores()
        self._chunk = chunk
        self._setup = {"task": task, "config": config, "limits": self.limits}
        self._path = list(path)
        self._secrets, self._interpreter = secrets, interpreter
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        """Start without workers; also in a forked copy of the caller, which must neither share nor close our sockets."""
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[SlotJob | None] = queue.SimpleQueue()
        self._slots: list[Slot] = []
        self._open: list[SlotJob] = []
        self._finalizer = end_with(self, _shut, self._jobs, self._slots)

    def launch(self) -> None:
        """Start the first worker, if need be, without waiting for it."""
        with self._lock:
            if not self._slots:
                self._add_slot()

    def start(self) -> Any:
        """Start the first worker, if need be, and return the task's `info`.

        Raises:
            LoadFailed: the task raised while it was loaded.
            Unavailable: no process could be started.
        """
        with self._lock:
            self.launch()
            try:
                return self._slots[0].info.result()
            except BaseException:
                self.close()
                raise

    def _add_slot(self) -> None:
        slot = Slot(self._setup, self._path, self.limits, self._on_print, self._secrets, self._interpreter)
        self._slots.append(slot)
        threading.Thread(target=slot.serve, args=(self._jobs,), name="grpo-pool", daemon=True).start()

    def submit(self, items: Sequence[Any], units: Sequence[float] = ()) -> Future[list[Result]]:
        """Queue items as one job for one worker, each with so many `units` of the limits (1); the future holds the
        results."""
        job = SlotJob(list(items), units)
        self._enqueue([job])
        return job.future

    def run(self, items: Sequence[Any], units: Sequence[float] = ()) -> list[Result]:
        """Results in the order of `items`, each with so many `units` of the limits (1). Blocks; never raises for what
        an item did."""
        size = max(1, min(self._chunk, -(-len(items) // self.workers)))
        jobs = [SlotJob(list(items[i : i + size]), units[i : i + size]) for i in range(0, len(items), size)]
        if jobs:
            self._enqueue(jobs)
        return [result for job in jobs for result in job.future.result()]

    def _enqueue(self, jobs: list[SlotJob]) -> None:
        with self._lock:  # under the lock: otherwise `close` could leave a job that nobody takes
            self.start()
            self._open = [job for job in self._open if not job.future.done()] + jobs
            while len(self._slots) < min(self.workers, len(self._open)):
                self._add_slot()
            for job in jobs:
                self._jobs.put(job)

    def close(self) -> None:
        """End all workers now; the next `run` starts new ones."""
        with self._lock:
            self._finalizer()
            self._jobs, self._slots, self._open = queue.SimpleQueue(), [], []
            self._finalizer = end_with(self, _shut, self._jobs, self._slots)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in _pools:
        pool._finalizer.detach()
        pool._forget()


os.register_at_fork(after_in_child=_forget_all)


def _shut(jobs: queue.SimpleQueue[SlotJob | None], slots: list[Slot]) -> None:
    for _ in slots:
        jobs.put(None)
    for slot in slots:
        slot.close()


__all__ = ["Done", "Killed", "LoadFailed", "Pool", "ProcessLimits", "Raised", "Result"]
