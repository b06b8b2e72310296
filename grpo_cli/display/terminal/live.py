"""The live frame on a terminal: a thread paints a few times a second, and only when something changed or a clock ticks.

How this works: `LiveDisplay` collects what the run reports in a `RunState`; its thread draws the state and hands the
lines to the `Painter`. Meanwhile `StderrSilencer` redirects progress bars, warnings and prints of other libraries to
`train.log`, so that they do not disturb the frame. It redirects file descriptor 2 itself, which also covers native code
and child processes; the painter writes to a copy of the descriptor. Before the run has a log the text is kept in an
unnamed file, and printed on the terminal if the run never gets one. `Suspended` restores the terminal for a Ctrl-Z.

A display must never stop a run: a frame that cannot be drawn is skipped, and the error goes to `train.log`'s stream.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO, TextIO

from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.frame.header import NOTE_MARKS
from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.frame.state import RunState
from grpo_cli.display.plain import put
from grpo_cli.display.protocol import Display, KeyRequests
from grpo_cli.display.terminal.keys import KeyReader
from grpo_cli.display.terminal.painter import Painter, screen_size
from grpo_cli.distributed.launch import CONTROL
from grpo_cli.run.follow import is_evaluation, is_shown_step
from grpo_cli.run.info import Card, Level, Metrics, RunInfo
from grpo_cli.text import as_ascii, visible

SILENCING: Mapping[str, str] = {
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Variables that these libraries read at import; values set by the user are kept."""


class StderrSilencer:
    """Redirects stderr away from a terminal, and restores it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._kept_fd: int | None = None
        self._waiting: IO[bytes] | None = None
        self.terminal: TextIO = stream

    def open(self) -> None:
        """Silence progress bars; if the stream is descriptor 2 itself, redirect it."""
        for name, value in SILENCING.items():
            os.environ.setdefault(name, value)
        silence_loaded()
        try:
            is_ours = self._stream.fileno() == 2
        except (OSError, ValueError, io.UnsupportedOperation):
            is_ours = False
        if not is_ours:
            return
        self._stream.flush()
        self._kept_fd = os.dup(2)
        os.set_inheritable(self._kept_fd, False)
        encoding = self._stream.encoding
        self.terminal = os.fdopen(self._kept_fd, "w", encoding=encoding, errors="replace", closefd=False)
        self._waiting = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `log_to` or `close`
        os.dup2(self._waiting.fileno(), 2)

    def log_to(self, path: str) -> None:
        """Send stderr to this file from now on; what was printed before comes first."""
        silence_loaded()
        if self._kept_fd is None:
            return
        with contextlib.suppress(OSError), open(path, "ab") as log:
            self._stream.flush()
            log.write(self._take_waiting())
            log.flush()
            os.dup2(log.fileno(), 2)

    def close(self) -> None:
        """Restore descriptor 2; text that was kept for lack of a log is printed now."""
        if self._kept_fd is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
        waited = self._take_waiting()
        os.dup2(self._kept_fd, 2)
        if waited:
            with contextlib.suppress(OSError):
                os.write(2, waited)
        self.terminal = self._stream
        os.close(self._kept_fd)
        self._kept_fd = None

    def _take_waiting(self) -> bytes:
        if self._waiting is None:
            return b""
        waiting, self._waiting = self._waiting, None
        waiting.seek(0)
        text = waiting.read()
        waiting.close()
        return text


def silence_loaded() -> None:
    """Switch off the bars of libraries that were imported before the environment variables were set."""
    for module, function in (
        ("transformers.utils.logging", "disable_progress_bar"),
        ("datasets.utils", "disable_progress_bars"),
        ("huggingface_hub.utils", "disable_progress_bars"),
    ):
        disable = getattr(sys.modules.get(module), function, None)
        if disable is not None:
            disable()


class Suspended:
    """Handles SIGTSTP while a frame is up, unless it has a handler already; only the main thread can."""

    def __init__(self, painter: Painter, keys: KeyReader | None) -> None:
        self._painter, self._keys = painter, keys
        self._is_ours = (
            hasattr(signal, "SIGTSTP")
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        )
        if self._is_ours:
            signal.signal(signal.SIGTSTP, self._stop)

    def close(self) -> None:
        """Restore the handling of Ctrl-Z. Another thread cannot do this; the handler then stays, which is harmless once
        the painter is closed."""
        if self._is_ours and threading.current_thread() is threading.main_thread():
            self._is_ours = False
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._painter.pause()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # here the process was continued
        signal.signal(signal.SIGTSTP, self._stop)
        if self._keys is not None:
            self._keys.again()
        self._painter.resume()


FRAME_S = 0.4
SHARE = 0.008
"""The largest share of the process's CPU time that drawing takes, also of large frames and on a busy machine."""
STILL_S = 1.0
"""With nothing new, a frame a second keeps the clocks going."""
LONGEST_S = 5.0
"""Seconds between two frames at most, also in a process that waits and uses hardly any CPU time."""


