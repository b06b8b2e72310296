"""Keys of a run on several ranks: the process that has the terminal reads them and hands them to rank 0 through a named pipe."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_cli.display.terminal.keys import KeyReader
from grpo_cli.distributed.launch import CONTROL

PIPE = "keys"


@contextmanager
def relayed_keys(control: Path) -> Iterator[None]:
    """In the parent: keys are read from the moment on in which rank 0 draws, and the terminal has its modes again at the end."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    os.mkfifo(control / PIPE, 0o600)
    readers: list[KeyReader] = []

    def hand_on() -> None:
        with contextlib.suppress(OSError):
            pipe = os.open(control / PIPE, os.O_WRONLY)  # returns as soon as rank 0 has opened its end

            def send(key: str) -> None:
                try:
                    os.write(pipe, f"{key}\n".encode())
                except BrokenPipeError:  # rank 0 draws no more
                    readers[0].close()

            readers.append(KeyReader(send))
            readers[0].open()

    threading.Thread(target=hand_on, name="grpo-relay", daemon=True).start()
    try:
        yield
    finally:
        for reader in readers:
            reader.close()


def key_reader(pressed: Callable[[str], None]) -> KeyReader:
    """What reads the keys of this process's frame: its terminal, or in a rank the pipe of its parent."""
    return RelayedKeys(pressed) if CONTROL in os.environ else KeyReader(pressed)


class RelayedKeys(KeyReader):
    """The same in a rank, which has no terminal of its own."""

    def open(self) -> bool:
        """Whether keys are read now: the parent has a terminal."""
        try:
            # for both ways: with no writer yet a pipe that is only read is at its end all the time
            self._fd = os.open(Path(os.environ[CONTROL]) / PIPE, os.O_RDWR)
        except OSError:
            return False
        self._thread = threading.Thread(target=self._read, name="grpo-keys", daemon=True)
        self._thread.start()
        return True

    def again(self) -> None:
        """The parent has the terminal's modes."""

    def close(self) -> None:
        """Read no more; any number of times."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _read(self) -> None:
        left = b""
        while not self._stop.is_set():
            try:
                ready, _, _ = select.select([self._fd], [], [], 0.25)
                left += os.read(self._fd, 4096) if ready else b""
            except (OSError, ValueError):
                return
            *keys, left = left.split(b"\n")
            for key in keys:
                self._pressed(key.decode())
