"""Importing torch, transformers and TRL makes half a million objects that live as long as the process.

Python's collector goes through them again and again while they are made (a quarter of the import's time, measured) and
at every full collection after that. Inside this block it rests, and afterwards it leaves what was made there alone.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from grpo_cli.errors import Exit


@contextmanager
def without_collecting() -> Iterator[None]:
    """For imports: nothing that is made inside is ever collected as part of a cycle."""
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
    """For imports of a command that has begun nothing: Ctrl-C ends the process at once, with one line.

    A KeyboardInterrupt inside a library's import may be caught there, and half a module imported again is an
    ImportError; nothing is open yet that would have to be closed.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted: nothing had begun\n")
    os._exit(Exit.INTERRUPTED)
