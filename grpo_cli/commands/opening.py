"""The first seconds of a command that loads a model: a line at once, Ctrl-C at any moment, imports as quick as can be.

This module is imported before all others: it leans on what an interpreter has loaded as it starts, and imports the rest
where it is used, so that Ctrl-C is heard as early as can be. The line says what is being loaded and for how long; it is for
a person at a terminal, and gone again where the command ends before the libraries are there.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

TRAINER = "torch, transformers and TRL"
MODEL = "torch and transformers"
LOADS = {"train": TRAINER, "eval": MODEL, "probe": MODEL, "chat": MODEL, "export": MODEL}
"""What a command imports before it can begin; other commands answer without it."""

UNSAID = ("--help", "--dry-run", "json", "none", "--display=json", "--display=none")
"""With one of these words a command has nothing to show yet, or shows it to a program."""

TICK_S = 0.25


class Line:
    """One line on the terminal that counts the seconds, until it is kept (`loaded`) or wiped away."""

    def __init__(self, command: str, what: str) -> None:
        self.command, self.what, self.began = command, what, time.monotonic()
        self.usual = _took(command)
        self._moves = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="grpo-opening", daemon=True)
        usual = f" (last time {self.usual:.0f}s)" if self.usual else ""
        self._put(f"loading {what}{usual}" + ("" if self._moves else "\n"))
        if self._moves:
            self._thread.start()

    def loaded(self) -> None:
        """The libraries are there: the line stays, with the seconds it took, which are remembered."""
        took = time.monotonic() - self.began
        self._end(f"\r\x1b[Kloaded {self.what} in {took:.1f}s\n")
        _remember(self.command, took)

    def wipe(self) -> None:
        """Remove the line from the terminal."""
        self._end("\r\x1b[K")

    def _end(self, text: str) -> None:
        if self._moves and not self._over.is_set():
            self._over.set()
            if self._thread is not threading.current_thread():
                self._thread.join(timeout=1)
            self._put(text)

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            took = time.monotonic() - self.began
            usual = f" of about {self.usual:.0f}s" if self.usual else "s"
            self._put(f"\r\x1b[Kloading {self.what}  {took:.0f}{usual}")

    @staticmethod
    def _put(text: str) -> None:
        with suppress(OSError):
            os.write(2, text.encode())


_line: Line | None = None


def open_command(words: Sequence[str]) -> None:
    """Called before anything else is imported: handles Ctrl-C from now on, and shows the line for a command that loads
    a model."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if words and words[0] in LOADS and not any(word in UNSAID for word in words):
        _say(words[0])


def take_ctrl_c_back(words: Sequence[str]) -> None:
    """Called once the command is known to all imports: Ctrl-C is a KeyboardInterrupt again where nothing is to be loaded."""
    if not (words and words[0] in LOADS) and signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wipe() -> None:
    """Take the line back: an error, or a screen, comes in its place. Nothing where none is up."""
    global _line
    if _line is not None:
        _line.wipe()
        _line = None


@contextmanager
def loading(command: str) -> Iterator[None]:
    """For the imports of a command that loads a model; `loaded` is said where the line is up.

    Ctrl-C ends the process at once inside: a KeyboardInterrupt in a library's import may be caught there, and half a
    module imported again is an ImportError; nothing is open yet that would have to be closed.
    """
    global _line
    if _line is None and command not in LOADS:
        _say(command)
    if _line is not None:
        _line.began = time.monotonic()  # rows may have been read since the line was put up
    with ended_by_ctrl_c(), without_collecting():
        yield
    if _line is not None:
        _line.loaded()
        _line = None


@contextmanager
def without_collecting() -> Iterator[None]:
    """For imports: nothing that is made inside is ever collected as part of a cycle.

    torch, transformers and TRL make half a million objects that live as long as the process. Python's collector goes
    through them again and again while they are made (a quarter of the import's time, measured) and at every full
    collection after that.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Inside, Ctrl-C ends the process at once, with one line; afterwards it is a KeyboardInterrupt as usual."""
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, _end)
    ):
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(command: str) -> None:
    global _line
    said = os.environ.get("GRPO_DISPLAY") not in ("json", "none") and "TORCHELASTIC_RUN_ID" not in os.environ
    with suppress(OSError, ValueError):
        if said and os.isatty(2):
            _line = Line(command, LOADS.get(command, MODEL))


def _end(number: int, frame: FrameType | None) -> None:
    wiped = "\r\x1b[K" if _line is not None and _line._moves else ""
    os.write(2, f"{wiped}interrupted: nothing had begun\n".encode())
    os._exit(130)  # `Exit.INTERRUPTED`; an import may be what is interrupted


def _took(command: str) -> float | None:
    """Seconds of the last time; None of a first."""
    import json

    from grpo_cli.run.cache import cache_root

    try:
        found = json.loads((cache_root() / "loading.json").read_text())[command]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    return float(found) if isinstance(found, int | float) else None


def _remember(command: str, seconds: float) -> None:
    import json

    from grpo_cli.run.cache import cache_root

    with suppress(OSError, ValueError, RuntimeError):
        place = cache_root() / "loading.json"
        try:
            known = json.loads(place.read_text())
        except (OSError, ValueError):
            known = {}
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({**(known if isinstance(known, dict) else {}), command: round(seconds, 1)}))
        partial.replace(place)
