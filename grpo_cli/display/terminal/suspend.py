"""Ctrl-Z and `fg`: the terminal goes back to the shell as it was, and the frame comes again."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from grpo_cli.display.terminal.keys import KeyReader
from grpo_cli.display.terminal.painter import Painter


class Suspended:
    """Takes SIGTSTP while a frame is up, where nobody else did; only the main thread can."""

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
        """Ctrl-Z is as before; from another thread it stays, and does no harm to a painter that is closed."""
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