class LiveDisplay(Display):
    """Paints `RunState` until closed; opened by the first event."""

    def __init__(
        self,
        stream: TextIO,
        *,
        ascii: bool = False,
        color: bool = True,
        keys: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream, self._ascii, self._now, self._color = stream, ascii, now, color
        self._state = RunState(now())
        self._quiet = StderrSilencer(stream)
        self._keys = KeyReader(self._pressed, os.environ.get(CONTROL)) if keys else None
        self._wishes: KeyRequests | None = None
        self._suspended: Suspended | None = None
        self._painter: Painter | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self._closed = False
        self._pid = os.getpid()
        self._hook = sys.excepthook

    def start(self, info: RunInfo) -> None:
        """Show the run; what other code prints goes to its log."""
        self._open()
        if info.log:
            self._quiet.log_to(info.log)
        self._state.set(info=info)

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """The third line."""
        self._open()
        self._state.act(name, done, total, self._now())

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """The third line, with a bar or a spinner."""
        self._open()
        self._state.act(noun, done, total, self._now(), is_step=False)

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """All panels."""
        self._open()
        self._state.step(metrics, view)

    def recall(self, lines: Sequence[Metrics]) -> None:
        """What an earlier process of this run recorded."""
        for metrics in lines:
            if is_shown_step(metrics):
                self._state.step(metrics, None)
            if is_evaluation(metrics):
                self._state.evaluated(metrics)

    def evaluated(self, metrics: Metrics) -> None:
        """The held-out row."""
        self._open()
        self._state.evaluated(metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """The notes at the foot."""
        self._open()
        self._state.note(level, text, hint, self._now())
        if level == "error":
            text = "".join(f"{visible(line)}\n" for line in f"{level}: {text}".splitlines())
            shown = as_ascii(text) if self._ascii else text
            if self._painter is not None and not self._closed:
                self._painter.say_below(shown)
            else:
                put(self._stream, shown)

    def offer(self, wishes: KeyRequests) -> None:
        """The keys that ask the trainer for something."""
        self._wishes = wishes

    def _pressed(self, key: str) -> None:
        said = self._wishes.press(key) if self._wishes is not None else None
        if said is not None:
            self._state.note("info", said, "", self._now())
        else:
            self._state.press(key)
        self._paint()

    def finish(self, card: Card) -> None:
        """The card, on the usual screen."""
        self._state.set(ended=card.status)
        self.close()
        width, _ = screen_size(self._stream)
        lines = [  # print the warnings again: the screen that showed them is gone
            visible(f" {NOTE_MARKS[n.level][0]} {n.text.strip()}" + (f": {n.hint}" if n.hint else ""))
            for n in self._state.snapshot(self._now()).notes
            if n.level == "warn"
        ]
        text = "".join(f"{line}\n" for line in [*lines, *card_lines(card, max(width - 1, 20))])
        put(self._stream, as_ascii(text) if self._ascii else text)

    def close(self) -> None:
        """Stop painting and restore cursor, modes and stderr, in any state; may be called repeatedly."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        if self._suspended is not None:
            self._suspended.close()
        if self._painter is not None:
            self._painter.close()
        if self._keys is not None:
            self._keys.close()
        self._quiet.close()
        if sys.excepthook == self._crashed:
            sys.excepthook = self._hook

    def _open(self) -> None:
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._quiet.open()
            self._painter = Painter(self._quiet.terminal, color=self._color)
            self._painter.open()
            if self._keys is not None and self._keys.open():
                self._state.set(keys=True)
            self._suspended = Suspended(self._painter, self._keys)
            self._hook, sys.excepthook = sys.excepthook, self._crashed
            self._thread = threading.Thread(target=self._run, name="grpo-display", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        seen, painted_at, size, due = -1, 0.0, (0, 0), 0.0
        while not self._stop.wait(FRAME_S):
            version = self._state.version
            size_now = screen_size(self._quiet.terminal)
            since = time.monotonic() - painted_at
            is_due = time.process_time() >= due or since >= LONGEST_S
            if size_now != size or (is_due and (version != seen or since >= STILL_S)):
                seen, painted_at, size = version, time.monotonic(), size_now
                before = time.thread_time()
                self._paint()
                due = time.process_time() + (time.thread_time() - before) / SHARE

    def _paint(self) -> None:
        if self._painter is None:
            return
        width, height = screen_size(self._quiet.terminal)
        try:
            self._painter.paint(
                frame_lines(self._state.snapshot(self._now()), width, height, ascii=self._ascii), (width, height)
            )
        except Exception:  # noqa: BLE001 - odd metrics must not end a night's run; the log gets the traceback
            print(traceback.format_exc(), file=sys.stderr)

    def _crashed(self, kind: type[BaseException], err: BaseException, trace: TracebackType | None) -> None:
        """Print the traceback of a bug on the terminal too, below the last frame."""
        hook = self._hook
        self.close()
        hook(kind, err, trace)
