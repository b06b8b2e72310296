"""Detects hangs: after a time limit a thread shows the phase that is stuck and logs the stacks."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from grpo_cli.distributed.peers import Peers
from grpo_cli.run.folder import RunFolder


class Heartbeat:
    """Watches the calls of `beat`; one message per hang, and one more when it is over."""

    def __init__(
        self, run: RunFolder, display: Any, limit_s: float, every_s: float = 1.0, peers: Peers | None = None
    ) -> None:
        self.peers = peers
        self.run, self.display, self.limit_s, self.every_s = run, display, limit_s, every_s
        self._phase, self._since = "start", time.monotonic()
        self._is_said = False
        self._over = threading.Event()

    def beat(self, phase: str, done: int | None = None, total: int | None = None) -> None:
        """Record that the run made progress."""
        if self._is_said:
            self.display.note("info", f"`{self._phase}` goes on after {time.monotonic() - self._since:.0f}s")
        self._phase = phase if done is None else f"{phase} {done}/{total}"
        self._since, self._is_said = time.monotonic(), False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while inside."""
        # a daemon: it never keeps a process alive whose main thread has ended
        thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self.every_s):
            stuck = time.monotonic() - self._since
            if self.peers is not None:
                self.peers.leave(self._phase, stuck)
            if stuck < self.limit_s or self._is_said:
                continue
            self._is_said = True
            others = self.peers.others() if self.peers is not None else ""
            self.display.note(
                "warn",
                f"nothing has moved for {stuck:.0f}s in `{self._phase}`" + (f"; {others}" if others else ""),
                hint=f"stacks are in {self.run.log_path}; `stop.hang_s` sets the limit",
            )
            # the disk may be full, which is no reason to stop watching
            with suppress(OSError), self.run.log_path.open("a", encoding="utf-8") as log:
                if others and self.peers is not None:
                    print(f"stacks of rank {self.peers.ranks.rank}", file=log, flush=True)
                faulthandler.dump_traceback(log, all_threads=True)


class Beating:
    """A display that also beats: every phase report is a sign of life."""

    def __init__(self, shown: Any, heartbeat: Heartbeat) -> None:
        self._shown, self._heartbeat = shown, heartbeat

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Pass on, and beat."""
        self._heartbeat.beat(name, done, total)
        self._shown.phase(name, done, total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)
