"""How long the machine let the processes of lanes wait for their turn, by the kernel's own account."""

from __future__ import annotations

import contextlib

from grpo_verifiers.sandbox.lane import Lane
from grpo_verifiers.sandbox.memory import descendants


class Delays:
    """Of some lanes, from now on."""

    def __init__(self, *lanes: Lane) -> None:
        self.lanes, self._before = lanes, dict[str, float]()
        self._before = self._waited()

    def seconds(self) -> float:
        """Seconds since, of all their processes together; 0 where the kernel does not tell."""
        return sum(s - self._before.get(at, 0.0) for at, s in self._waited().items())

    def _waited(self) -> dict[str, float]:
        found = dict[str, float]()
        for lane in self.lanes:
            for process in descendants(lane.process.pid):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    # on a processor, waiting for one, and how often: nanoseconds
                    found[str(process)] = int((process / "schedstat").read_text().split()[1]) / 1e9
        return found
