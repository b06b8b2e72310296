"""Killable workers: many items in parallel, each under its own deadline, none able to hang or crash the caller.

The deadline is CPU time of the worker, so a loaded machine does not turn right answers into timeouts; wall time is
only a backstop, and a worker that merely waits for a core is given ten times as long. Callable from any thread; no
signal handler or alarm of the caller is touched, and the trainer is never forked.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from grpo_verifiers.processes.cores import allowed_cores
from grpo_verifiers.processes.linked import end_with
from grpo_verifiers.processes.results import Done, Killed, LoadFailed, ProcessLimits, Raised, Result
from grpo_verifiers.processes.slot import Slot, SlotJob


class Pool:
    """Workers for `task`, a `module:function` that takes `config` and returns `(work, info)`.

    `work(item)` runs in the worker and returns plain data (what JSON can say) or bytes; `info` comes back from
    `start()`. Items and config are pickled; results are not. Lines that the work prints go to `on_print`, called from
    threads of the pool; without it to this process's stderr. `secrets` names the environment variables with a secret
    that workers may read; None: all.
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
    ) -> None:
        self._on_print = on_print
        self.limits = limits or ProcessLimits()
        self.workers = workers or allowed_cores()
        self._chunk = chunk
        self._setup = {"task": task, "config": config, "limits": self.limits}
        self._path = list(path)
        self._secrets = secrets
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        """Have no workers: at first, and in a forked copy of the caller, which must not share our sockets nor end them."""
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[SlotJob | None] = queue.SimpleQueue()
        self._slots: list[Slot] = []
        self._open: list[SlotJob] = []
        self._finalizer = end_with(self, _shut, self._jobs, self._slots)

    def launch(self) -> None:
        """Start the first worker, if need be, without waiting for it."""
        with self._lock:
            if not self._slots:
                self._adopt()

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

    def _adopt(self) -> None:
        slot = Slot(self._setup, self._path, self.limits, self._on_print, self._secrets)
        self._slots.append(slot)
        threading.Thread(target=slot.serve, args=(self._jobs,), name="grpo-pool", daemon=True).start()

    def submit(self, items: Sequence[Any], units: Sequence[float] = ()) -> Future[list[Result]]:
        """Queue items as one job for one worker, each with so many `units` of the limits (1); the future holds their
        results in order."""
        job = SlotJob(list(items), units)
        self._enqueue([job])
        return job.future

    def run(self, items: Sequence[Any], units: Sequence[float] = ()) -> list[Result]:
        """Results in the order of `items`, each with so many `units` of the limits (1). Blocks; never raises for what an item did."""
        size = max(1, min(self._chunk, -(-len(items) // self.workers)))
        jobs = [SlotJob(list(items[i : i + size]), units[i : i + size]) for i in range(0, len(items), size)]
        if jobs:
            self._enqueue(jobs)
        return [result for job in jobs for result in job.future.result()]

    def _enqueue(self, jobs: list[SlotJob]) -> None:
        with self._lock:  # or `close` could come between and leave a job that nobody takes
            self.start()
            self._open = [job for job in self._open if not job.future.done()] + jobs
            while len(self._slots) < min(self.workers, len(self._open)):
                self._adopt()
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
