"""What a person asked for by a key while a run trains: pause, save, evaluate. The trainer takes it up between two steps."""

from __future__ import annotations

import threading


class KeyRequests:
    """Pressed on the display's thread, taken on the trainer's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._once: set[str] = set()
        self._paused = False

    def press(self, key: str) -> str | None:
        """Take a key up; what to tell the person, None of a key that asks for nothing."""
        with self._lock:
            if key == "p":
                self._paused = not self._paused
                return "pausing after this step; p goes on" if self._paused else "going on"
            if key == "s":
                self._once.add("save")
                return "saving after this step"
            if key == "e":
                self._once.add("evaluate")
                return "measuring the held-out rows after this step"
        return None

    @property
    def is_paused(self) -> bool:
        """Whether the run should wait before its next step."""
        with self._lock:
            return self._paused

    def take(self) -> frozenset[str]:
        """`save`, `evaluate`, both or neither: what was asked for since the last call."""
        with self._lock:
            taken, self._once = frozenset(self._once), set()
            return taken
